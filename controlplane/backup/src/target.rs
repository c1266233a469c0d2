//! Places for backups: a directory, a file, or a prefix in a bucket.

use crate::name::Name;
use crate::retention::Retention;
use crate::s3::{S3, S3Error, S3Location, S3Options};
use jiff::Timestamp;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// More files than anybody keeps.
const MAX_FILES: usize = 100_000;

/// A place for backups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On this machine.
    Path(PathBuf),
    /// In a bucket.
    S3(S3Location),
}

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// S3 failed.
    #[error(transparent)]
    S3(#[from] S3Error),
    /// A file or directory cannot be used.
    #[error("{0}")]
    File(PathBuf, #[source] std::io::Error),
    /// The directory has too many files.
    #[error("{0} has too many files")]
    TooMany(PathBuf),
    /// The thread that reads has panicked.
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
}

/// A backup that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Where.
    pub place: Place,
    /// Its size.
    pub size: u64,
}

impl FromStr for Place {
    type Err = S3Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("s3:") { text.parse().map(Self::S3) } else { Ok(Self::Path(text.into())) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(out, "{}", path.display()),
            Self::S3(place) => write!(out, "{place}"),
        }
    }
}

impl Place {
    /// The backups with names of ours that are directly at the place, oldest first.
    pub async fn list(&self, options: &S3Options) -> Result<Vec<(Name, Stored)>, PlaceError> {
        let mut found = match self {
            Self::Path(dir) => list_directory(dir)?,
            Self::S3(place) => {
                let prefix = S3Location { path: prefix(&place.path), ..place.clone() };
                let objects = S3::new(options)?.list(&prefix).await?;
                let named = objects.into_iter().filter_map(|one| {
                    let name = Name::parse(one.location.path.strip_prefix(&prefix.path)?)?;
                    Some((name, Stored { place: Self::S3(one.location), size: one.size }))
                });
                named.collect()
            }
        };
        found.sort_by_key(|(name, _)| (name.time, name.revision));
        Ok(found)
    }

    /// Removes the backups that are not to be kept, of one cluster if it is named; returns those that are gone.
    pub async fn prune(
        &self,
        options: &S3Options,
        retention: Retention,
        cluster: Option<&str>,
    ) -> Result<Vec<(Name, Stored)>, PlaceError> {
        let mut all = self.list(options).await?;
        all.retain(|(name, _)| cluster.is_none_or(|cluster| name.cluster == cluster));
        let expired: Vec<_> = retention.expired(&all, Timestamp::now()).into_iter().cloned().collect();
        for (_, stored) in &expired {
            stored.place.remove(options).await?;
        }
        Ok(expired)
    }

    async fn remove(&self, options: &S3Options) -> Result<(), PlaceError> {
        match self {
            Self::Path(path) => {
                std::fs::remove_file(path).map_err(|error| PlaceError::File(path.clone(), error))
            }
            Self::S3(object) => Ok(S3::new(options)?.delete(object).await?),
        }
    }

    /// The backup at this place as a file: of S3 a copy that nobody else sees.
    pub async fn fetch(&self, options: &S3Options) -> Result<File, PlaceError> {
        match self {
            Self::Path(path) => File::open(path).map_err(|error| PlaceError::File(path.clone(), error)),
            Self::S3(object) => {
                let failed = |error| PlaceError::File(std::env::temp_dir(), error);
                let mut copy = tempfile::tempfile().map_err(failed)?;
                S3::new(options)?.get(object, &mut copy).await?;
                std::io::Seek::rewind(&mut copy).map_err(failed)?;
                Ok(copy)
            }
        }
    }
}

/// What keys at a place begin with.
pub(crate) fn prefix(path: &str) -> String {
    if path.is_empty() || path.ends_with('/') { path.to_owned() } else { format!("{path}/") }
}

fn list_directory(dir: &Path) -> Result<Vec<(Name, Stored)>, PlaceError> {
    let failed = |error| PlaceError::File(dir.into(), error);
    let mut found = Vec::new();
    for (count, entry) in std::fs::read_dir(dir).map_err(failed)?.enumerate() {
        let entry = entry.map_err(failed)?;
        if count > MAX_FILES {
            return Err(PlaceError::TooMany(dir.into()));
        }
        let Some(name) = entry.file_name().to_str().and_then(Name::parse) else { continue };
        let metadata = entry.metadata().map_err(failed)?;
        if metadata.is_file() {
            found.push((name, Stored { place: Place::Path(entry.path()), size: metadata.len() }));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn other_files_are_neither_listed_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let name = |cluster: &str, day: u32| {
            format!("coracle-{}-202601{day:02}T000000Z-{day}.backup", cluster.repeat(12))
        };
        let names: Vec<String> = [("a", 3), ("a", 1), ("a", 2), ("b", 1), ("b", 2)]
            .map(|(cluster, day)| name(cluster, day))
            .into();
        for name in names.iter().map(String::as_str).chain(["notes", "coracle-x.backup"]) {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        std::fs::create_dir(dir.path().join(name("c", 1))).unwrap();
        let (place, options) = (Place::Path(dir.path().into()), S3Options::default());
        assert_eq!(place.list(&options).await.unwrap().len(), 5);
        let retention = Retention { count: Some(1), days: None };
        let gone = place.prune(&options, retention, Some("aaaaaaaaaaaa")).await.unwrap();
        assert_eq!(gone.iter().map(|(name, _)| name.revision).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(place.prune(&options, retention, None).await.unwrap().len(), 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5);
        let missing = Place::Path(dir.path().join("missing"));
        assert!(matches!(missing.list(&options).await, Err(PlaceError::File(..))));
    }
}
