//! Names of backups: `coracle-CLUSTER-TIME-REVISION.backup`, and `.age` behind it if it is encrypted. Whatever has another name
//! is no backup of ours, and is never listed or removed.

use crate::format::Header;
use coracle_store::Revision;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::fmt;

const FORM: &str = "%Y%m%dT%H%M%SZ";
/// As many characters of the hash of the CA tell clusters apart.
const CLUSTER: usize = 12;

/// What the name of a backup says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The beginning of the hash of the cluster CA.
    pub cluster: String,
    /// When it was made, in seconds.
    pub time: Timestamp,
    /// The revision of the store.
    pub revision: Revision,
    /// Whether it is encrypted.
    pub encrypted: bool,
}

impl Name {
    /// The name of a new backup.
    pub fn of(header: &Header, encrypted: bool) -> Self {
        let hash = header.cluster.ca_hash.trim_start_matches("sha256:");
        Self {
            cluster: cluster_of(hash),
            time: Timestamp::from_second(header.time.as_second()).unwrap_or(header.time),
            revision: header.revision,
            encrypted,
        }
    }

    /// Reads a name; `None` if it is none of a backup.
    pub fn parse(name: &str) -> Option<Self> {
        let (name, encrypted) = match name.strip_suffix(".age") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let mut parts = name.strip_prefix("coracle-")?.strip_suffix(".backup")?.split('-');
        let (cluster, time, revision) = (parts.next()?, parts.next()?, parts.next()?);
        let hexadecimal = cluster.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if parts.next().is_some() || cluster.len() != CLUSTER || !hexadecimal {
            return None;
        }
        let time = jiff::civil::DateTime::strptime(FORM, time).ok()?;
        let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
        let revision =
            revision.bytes().all(|byte| byte.is_ascii_digit()).then(|| revision.parse().ok())??;
        Some(Self { cluster: cluster.to_owned(), time, revision, encrypted })
    }
}

/// The part of names that tells clusters apart.
pub fn cluster_of(hash: &str) -> String {
    hash.trim_start_matches("sha256:").chars().take(CLUSTER).collect()
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.time.strftime(FORM);
        write!(out, "coracle-{}-{time}-{}.backup", self.cluster, self.revision)?;
        if self.encrypted { out.write_str(".age") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_say_what_they_are_of() {
        for text in [
            "coracle-0123456789ab-20261117T143805Z-12345.backup",
            "coracle-0123456789ab-20261117T143805Z-1.backup.age",
        ] {
            let name = Name::parse(text).unwrap();
            assert_eq!(name.to_string(), text);
            assert_eq!(name.time.to_string(), "2026-11-17T14:38:05Z");
            assert_eq!(name.encrypted, text.ends_with("age"));
        }
        for text in [
            "",
            "coracle-0123456789ab-20261117T143805Z-12345.backup.gz",
            "coracle-0123456789ab-20261117T143805Z-12345.backup.partial",
            "coracle-0123456789-20261117T143805Z-12345.backup",
            "coracle-0123456789AB-20261117T143805Z-12345.backup",
            "coracle-0123456789ab-20261117T143805Z-+5.backup",
            "coracle-0123456789ab-20261317T143805Z-5.backup",
            "coracle-0123456789ab-20261117T143805Z-5-6.backup",
            "my-coracle-0123456789ab-20261117T143805Z-5.backup",
        ] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }
}
