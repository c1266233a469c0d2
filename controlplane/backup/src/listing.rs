//! All backups at a place: those with names of ours, and those that somebody has given another name. What the names do not say is
//! read from the beginnings of the files.

use crate::age::{Decryptor, INTRO, Identity};
use crate::format::{FormatError, Header, MAGIC, Reader};
use crate::name::{Name, cluster_of};
use crate::s3::{S3, S3Location, S3Options};
use crate::target::{Place, PlaceError, prefix};
use coracle_store::Revision;
use jiff::Timestamp;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More files than anybody keeps.
const MAX_FILES: usize = 100_000;
/// Objects of a bucket with other names that are looked into.
const MAX_LOOKS: usize = 1000;
/// As many bytes have the header, also of a file that is encrypted for many.
const BEGINNING: u64 = 256 << 10;

/// A backup at a place. What is not known of one that is encrypted, or that a newer program has made, is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Where it is.
    pub place: Place,
    /// Its size.
    pub size: u64,
    /// The beginning of the hash of the cluster CA.
    pub cluster: Option<String>,
    /// When it was made; if that is not known, when it was written to its place.
    pub time: Option<Timestamp>,
    /// The revision of the store.
    pub revision: Option<Revision>,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Whether somebody has named it. Such a backup is never removed by age.
    pub named: bool,
}

/// A file that may be a backup.
struct Found {
    place: Place,
    size: u64,
    modified: Option<Timestamp>,
}

impl Found {
    fn with_name(self, name: Name) -> Listed {
        Listed {
            place: self.place,
            size: self.size,
            cluster: Some(name.cluster),
            time: Some(name.time),
            revision: Some(name.revision),
            encrypted: name.encrypted,
            named: false,
        }
    }

    /// `None` if it does not begin like a backup.
    fn looked_into(self, beginning: &[u8], identities: &[Identity]) -> Option<Listed> {
        let encrypted = beginning.starts_with(INTRO);
        let header = read(beginning, encrypted, identities)?;
        Some(Listed {
            place: self.place,
            size: self.size,
            cluster: header.as_ref().map(|header| cluster_of(&header.cluster.ca_hash)),
            time: header.as_ref().map(|header| header.time).or(self.modified),
            revision: header.map(|header| header.revision),
            encrypted,
            named: true,
        })
    }
}

/// The header of what begins so: `None` if it is no backup, `Some(None)` if it is one, or may be one, that cannot be read.
fn read(beginning: &[u8], encrypted: bool, identities: &[Identity]) -> Option<Option<Header>> {
    if !encrypted {
        return beginning.starts_with(&MAGIC).then(|| header(beginning).unwrap_or_default());
    }
    match Decryptor::open(beginning, identities) {
        Ok(plain) => match header(plain) {
            // Something else that was encrypted for the same people.
            Err(FormatError::NotABackup) => None,
            read => Some(read.unwrap_or_default()),
        },
        Err(_) => Some(None),
    }
}

fn header(source: impl Read) -> Result<Option<Header>, FormatError> {
    Ok(Some(Reader::open(source)?.header().clone()))
}

/// The backups that are directly at the place, oldest first. `identities` decrypt the beginnings of those with other names.
pub async fn list(
    place: &Place,
    options: &S3Options,
    identities: &[Identity],
) -> Result<Vec<Listed>, PlaceError> {
    let mut found = match place {
        Place::Path(dir) => {
            let (dir, identities) = (dir.clone(), identities.to_vec());
            tokio::task::spawn_blocking(move || in_directory(&dir, &identities)).await??
        }
        Place::S3(place) => in_bucket(place, options, identities).await?,
    };
    found.sort_by_key(|one| (one.time, one.revision));
    Ok(found)
}

fn in_directory(dir: &Path, identities: &[Identity]) -> Result<Vec<Listed>, PlaceError> {
    let failed = |error| PlaceError::File(dir.into(), error);
    let mut listed = Vec::new();
    for (count, entry) in std::fs::read_dir(dir).map_err(failed)?.enumerate() {
        let entry = entry.map_err(failed)?;
        if count > MAX_FILES {
            return Err(PlaceError::TooMany(dir.into()));
        }
        let metadata = entry.metadata().map_err(failed)?;
        let file_name = entry.file_name();
        // What begins with a dot is being written.
        if !metadata.is_file() || file_name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let modified = metadata.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
        let found = Found { place: Place::Path(entry.path()), size: metadata.len(), modified };
        if let Some(name) = file_name.to_str().and_then(Name::parse) {
            listed.push(found.with_name(name));
            continue;
        }
        // A file that cannot be read is somebody else's.
        let mut beginning = Vec::new();
        let read = File::open(entry.path()).and_then(|file| file.take(BEGINNING).read_to_end(&mut beginning));
        if read.is_ok() {
            listed.extend(found.looked_into(&beginning, identities));
        }
    }
    Ok(listed)
}

async fn in_bucket(
    place: &S3Location,
    options: &S3Options,
    identities: &[Identity],
) -> Result<Vec<Listed>, PlaceError> {
    let (s3, within) = (S3::new(options)?, S3Location { path: prefix(&place.path), ..place.clone() });
    let (mut listed, mut looks) = (Vec::new(), 0);
    for object in s3.list(&within).await? {
        let Some(name) = object.location.path.strip_prefix(&within.path).map(str::to_owned) else { continue };
        let found =
            Found { place: Place::S3(object.location.clone()), size: object.size, modified: object.modified };
        if let Some(name) = Name::parse(&name) {
            listed.push(found.with_name(name));
            continue;
        }
        if name.is_empty() || name.contains('/') {
            continue;
        }
        looks += 1;
        if looks > MAX_LOOKS {
            continue;
        }
        let beginning = s3.beginning(&object.location, BEGINNING).await?;
        listed.extend(found.looked_into(&beginning, identities));
    }
    if looks > MAX_LOOKS {
        let skipped = looks - MAX_LOOKS;
        tracing::warn!(place = %within, skipped, "objects with other names than backups have were not looked into");
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::age::Encryptor;
    use crate::format::{Cluster, Encoder};

    const OURS: &str = "coracle-0123456789ab-20200101T000000Z-7.backup";

    /// The bytes of a backup, of which only the beginning counts here.
    fn backup(time: &str, revision: Revision) -> Vec<u8> {
        let header = Header {
            made_by: "coracle 1".to_owned(),
            time: time.parse().unwrap(),
            revision,
            datastore: "etcd".to_owned(),
            cluster: Cluster { ca_hash: format!("sha256:{}", "0f".repeat(32)), uid: String::new() },
        };
        Encoder::begin(&header).unwrap().1.to_vec()
    }

    fn encrypted(plain: &[u8], identity: &Identity) -> Vec<u8> {
        let (mut encryptor, mut bytes) = Encryptor::new(&[identity.recipient()]).unwrap();
        encryptor.push(plain, &mut bytes);
        encryptor.finish(&mut bytes);
        bytes
    }

    #[tokio::test]
    async fn backups_with_other_names_are_listed_with_what_they_begin_with() {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::X25519([5; 32]);
        let plain = backup("2020-02-01T00:00:00Z", 20);
        let mut newer = plain.clone();
        newer[MAGIC.len() + 3] = 9;
        for (name, bytes) in [
            (OURS, b"x".as_slice()),
            ("before-etcd", plain.as_slice()),
            ("secret.age", encrypted(&backup("2020-03-01T00:00:00Z", 30), &identity).as_slice()),
            ("letter.age", encrypted(b"Dear Ann", &identity).as_slice()),
            ("newer", newer.as_slice()),
            (".coracle-backup-x.partial", plain.as_slice()),
            ("notes", b"CORACLE BACKUP of Monday".as_slice()),
            ("empty", b"".as_slice()),
        ] {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        std::fs::create_dir(dir.path().join("other")).unwrap();
        let found = async |identities: &[Identity]| {
            let all = list(&Place::Path(dir.path().into()), &S3Options::default(), identities).await.unwrap();
            let one = |one: Listed| {
                let Place::Path(path) = &one.place else { panic!("{one:?}") };
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                assert_eq!(one.size, path.metadata().unwrap().len());
                assert_eq!(one.named, name != OURS, "{name}");
                assert!(one.time.is_some(), "{name}");
                (name, one.revision, one.encrypted)
            };
            all.into_iter().map(one).collect::<Vec<_>>()
        };
        let row = |name: &str, revision, encrypted| (name.to_owned(), revision, encrypted);
        let known = found(&[identity]).await;
        assert_eq!(
            known[..3],
            [
                row(OURS, Some(7), false),
                row("before-etcd", Some(20), false),
                row("secret.age", Some(30), true)
            ]
        );
        // By the time at which it was written.
        assert_eq!(known[3..], [row("newer", None, false)]);
        let mut unknown = found(&[]).await;
        unknown.sort();
        let names: Vec<_> = unknown.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["before-etcd", OURS, "letter.age", "newer", "secret.age"]);
        assert_eq!(unknown[4], row("secret.age", None, true));
    }

    #[tokio::test]
    async fn a_place_that_is_not_there_is_an_error() {
        let missing = Place::Path("/nonexistent/backups".into());
        assert!(matches!(list(&missing, &S3Options::default(), &[]).await, Err(PlaceError::File(..))));
    }
}
