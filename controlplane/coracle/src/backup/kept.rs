//! `coracle backup ls`, `check` and `prune`.

use super::args::{IdentityArgs, OutputArgs, S3Args, directory};
use anyhow::Context;
use coracle_backup::name::Name;
use coracle_backup::open::verify;
use coracle_backup::retention::Retention;
use coracle_backup::target::{Place, Stored};
use serde_json::{Value, json};
use std::fmt::Write as _;

fn as_json(list: &[(Name, Stored)]) -> Value {
    let one = |(name, stored): &(Name, Stored)| {
        json!({
            "location": stored.place.to_string(),
            "cluster": name.cluster,
            "time": name.time,
            "revision": name.revision,
            "encrypted": name.encrypted,
            "bytes": stored.size,
        })
    };
    json!(list.iter().map(one).collect::<Vec<_>>())
}

/// Lists backups by their names.
pub(super) async fn list(place: &str, s3: &S3Args, output: OutputArgs) -> anyhow::Result<()> {
    let found = directory(place)?.list(&s3.options()).await?;
    let mut text = String::new();
    writeln!(
        text,
        "{:<21} {:<13} {:>12} {:>12} {:<9} LOCATION",
        "TIME", "CLUSTER", "REVISION", "BYTES", "ENCRYPTED"
    )?;
    for (name, stored) in &found {
        let encrypted = if name.encrypted { "yes" } else { "no" };
        let time = name.time.to_string();
        let (cluster, revision, size) = (&name.cluster, name.revision, stored.size);
        writeln!(text, "{time:<21} {cluster:<13} {revision:>12} {size:>12} {encrypted:<9} {}", stored.place)?;
    }
    output.print(&text, &as_json(&found))
}

/// Verifies a whole backup.
pub(super) async fn check(
    backup: &str,
    identities: &IdentityArgs,
    s3: &S3Args,
    output: OutputArgs,
) -> anyhow::Result<()> {
    let (place, identities): (Place, _) = (backup.parse()?, identities.read()?);
    let file = place.fetch(&s3.options()).await?;
    let verified = tokio::task::spawn_blocking(move || verify(&file, &identities)).await?;
    let found = verified.with_context(|| backup.to_owned())?;
    let header = &found.header;
    let text = format!(
        "{backup}: whole and unchanged\nmade by {} at {}, from {}\ncluster CA {}, uid {}\nrevision {}, {} keys, {} bytes, files {}\n",
        header.made_by,
        header.time,
        header.datastore,
        header.cluster.ca_hash,
        header.cluster.uid,
        header.revision,
        found.counts.keys,
        found.counts.bytes,
        found.counts.files.join(" "),
    );
    let json = json!({
        "location": backup,
        "encrypted": found.encrypted,
        "header": header,
        "counts": found.counts,
    });
    output.print(&text, &json)
}

/// Removes old backups.
pub(super) async fn prune(
    place: &str,
    (keep, keep_days): (Option<u32>, Option<u32>),
    s3: &S3Args,
    output: OutputArgs,
) -> anyhow::Result<()> {
    let retention = Retention { count: keep.map(|count| count as usize), days: keep_days };
    let gone = directory(place)?.prune(&s3.options(), retention, None).await?;
    let mut text = String::new();
    for (_, stored) in &gone {
        writeln!(text, "removed {}", stored.place)?;
    }
    if gone.is_empty() {
        writeln!(text, "nothing to remove")?;
    }
    output.print(&text, &as_json(&gone))
}
