//! `coracle backup ls`, `check` and `prune`.

use super::args::{IdentityArgs, OutputArgs, S3Args, directory};
use crate::output::table;
use anyhow::Context;
use coracle_backup::listing::{self, Listed};
use coracle_backup::name::Name;
use coracle_backup::open::verify;
use coracle_backup::retention::Retention;
use coracle_backup::target::{Place, Stored};
use coracle_store::Revision;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use std::fmt::Write as _;

/// A backup as it is printed. What is not known is `null`.
#[derive(Debug, Serialize)]
struct Entry {
    location: String,
    cluster: Option<String>,
    time: Option<Timestamp>,
    revision: Option<Revision>,
    encrypted: bool,
    bytes: u64,
    /// Whether it has another name than the program gives; pruning leaves it alone.
    named: bool,
}

impl From<Listed> for Entry {
    fn from(listed: Listed) -> Self {
        let Listed { place, size: bytes, cluster, time, revision, encrypted, named } = listed;
        Self { location: place.to_string(), cluster, time, revision, encrypted, bytes, named }
    }
}

impl From<(Name, Stored)> for Entry {
    fn from((name, stored): (Name, Stored)) -> Self {
        Self {
            location: stored.place.to_string(),
            cluster: Some(name.cluster),
            time: Some(name.time),
            revision: Some(name.revision),
            encrypted: name.encrypted,
            bytes: stored.size,
            named: false,
        }
    }
}

/// The backups as a table. Times are given in seconds.
fn rows(entries: &[Entry]) -> Vec<Vec<String>> {
    let titles = ["TIME", "CLUSTER", "REVISION", "BYTES", "ENCRYPTED", "LOCATION"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    let unknown = || "-".to_owned();
    rows.extend(entries.iter().map(|one| {
        let time = one.time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        vec![
            time.unwrap_or_else(unknown),
            one.cluster.clone().unwrap_or_else(unknown),
            one.revision.map_or_else(unknown, |revision| revision.to_string()),
            one.bytes.to_string(),
            if one.encrypted { "yes" } else { "no" }.to_owned(),
            one.location.clone(),
        ]
    }));
    rows
}

/// Lists backups, by their names or their beginnings.
pub(super) async fn list(
    place: &str,
    identities: &IdentityArgs,
    s3: &S3Args,
    output: OutputArgs,
) -> anyhow::Result<()> {
    let found = listing::list(&directory(place)?, &s3.options(), &identities.read()?).await?;
    let entries: Vec<Entry> = found.into_iter().map(Entry::from).collect();
    output.print(&table(&rows(&entries)), &serde_json::to_value(&entries)?)
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
    let entries: Vec<Entry> = gone.into_iter().map(Entry::from).collect();
    output.print(&text, &serde_json::to_value(&entries)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_not_known_of_a_backup_is_said() {
        let named = Listed {
            place: Place::Path("/backup/before-etcd".into()),
            size: 5,
            cluster: None,
            time: Some("2026-01-02T03:04:05.678Z".parse().unwrap()),
            revision: None,
            encrypted: true,
            named: true,
        };
        let name = Name::parse("coracle-0123456789ab-20260101T000000Z-7.backup").unwrap();
        let stored = Stored { place: Place::Path("/backup/x".into()), size: 6 };
        let entries = [Entry::from((name, stored)), Entry::from(named)];
        let rows = rows(&entries);
        assert_eq!(rows[1], ["2026-01-01T00:00:00Z", "0123456789ab", "7", "6", "no", "/backup/x"]);
        assert_eq!(rows[2], ["2026-01-02T03:04:05Z", "-", "-", "5", "yes", "/backup/before-etcd"]);
        let json = serde_json::to_value(&entries).unwrap();
        assert_eq!((&json[1]["revision"], &json[1]["named"]), (&serde_json::Value::Null, &json!(true)));
        assert_eq!((&json[0]["revision"], &json[0]["bytes"]), (&json!(7), &json!(6)));
    }
}
