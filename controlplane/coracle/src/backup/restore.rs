//! `coracle restore`.

use super::args::{IdentityArgs, OutputArgs, S3Args};
use crate::datastore_args::DatastoreArgs;
use anyhow::Context;
use clap::Args;
use coracle_backup::files::ENCRYPTION;
use coracle_backup::open::Review;
use coracle_backup::restore::{Restore, Restored, restore};
use coracle_backup::target::Place;
use coracle_store::Revision;
use coracle_store::load::RESTORE_BUMP;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Options of `coracle restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// A file, or s3://bucket/key.
    backup: String,
    /// The new data directory. It must not have keys or a store.
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
    let datastore = datastore.resolve().context("--datastore")?;
    let file = place.fetch(&s3.options()).await?;
    let what = Restore { file, identities, data_dir: &data_dir, datastore: &datastore, bump };
    let found = restore(what).await.with_context(|| format!("{backup}: nothing was restored"))?;
    output.print(&text(&found, &data_dir)?, &as_json(&found, &data_dir))
}

fn text(found: &Restored, data_dir: &Path) -> Result<String, std::fmt::Error> {
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
    if let Some(path) = encryption(found, data_dir) {
        writeln!(
            text,
            "values are encrypted: start the server with --encryption-provider-config {}",
            path.display()
        )?;
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
        "revokedNodes": review.revoked_nodes,
    })
}
