//! Encryption at rest when a server starts: the configuration of the flag's file, or on a shared store that of the cluster.

use crate::join::claim::{Claimer, ClusterEncryption};
use crate::operations::distribution::Distribution;
use crate::operations::encryption::{Encryption, read};
use crate::operations::shared_files::SharedFiles;
use anyhow::{Context as _, bail};
use coracle_client::identity_lease::NAMESPACE;
use coracle_pki::cluster_keys::{ENCRYPTION, SealingKey};
use coracle_store::Store;
use coracle_store::encryption::EncryptedStore;
use coracle_store::encryption::config::Config;
use futures::TryStreamExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FLAG: &str = "--encryption-provider-config";
/// The digest of the flag's file, beside the keys.
const SEEN: &str = "encryption.seen";

/// A store that encrypts, and how operators reach it.
pub(super) type Encrypted = (Arc<dyn Store>, Option<Arc<Encryption>>);

/// The encryption of a store that only this server uses, or whose configuration it cannot share.
pub(super) async fn of_file(path: Option<&Path>, store: Arc<dyn Store>) -> anyhow::Result<Encrypted> {
    let Some(path) = path else { return Ok((store, None)) };
    let text = read(path).context(FLAG)?;
    let encrypted = Arc::new(EncryptedStore::new(store.clone(), parse(&text, path)?));
    reencrypt(&encrypted).await?;
    let operated = Encryption::new(encrypted.clone(), store, path.to_owned(), text);
    Ok((encrypted, Some(Arc::new(operated))))
}

fn parse(text: &str, path: &Path) -> anyhow::Result<Config> {
    Config::parse(text)
        .map_err(|why| anyhow::anyhow!("{} is no EncryptionConfiguration: {why}", path.display()))
        .context(FLAG)
}

async fn reencrypt(store: &EncryptedStore) -> anyhow::Result<()> {
    let count = store.reencrypt().await.context(FLAG)?;
    if count > 0 {
        tracing::info!(count, "re-encrypted stored values");
    }
    Ok(())
}

/// Which configuration a server begins with.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// That of the cluster, which may have none.
    Cluster,
    /// The flag's file, which the cluster gets.
    File,
}

/// The flag's file is used if an operator has changed it since this server has used it, or if the cluster has no configuration.
fn choose(file: Option<&str>, cluster: Option<&str>, is_seen: bool) -> Choice {
    match (file, cluster) {
        (None, _) => Choice::Cluster,
        (Some(_), None) => Choice::File,
        (Some(file), Some(cluster)) if file == cluster || is_seen => Choice::Cluster,
        _ => Choice::File,
    }
}

/// A server that starts on a shared store.
pub(super) struct Starting<'a> {
    /// The store without encryption at rest.
    pub(super) store: Arc<dyn Store>,
    /// The directory of keys.
    pub(super) dir: &'a Path,
    /// The file of the flag.
    pub(super) flag: Option<PathBuf>,
    /// The name of this server's identity Lease.
    pub(super) name: &'a str,
}

impl Starting<'_> {
    /// Wraps the store, and publishes the keys of the cluster. Returns the key that seals them, if this server has it.
    pub(super) async fn establish(self) -> anyhow::Result<(Encrypted, Option<SealingKey>)> {
        let claimer = Claimer { store: &*self.store, dir: self.dir, encryption: None };
        claimer.check().await?;
        let given = self.flag.as_deref().map(|path| read(path).context(FLAG)).transpose()?;
        let configured = given.as_deref().map(|text| parse(text, self.path())).transpose()?;
        let files = SharedFiles {
            flag: self.flag.clone(),
            copy: self.dir.join(ENCRYPTION),
            seen: self.dir.join(SEEN),
        };
        let cluster = match claimer.encryption_of_cluster().await? {
            ClusterEncryption::Sealed => return self.alone(&claimer).await,
            // A restored cluster has it beside its keys, and publishes it with them.
            ClusterEncryption::NoCluster => files.copy.exists().then(|| read(&files.copy)).transpose()?,
            ClusterEncryption::Known(contents) => contents.map(String::from_utf8).transpose()?,
        };
        // Services are reached in another way on every machine: each server has its own file.
        if let Some(config) = configured.as_ref().filter(|config| !config.has_keys()) {
            if let Some(cluster) = &cluster {
                self.check_readable(config, Some(cluster)).await?;
            }
            return self.alone(&Claimer { encryption: Some(None), ..claimer }).await;
        }
        let is_seen = given.as_deref().is_some_and(|text| files.is_seen(text));
        let choice = choose(given.as_deref(), cluster.as_deref(), is_seen);
        let text = match choice {
            Choice::File => given.clone(),
            Choice::Cluster => cluster.clone(),
        };
        let config = text.as_deref().map(|text| parse(text, self.path())).transpose()?.unwrap_or_default();
        if choice == Choice::File {
            self.check_readable(&config, cluster.as_deref()).await?;
        }
        let encrypted = Arc::new(EncryptedStore::new(self.store.clone(), config));
        // What cannot be decrypted here is not to spread to other servers.
        encrypted.check_stored().await.context(FLAG)?;
        let Some(sealing) = claimer.publish().await? else {
            bail!("{}: the sealing key was removed meanwhile", self.dir.display());
        };
        let distribution = Distribution { store: self.store.clone(), sealing: sealing.clone() };
        if let (Choice::File, Some(text)) = (&choice, &text) {
            distribution.publish(cluster.as_deref(), text).await.context(FLAG)?;
        }
        let mut file = text.clone();
        if let Err(error) = files.keep(text.as_deref(), choice == Choice::Cluster && given != text) {
            let error = coracle_cli::causes::chain(&error);
            tracing::warn!(error, "the configuration of the cluster is used, and not that of the file");
            file = given;
        }
        reencrypt(&encrypted).await?;
        let stores = (encrypted.clone(), self.store.clone());
        let operated = Encryption::shared(stores, (text, file), files, distribution);
        Ok(((encrypted, Some(Arc::new(operated))), Some(sealing)))
    }

    /// With a file that other servers do not get.
    async fn alone(&self, claimer: &Claimer<'_>) -> anyhow::Result<(Encrypted, Option<SealingKey>)> {
        let copy = self.dir.join(ENCRYPTION);
        let path = self.flag.clone().or_else(|| copy.exists().then_some(copy));
        let encrypted = of_file(path.as_deref(), self.store.clone()).await?;
        Ok((encrypted, claimer.publish().await?))
    }

    fn path(&self) -> &Path {
        self.flag.as_deref().unwrap_or(Path::new(ENCRYPTION))
    }

    /// Fails if other servers run that could not read what this one would write.
    async fn check_readable(&self, config: &Config, cluster: Option<&str>) -> anyhow::Result<()> {
        let before =
            cluster.map(|text| parse(text, Path::new("the configuration of the cluster"))).transpose()?;
        let Some((resource, provider)) = config.unreadable_by(&before.unwrap_or_default()) else {
            return Ok(());
        };
        let others = self.other_servers().await?;
        if others.is_empty() {
            return Ok(());
        }
        bail!(
            "{FLAG} {}: the cluster has other servers ({}), which do not have {provider} for {resource}. Let it only decrypt \
             first (behind the provider that encrypts now; identity, if nothing is encrypted), then run `coracle secrets-encrypt \
             rotate`; or stop the other servers",
            self.path().display(),
            others.join(", "),
        );
    }

    /// The names of other servers that have not withdrawn. Their Leases may be encrypted, their names are not.
    async fn other_servers(&self) -> anyhow::Result<Vec<String>> {
        let leases = format!("/registry/coordination.k8s.io/leases/{NAMESPACE}/");
        let found = self.store.export(&format!("{leases}apiserver-")).await?.keys;
        let names = found.map_ok(|lease| lease.key[leases.len()..].to_owned());
        let names: Vec<String> = names.try_collect().await?;
        Ok(names.into_iter().filter(|name| name != self.name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_counts_when_an_operator_has_changed_it() {
        for (file, cluster, seen, want) in [
            (None, None, false, Choice::Cluster),
            (None, Some("c"), false, Choice::Cluster),
            (Some("f"), None, false, Choice::File),
            (Some("f"), None, true, Choice::File),
            (Some("c"), Some("c"), false, Choice::Cluster),
            // Rotated on another server while this one was down.
            (Some("f"), Some("c"), true, Choice::Cluster),
            (Some("f"), Some("c"), false, Choice::File),
        ] {
            assert_eq!(choose(file, cluster, seen), want, "{file:?} {cluster:?} {seen}");
        }
    }
}
