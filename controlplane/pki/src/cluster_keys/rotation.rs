//! Rotation of the cluster CA, as changes of the files that all servers share.
//!
//! | stage | `ca.crt` | `ca.key` | besides |
//! |---|---|---|---|
//! | settled | old | old | |
//! | prepared: both are trusted, the old one signs | old, new | old | `ca-next.key`, `ca-cross.crt` |
//! | switched: both are trusted, the new one signs | new, old | new | `ca-cross.crt` |
//! | settled again | new | new | |
//! | settled, because what was prepared was cancelled | old | old | `ca-cancelled` |
//!
//! `ca-cross.crt` is the new CA, signed by the old one: who trusts only the old one accepts what the new one has signed.

use super::{CA_CANCELLED, CA_CROSS, CA_NEXT_KEY, ClusterKeys, ClusterKeysError};
use crate::authority::{Authority, Successor};
use crate::files::write_private;
use crate::inspect::CertificateInfo;
use crate::{PkiError, bundle};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

/// How far a rotation is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// There is one CA.
    #[default]
    Settled,
    /// A new one is trusted.
    Prepared,
    /// The new one signs, and the old one is trusted.
    Switched,
}

/// Why a step is not made.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// The rotation is at another stage.
    #[error("{0}")]
    Stage(&'static str),
    /// Keys.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// Files.
    #[error(transparent)]
    Keys(#[from] ClusterKeysError),
}

/// A CA that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustedCa {
    /// The hash of its public key.
    pub hash: String,
    /// Whether it signs.
    pub signs: bool,
    /// What its certificate says.
    #[serde(flatten)]
    pub info: CertificateInfo,
}

impl ClusterKeys {
    /// How far the rotation of the CA is.
    pub fn stage(&self) -> Stage {
        match (self.next_key(), self.ca_hashes().len()) {
            (Some(_), _) => Stage::Prepared,
            (None, 0 | 1) => Stage::Settled,
            (None, _) => Stage::Switched,
        }
    }

    /// The CAs that are trusted; the one that signs is the first.
    pub fn trusted_cas(&self) -> Vec<TrustedCa> {
        let certificates = self.authority().map(|authority| authority.certificate).unwrap_or_default();
        let read = bundle::split(&certificates).into_iter().enumerate().filter_map(|(number, pem)| {
            let info = crate::inspect::parse(Path::new("ca.crt"), pem.as_bytes()).ok()?.into_iter().next()?;
            Some(TrustedCa { hash: Authority::hash_of(&pem)?, signs: number == 0, info })
        });
        read.collect()
    }

    /// Adds a new CA to those that are trusted.
    pub fn prepare(mut self, common_name: &str) -> Result<Self, RotationError> {
        match self.stage() {
            Stage::Settled => {}
            Stage::Prepared => {
                return Err(RotationError::Stage("a new CA is prepared already: switch to it next"));
            }
            Stage::Switched => {
                let why = "the last rotation is not over, the CA before it is still trusted: finish it first";
                return Err(RotationError::Stage(why));
            }
        }
        let authority = self.authority()?;
        let Successor { certificate, cross, key } = authority.successor(common_name)?;
        self.set("ca.crt", format!("{}{certificate}", authority.certificate));
        self.set(CA_NEXT_KEY, key);
        self.set(CA_CROSS, cross);
        Ok(Self::new(self.0)?)
    }

    /// Signs with the new CA from now on.
    pub fn switch(mut self) -> Result<Self, RotationError> {
        let Some(key) = self.next_key() else {
            return Err(RotationError::Stage(match self.stage() {
                Stage::Switched => {
                    "the new CA signs already: finish the rotation when nobody uses the old one"
                }
                _ => "no new CA is prepared: prepare one first",
            }));
        };
        self.set("ca.key", key);
        self.0.remove(CA_NEXT_KEY);
        self.0.remove(CA_CANCELLED);
        let authority = self.authority()?;
        self.set("ca.crt", authority.certificate);
        Ok(Self::new(self.0)?)
    }

    /// Trusts only the CA that signs.
    pub fn finish(mut self) -> Result<Self, RotationError> {
        match self.stage() {
            Stage::Switched => {}
            Stage::Settled => return Err(RotationError::Stage("no rotation of the CA is under way")),
            Stage::Prepared => {
                return Err(RotationError::Stage("the old CA still signs: switch to the new one first"));
            }
        }
        let authority = self.authority()?;
        self.set("ca.crt", bundle::split(&authority.certificate).into_iter().take(1).collect::<String>());
        self.0.remove(CA_CROSS);
        Ok(Self::new(self.0)?)
    }

    /// Trusts only the CA that signs, and forgets the one that was prepared.
    pub fn cancel(mut self) -> Result<Self, RotationError> {
        match self.stage() {
            Stage::Prepared => {}
            Stage::Settled => return Err(RotationError::Stage("no new CA is prepared")),
            Stage::Switched => {
                let why = "the new CA signs already: finish the rotation, and replace that CA by another one";
                return Err(RotationError::Stage(why));
            }
        }
        let authority = self.authority()?;
        self.set("ca.crt", bundle::split(&authority.certificate).into_iter().take(1).collect::<String>());
        self.set(CA_CANCELLED, (self.cancelled() + 1).to_string());
        self.0.remove(CA_NEXT_KEY);
        self.0.remove(CA_CROSS);
        Ok(Self::new(self.0)?)
    }

    /// How many CAs were prepared for the one that signs and not used.
    fn cancelled(&self) -> u64 {
        self.text(CA_CANCELLED).trim().parse().unwrap_or(0)
    }

    /// Whether the CA of these keys is at a later stage than that of others of the same cluster.
    pub fn has_later_ca(&self, other: &Self) -> bool {
        self.progress() > other.progress()
    }

    /// Since when the CA that signs holds, how many were prepared in vain, and whether older ones, none, or newer ones are trusted besides: the begin of its
    /// certificate is what two servers agree on.
    fn progress(&self) -> (i64, u64, u8) {
        let begins: Vec<i64> = self.trusted_cas().iter().map(|ca| ca.info.not_before).collect();
        let signer = begins.first().copied().unwrap_or_default();
        let besides = match (begins.iter().any(|one| *one > signer), begins.len()) {
            (true, _) => 2,
            (false, 0 | 1) => 1,
            (false, _) => 0,
        };
        (signer, self.cancelled(), besides)
    }

    /// Writes the files of the CA into a directory that has those of an earlier stage. Whenever it is interrupted, the key belongs to
    /// a certificate that is there.
    pub fn write_ca(&self, dir: &Path) -> Result<(), RotationError> {
        let before = std::fs::read_to_string(dir.join("ca.crt")).unwrap_or_default();
        let mut both = bundle::split(&self.text("ca.crt"));
        both.extend(
            bundle::split(&before).into_iter().filter(|old| !self.text("ca.crt").contains(old.trim_end())),
        );
        write_private(&dir.join("ca.crt"), both.concat().as_bytes())?;
        for name in [CA_CROSS, "ca.key", CA_NEXT_KEY, CA_CANCELLED] {
            let path = dir.join(name);
            match self.file(name) {
                Some(contents) => write_private(&path, contents)?,
                None => match std::fs::remove_file(&path) {
                    Err(source) if source.kind() != ErrorKind::NotFound => {
                        return Err(PkiError::File { path, source }.into());
                    }
                    _ => {}
                },
            }
        }
        Ok(write_private(&dir.join("ca.crt"), self.text("ca.crt").as_bytes())?)
    }

    /// The key of the new CA. None if it signs already, because a switch was interrupted, or if its certificate is not there, because
    /// the files were read while it was prepared.
    fn next_key(&self) -> Option<String> {
        let next = self.file(CA_NEXT_KEY).filter(|next| Some(*next) != self.file("ca.key"))?;
        let text = String::from_utf8_lossy(next).into_owned();
        let key = rcgen::KeyPair::from_pem(&text).ok()?;
        let known = bundle::split(&self.text("ca.crt"));
        known.iter().any(|pem| bundle::has_key(pem, key.public_key_raw())).then_some(text)
    }

    fn set(&mut self, name: &str, contents: String) {
        self.0.insert(name.to_owned(), contents.into_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::cluster;
    use super::*;
    use crate::Pki;
    use crate::authority::Profile;
    use std::time::Duration;

    #[test]
    fn a_ca_is_replaced_in_three_steps_and_each_is_later_than_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let settled = cluster(dir.path());
        let old = settled.ca_hash();
        let prepared = settled.clone().prepare("coracle-ca-2").unwrap();
        assert_eq!((prepared.stage(), prepared.ca_hash()), (Stage::Prepared, old.clone()));
        let new = prepared.ca_hashes()[1].clone();
        let switched = prepared.clone().switch().unwrap();
        assert_eq!(
            (switched.stage(), switched.ca_hashes()),
            (Stage::Switched, vec![new.clone(), old.clone()])
        );
        let finished = switched.clone().finish().unwrap();
        assert_eq!((finished.stage(), finished.ca_hashes()), (Stage::Settled, vec![new]));
        let again = finished.clone().prepare("coracle-ca-3").unwrap();
        // What was prepared is cancelled, and another one made.
        let cancelled = again.clone().cancel().unwrap();
        assert_eq!((cancelled.stage(), cancelled.ca_hashes()), (Stage::Settled, finished.ca_hashes()));
        let once_more = cancelled.clone().prepare("coracle-ca-4").unwrap();
        let in_vain = once_more.clone().cancel().unwrap();
        let order = [settled, prepared, switched, finished, again, cancelled, once_more, in_vain];
        for (earlier, one) in order.iter().enumerate() {
            for (later, other) in order.iter().enumerate() {
                assert_eq!(other.has_later_ca(one), later > earlier, "{earlier} {later}");
            }
        }
        // Files that were read while it was prepared.
        let mut torn = order[0].clone();
        torn.0.insert(CA_NEXT_KEY.to_owned(), order[1].file(CA_NEXT_KEY).unwrap().to_vec());
        assert_eq!(torn.stage(), Stage::Settled);
        // No step is made twice or left out.
        let [settled, prepared, switched, ..] = order;
        for refused in [
            settled.clone().switch(),
            settled.clone().cancel(),
            settled.finish(),
            prepared.clone().prepare("x"),
            prepared.finish(),
            switched.clone().prepare("x"),
            switched.clone().cancel(),
            switched.switch(),
        ] {
            assert!(matches!(refused, Err(RotationError::Stage(_))));
        }
    }

    #[test]
    fn files_of_every_stage_follow_those_of_any_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let settled = cluster(dir.path());
        let prepared = settled.clone().prepare("coracle-ca-2").unwrap();
        let switched = prepared.clone().switch().unwrap();
        let finished = switched.clone().finish().unwrap();
        let cancelled = prepared.clone().cancel().unwrap();
        let stages = [settled, prepared, cancelled, switched, finished];
        for from in 0..stages.len() {
            for to in &stages[from..] {
                stages[from].write_ca(dir.path()).unwrap();
                assert_eq!(ClusterKeys::collect(dir.path()).unwrap(), stages[from]);
                to.write_ca(dir.path()).unwrap();
                assert_eq!(ClusterKeys::collect(dir.path()).unwrap(), *to);
            }
        }
    }

    #[test]
    fn the_key_tells_who_signs_when_a_switch_was_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(dir.path(), &["localhost".to_owned()], Duration::from_secs(3600)).unwrap();
        let prepared = ClusterKeys::collect(dir.path()).unwrap().prepare("coracle-ca-2").unwrap();
        prepared.write_ca(dir.path()).unwrap();
        assert!(pki.reload_authority().unwrap() && !pki.reload_authority().unwrap());
        assert_eq!(pki.authority().hash(), prepared.ca_hash());
        let switched = prepared.clone().switch().unwrap();
        std::fs::write(dir.path().join("ca.key"), switched.file("ca.key").unwrap()).unwrap();
        let between = ClusterKeys::collect(dir.path()).unwrap();
        assert_eq!((between.ca_hash(), between.stage()), (switched.ca_hash(), Stage::Switched));
        assert!(pki.reload_authority().unwrap());
        assert_eq!(pki.authority().hash(), switched.ca_hash());
        // Certificates are of the CA that signs, and name it.
        let signed = pki.renewed().unwrap().0;
        assert_ne!(signed.certificate, pki.serving.certificate);
        let issuer = |pem: &str| bundle::issuer_of(pem.as_bytes(), &pki.authority().certificate);
        assert_eq!(issuer(&signed.certificate), Some(switched.ca_hash()));
        assert_eq!(issuer(&pki.serving.certificate), Some(prepared.ca_hash()));
        let stranger = tempfile::tempdir().unwrap();
        let stranger = Authority::ensure(stranger.path(), "ca", "coracle-ca").unwrap();
        assert_eq!(issuer(&stranger.sign(&Profile::client("c", &[])).unwrap().certificate), None);
        // A key of somebody else is no CA.
        std::fs::write(dir.path().join("ca.key"), pki.admin.key.as_bytes()).unwrap();
        assert!(matches!(ClusterKeys::collect(dir.path()), Err(ClusterKeysError::OtherKey)));
        assert!(matches!(pki.reload_authority(), Err(PkiError::OtherKey(_))));
    }

    #[test]
    fn who_trusts_only_the_old_ca_follows_the_chain_of_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let settled = cluster(dir.path());
        let old = settled.authority().unwrap().certificate;
        let switched = settled.prepare("coracle-ca-2").unwrap().switch().unwrap();
        let authority = switched.authority().unwrap();
        let cross = authority.cross();
        assert_eq!(bundle::issuer_of(cross.as_bytes(), &old), Authority::hash_of(&old));
        assert_eq!(Authority::hash_of(cross), Some(switched.ca_hash()), "it is the new one");
        let chain = [switched.ca_hash(), Authority::hash_of(&old).unwrap()];
        assert_eq!(Authority::hashes_of(&authority.chain()), chain);
        assert!(!authority.chain().contains(&bundle::split(&authority.certificate)[0]), "no second root");
        assert!(switched.finish().unwrap().authority().unwrap().cross().is_empty());
    }
}
