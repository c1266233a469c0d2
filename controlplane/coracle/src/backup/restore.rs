//! `coracle restore`.

use super::args::{IdentityArgs, OutputArgs, S3Args};
use crate::datastore_args::{DatastoreArgs, EtcdPorts};
use crate::etcd_member::{MemberConfig, Seed};
use anyhow::Context;
use clap::Args;
use coracle_backup::files::ENCRYPTION;
use coracle_backup::open::Review;
use coracle_backup::restore::{Restore, Restored, Staged, restore};
use coracle_backup::target::Place;
use coracle_store::load::RESTORE_BUMP;
use coracle_store::{Datastore, Revision};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Options of `coracle restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// A file, or s3://bucket/key.
    backup: String,
    /// The new data directory. It must not have keys, a store or a member of etcd.
    #[arg(long, env = "CORACLE_DATA_DIR")]
    data_dir: PathBuf,
    /// Revisions to skip: more than the cluster has written since the backup. Clients that saw them list again.
    #[arg(long, default_value_t = RESTORE_BUMP)]
    revision_bump: Revision,
    #[command(flatten)]
    identities: IdentityArgs,
    /// The store of the restored cluster.
    #[command(flatten, next_help_heading = "Datastore")]
    datastore: DatastoreArgs,
    /// How S3 is reached.
    #[command(flatten, next_help_heading = "S3")]
    s3: S3Args,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs `coracle restore`.
pub async fn run(args: RestoreArgs) -> anyhow::Result<()> {
    let RestoreArgs { backup, data_dir, revision_bump: bump, identities, datastore, s3, output } = args;
    let (place, identities): (Place, _) = (backup.parse()?, identities.read()?);
    let (ports, datastore) = (datastore.ports(), datastore.resolve().context("--datastore")?);
    let file = place.fetch(&s3.options()).await?;
    let what = Restore { file, identities, data_dir: &data_dir, datastore: &datastore, bump };
    let restored = match datastore {
        Datastore::ManagedEtcd => into_member(what, ports).await,
        _ => restore(what).await.map_err(anyhow::Error::from),
    };
    let found = restored.with_context(|| format!("{backup}: nothing was restored"))?;
    let mut said = text(&found, &data_dir, datastore.is_shared())?;
    if datastore == Datastore::ManagedEtcd {
        writeln!(
            said,
            "\nthis is the only member of a new etcd: start its server with --datastore etcd --advertise ADDRESS, then let the \
             other servers join with empty data directories (--join, --token of `coracle token create --server`)"
        )?;
    }
    output.print(&said, &as_json(&found, &data_dir))
}

/// Restores into the first member of a new etcd, which the server of the data directory runs from then on.
async fn into_member(what: Restore<'_>, ports: EtcdPorts) -> anyhow::Result<Restored> {
    let Restore { file, identities, data_dir, bump, .. } = what;
    let staged = Staged::new(file, identities, data_dir).await?;
    // The server that runs it says where it is reached.
    let member = MemberConfig {
        pki_dir: staged.keys().to_owned(),
        client_port: ports.client,
        peer_port: ports.peer,
        ..MemberConfig::new(data_dir, "127.0.0.1")
    };
    let seed = Seed::start(&member).await.context("--datastore etcd")?;
    match staged.load(&Datastore::Etcd(seed.options().clone()), bump).await {
        Ok(store) => {
            let seeded = seed.stop().await;
            let restored = staged.finish(store)?;
            seeded.keep()?;
            Ok(restored)
        }
        Err(error) => {
            seed.abandon().await;
            Err(error.into())
        }
    }
}

fn text(found: &Restored, data_dir: &Path, shared: bool) -> Result<String, std::fmt::Error> {
    let (backup, mut text) = (&found.backup, String::new());
    let header = &backup.header;
    writeln!(text, "restored {} keys of {}, revision {}", found.store.keys, header.time, header.revision)?;
    writeln!(
        text,
        "the store continues after revision {}; watches of before list again",
        found.store.revision
    )?;
    writeln!(text, "cluster CA {}", header.cluster.ca_hash)?;
    writeln!(
        text,
        "keys of the cluster are in {}: {}",
        data_dir.join("pki").display(),
        backup.counts.files.join(" ")
    )?;
    match encryption(found, data_dir).map(|path| path.display().to_string()) {
        Some(path) if shared => writeln!(text, "values are encrypted: the server uses the keys in {path}")?,
        Some(path) => {
            writeln!(
                text,
                "values are encrypted: start the server with --encryption-provider-config {path}"
            )?;
        }
        None => {}
    }
    writeln!(text, "\nlook at what has changed since {}; the backup does not know it:", header.time)?;
    review(&backup.review, &mut text)?;
    Ok(text)
}

fn review(review: &Review, text: &mut String) -> std::fmt::Result {
    match review.tokens.len() {
        0 => writeln!(text, "- bootstrap tokens: the backup has none")?,
        _ => writeln!(
            text,
            "- bootstrap tokens that are valid again, revoked or not: coracle token revoke ID"
        )?,
    }
    for (id, expires) in &review.tokens {
        let until = expires.as_deref().map_or_else(String::new, |time| format!(" until {time}"));
        writeln!(text, "    {id}{until}")?;
    }
    if review.encrypted_tokens > 0 {
        writeln!(
            text,
            "    {} of them are encrypted: when they expire is not known",
            review.encrypted_tokens
        )?;
    }
    match review.server_tokens.len() {
        0 => writeln!(text, "- tokens that servers join with: the backup has none")?,
        _ => writeln!(
            text,
            "- tokens that servers join with and get the keys of the cluster, valid again: coracle token delete ID"
        )?,
    }
    for (id, expires) in &review.server_tokens {
        let until = expires.as_deref().map_or_else(String::new, |time| format!(" until {time}"));
        writeln!(text, "    {id}{until}")?;
    }
    match &review.revoked_nodes {
        Some(nodes) if nodes.is_empty() => writeln!(text, "- revoked nodes: the backup has none")?,
        Some(nodes) => {
            let names: Vec<&str> = nodes.keys().map(String::as_str).collect();
            writeln!(text, "- nodes that stay revoked: {}", names.join(" "))?;
        }
        None => writeln!(
            text,
            "- revoked nodes: the list is encrypted, see configmap kube-system/coracle-revoked-nodes"
        )?,
    }
    writeln!(text, "  nodes that were revoked since are not: coracle revoke-node NODE")?;
    writeln!(
        text,
        "- certificates and keys: if the cluster's CA was replaced since, the old one is in force again"
    )?;
    writeln!(text, "- tokens of service accounts, roles and bindings that were removed since are valid again")
}

fn encryption(found: &Restored, data_dir: &Path) -> Option<PathBuf> {
    let has = found.backup.counts.files.iter().any(|name| name == ENCRYPTION);
    has.then(|| data_dir.join("pki").join(ENCRYPTION))
}

fn as_json(found: &Restored, data_dir: &Path) -> Value {
    let review = &found.backup.review;
    json!({
        "dataDir": data_dir,
        "backup": found.backup.header,
        "keys": found.store.keys,
        "revision": found.store.revision,
        "files": found.backup.counts.files,
        "encryptionProviderConfig": encryption(found, data_dir),
        "bootstrapTokens": review.tokens,
        "serverTokens": review.server_tokens,
        "revokedNodes": review.revoked_nodes,
    })
}
