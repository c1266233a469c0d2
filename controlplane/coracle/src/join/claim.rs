//! The keys of the cluster in a shared store. The first server puts them there, sealed. A server with keys of another cluster, or
//! with none, does not use the store: two CAs in one cluster would break clients and nodes at random.

use super::keys::{KEYS, has_keys};
use coracle_cli::causes;
use coracle_pki::PkiError;
use coracle_pki::cluster_keys::{
    ClusterKeys, ClusterKeysError, ENCRYPTION, RotationError, SealedError, SealedInfo, SealingKey,
};
use coracle_store::{Durability, KeyValue, Store, StoreError, Write};
use std::path::{Path, PathBuf};

/// Servers that start together may write the key at the same time.
const ATTEMPTS: u32 = 5;

/// Why a server cannot use the store.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// It has no keys, but the store has those of a cluster.
    #[error(
        "the datastore belongs to a cluster whose CA is {0}, and this server has no keys: start it with --join https://SERVER:6443 --token TOKEN; `coracle token create --server` makes the token"
    )]
    NotJoined(String),
    /// It has keys of another cluster.
    #[error(
        "the datastore belongs to a cluster whose CA is {found}, but the CA in {dir} is {own}: use another datastore or --etcd-prefix, or remove that directory and start with --join"
    )]
    OtherCluster {
        /// The CA of the store.
        found: String,
        /// The own CA.
        own: String,
        /// The directory of the keys.
        dir: PathBuf,
    },
    /// Files.
    #[error(transparent)]
    Keys(#[from] ClusterKeysError),
    /// Files.
    #[error(transparent)]
    Files(#[from] PkiError),
    /// A file cannot be removed.
    #[error("{path}")]
    Remove {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The files of the CA.
    #[error("the CA of the cluster was rotated, and its files cannot be brought up to date")]
    Rotation(#[from] RotationError),
    /// The sealing key, or the sealed keys.
    #[error(transparent)]
    Sealed(#[from] SealedError),
    /// The store.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// Other servers change them all the time.
    #[error("{KEYS} in the store keeps changing")]
    Changing,
}

impl From<StoreError> for ClaimError {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

/// The keys of this server and of the store.
pub(crate) struct Claimer<'a> {
    pub(crate) store: &'a dyn Store,
    /// The directory of the keys.
    pub(crate) dir: &'a Path,
    /// The contents of the file of `--encryption-provider-config`, if the flag is given. Those without keys are empty.
    pub(crate) encryption: Option<Option<Vec<u8>>>,
}

/// The configuration of encryption at rest in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClusterEncryption {
    /// The store has no keys of a cluster yet.
    NoCluster,
    /// This server cannot open them.
    Sealed,
    /// The configuration, if the cluster has one.
    Known(Option<Vec<u8>>),
}

/// What a look at the store found.
struct Found {
    /// `None` if this server cannot let others join, or if the store has no keys yet and this server has not begun to store them.
    sealing: Option<SealingKey>,
    /// The keys to store.
    publish: Option<Publication>,
    /// Why servers cannot join through this one.
    problem: Option<SealedError>,
}

/// Keys that are to be stored.
struct Publication {
    keys: ClusterKeys,
    /// The revision that they replace.
    expect: u64,
    /// The files that are different there.
    changed: Vec<&'static str>,
}

impl Claimer<'_> {
    /// Fails if this server has no keys and the store has those of a cluster. Before keys are made.
    pub(crate) async fn check_new(&self) -> Result<(), ClaimError> {
        if has_keys(self.dir) {
            return Ok(());
        }
        match self.store.get(KEYS).await? {
            Some(found) => Err(ClaimError::NotJoined(SealedInfo::of(&found.value)?.ca_hash)),
            None => Ok(()),
        }
    }

    /// Fails if the keys of this server are not those of the store. If no flag names a file, the configuration of encryption at
    /// rest is brought to what other servers have.
    pub(crate) async fn check(&self) -> Result<(), ClaimError> {
        self.look().await.map(drop)
    }

    /// The configuration of encryption at rest that the cluster has.
    pub(crate) async fn encryption_of_cluster(&self) -> Result<ClusterEncryption, ClaimError> {
        let Some(stored) = self.store.get(KEYS).await? else { return Ok(ClusterEncryption::NoCluster) };
        let Some(sealing) = self.sealing()? else { return Ok(ClusterEncryption::Sealed) };
        Ok(match sealing.open(&stored.value) {
            Ok(keys) => ClusterEncryption::Known(keys.file(ENCRYPTION).map(<[u8]>::to_vec)),
            // It is said why when the keys are published.
            Err(_) => ClusterEncryption::Sealed,
        })
    }

    /// Stores the keys, if they are not there or have changed here. Returns the key that seals them, if this server has it.
    ///
    /// A first server writes its sealing key as a pending file, stores the keys, and renames the file. Whenever it is killed, the
    /// next start continues: with the pending key, or by the rename only. `sealing.key` thus says that the store had the keys of
    /// the cluster.
    pub(crate) async fn publish(&self) -> Result<Option<SealingKey>, ClaimError> {
        for _ in 0..ATTEMPTS {
            let Found { sealing, publish, problem } = self.look().await?;
            if let Some(error) = problem {
                let dir = self.dir.display();
                tracing::warn!(error = %causes::chain(&error), %dir, "servers cannot join through this one");
            }
            let Some(Publication { keys, expect, changed }) = publish else {
                if sealing.is_some() {
                    SealingKey::confirm(self.dir)?;
                }
                return Ok(sealing);
            };
            let sealing = match sealing {
                Some(sealing) => sealing,
                None => SealingKey::ensure_pending(self.dir)?,
            };
            let write = Write {
                key: KEYS.to_owned(),
                expect,
                value: Some(sealing.seal(&keys)?.into()),
                durability: Durability::Sync,
                fence: None,
            };
            match self.store.write(write).await {
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => {
                    SealingKey::confirm(self.dir)?;
                    let (ca, files) = (keys.ca_hash(), changed.join(","));
                    match expect {
                        0 => tracing::info!(ca, "stored the sealed keys of the cluster"),
                        _ => tracing::warn!(
                            ca,
                            files,
                            "keys of the cluster have changed here: other servers need them"
                        ),
                    }
                    return Ok(Some(sealing));
                }
            }
        }
        Err(ClaimError::Changing)
    }

    /// The sealing key, also one of a first start that was interrupted.
    fn sealing(&self) -> Result<Option<SealingKey>, SealedError> {
        Ok(match SealingKey::read(self.dir)? {
            Some(sealing) => Some(sealing),
            None => SealingKey::read_pending(self.dir)?,
        })
    }

    async fn look(&self) -> Result<Found, ClaimError> {
        let mut own = ClusterKeys::collect(self.dir)?;
        if let Some(encryption) = &self.encryption {
            own = own.with_encryption(encryption.clone())?;
        }
        let sealing = self.sealing()?;
        let Some(stored) = self.store.get(KEYS).await? else {
            let publish = Some(Publication { keys: own, expect: 0, changed: Vec::new() });
            return Ok(Found { sealing, publish, problem: None });
        };
        let opened = match &sealing {
            Some(sealing) => sealing.open(&stored.value),
            None => Err(SealedError::NoSealingKey),
        };
        match opened {
            Ok(found) => self.compare(own, found, sealing, &stored),
            Err(error) => {
                let found = SealedInfo::of(&stored.value)?.ca_hash;
                if found != own.ca_hash() {
                    return Err(self.other_cluster(found, &own));
                }
                // Such as keys that an operator copied from another server: all works but joining.
                Ok(Found { sealing: None, publish: None, problem: Some(error) })
            }
        }
    }

    /// Which of two sets of keys is the newer one. A CA that was rotated while this server was down is taken over: who can open the
    /// sealed keys belongs to the cluster.
    fn compare(
        &self,
        mut own: ClusterKeys,
        found: ClusterKeys,
        sealing: Option<SealingKey>,
        stored: &KeyValue,
    ) -> Result<Found, ClaimError> {
        if found.has_later_ca(&own) {
            tracing::warn!(ca = found.ca_hash(), before = own.ca_hash(), "the CA of the cluster was rotated");
            found.write_ca(self.dir)?;
            let encryption = own.file(ENCRYPTION).map(<[u8]>::to_vec);
            own = ClusterKeys::collect(self.dir)?.with_encryption(encryption)?;
        } else if own.ca_hashes() != found.ca_hashes() {
            // A CA that was rotated here trusts the one before.
            let rotated = own.has_later_ca(&found) && own.ca_hashes().contains(&found.ca_hash());
            if !rotated {
                return Err(self.other_cluster(found.ca_hash(), &own));
            }
        }
        if self.encryption.is_none() && own.file(ENCRYPTION) != found.file(ENCRYPTION) {
            let path = self.dir.join(ENCRYPTION);
            match found.file(ENCRYPTION) {
                Some(contents) => coracle_pki::write_private(&path, contents)?,
                None => {
                    std::fs::remove_file(&path).map_err(|source| ClaimError::Remove { path, source })?;
                }
            }
            own = own.with_encryption(found.file(ENCRYPTION).map(<[u8]>::to_vec))?;
        }
        let changed = own.differences(&found);
        let publish =
            (!changed.is_empty()).then_some(Publication { keys: own, expect: stored.modified, changed });
        Ok(Found { sealing, publish, problem: None })
    }

    fn other_cluster(&self, found: String, own: &ClusterKeys) -> ClaimError {
        ClaimError::OtherCluster { found, own: own.ca_hash(), dir: self.dir.into() }
    }
}

#[cfg(test)]
mod tests;
