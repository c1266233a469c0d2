//! Which credentials have pulled the images on this node, kept across restarts of the agent.
//!
//! ```text
//! pulled/<hash of the image id>    who pulled it, by repository
//! pulling/<hash of the name>       a pull in progress, or one whose result is unknown
//! ```
//!
//! An image with neither was not pulled by a pod. An unreadable record admits no pod.

use coracle_cli::causes;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use coracle_proto::cri;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::pod::pull_secret::PullSecret;
use coracle_engine::image::reference;

const PULLED: &str = "pulled";
const PULLING: &str = "pulling";
/// Maximum number of repositories per image and of secrets per repository. Pods with others pull again.
const MAX_REPOSITORIES: usize = 16;
const MAX_SECRETS: usize = 100;
/// The longest file that is read.
const MAX_RECORD: u64 = 4 << 20;
/// Newer records are kept even if the image is not in the list, which may be older.
const RECENT: Duration = Duration::from_secs(60);
/// How long a cancelled pull may still complete in the runtime.
const GIVEN_UP: Duration = Duration::from_secs(600);

/// A failed operation on a record.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct RecordError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl RecordError {
    fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| RecordError { action, path, source }
    }
}

/// Who pulled an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Pulled {
    /// Its id.
    image: String,
    /// The one that was pulled last is the last.
    repositories: Vec<Access>,
}

/// Who pulled an image from one repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Access {
    repository: String,
    /// It was pulled without credentials of a pod.
    everyone: bool,
    /// The last that pulled it is the last.
    secrets: Vec<PullSecret>,
}

impl Pulled {
    /// Adds a secret that pulled the image; `None` for an anonymous pull.
    fn add(&mut self, repository: &str, by: Option<&PullSecret>) {
        let known = self.repositories.iter().position(|access| access.repository == repository);
        let mut access = match known {
            Some(at) => self.repositories.remove(at),
            None => Access { repository: repository.to_owned(), ..Access::default() },
        };
        match by {
            None => access = Access { everyone: true, secrets: Vec::new(), ..access },
            Some(_) if access.everyone => {}
            Some(by) => {
                access.secrets.retain(|secret| !secret.is_same_object(by));
                access.secrets.push(by.clone());
                let excess = access.secrets.len().saturating_sub(MAX_SECRETS);
                access.secrets.drain(..excess);
            }
        }
        self.repositories.push(access);
        let excess = self.repositories.len().saturating_sub(MAX_REPOSITORIES);
        self.repositories.drain(..excess);
    }

    /// A secret that pulled the image counts after its content changed, and so do the same credentials elsewhere.
    fn admits<'a>(&self, repository: &str, mut secrets: impl Iterator<Item = &'a PullSecret>) -> bool {
        let Some(access) = self.repositories.iter().find(|access| access.repository == repository) else {
            return false;
        };
        let has_pulled =
            |by: &PullSecret| access.secrets.iter().any(|s| s.hash == by.hash || s.is_same_object(by));
        access.everyone || secrets.any(has_pulled)
    }
}

/// The records of this node.
#[derive(Debug)]
pub struct PullRecords {
    dir: PathBuf,
    /// Held while a file is read to be changed.
    lock: Mutex<()>,
}

impl PullRecords {
    /// Records in a directory that need not be there yet.
    pub fn new(dir: PathBuf) -> Self {
        PullRecords { dir, lock: Mutex::new(()) }
    }

    /// Before a pull: until [`PullRecords::end`], the image of this name is one that a pod pulled. Whether that is new.
    pub fn begin(&self, name: &str) -> Result<bool, RecordError> {
        let _lock = self.lock.lock();
        let path = self.path(PULLING, name);
        let is_new = !path.exists();
        write(&path, name.as_bytes())?;
        Ok(is_new)
    }

    /// Ends a pull that failed, or whose image is recorded.
    pub fn end(&self, name: &str) {
        remove(&self.path(PULLING, name));
    }

    /// An image was pulled with a secret, or without any.
    pub fn add(&self, id: &str, repository: &str, by: Option<&PullSecret>) -> Result<(), RecordError> {
        let _lock = self.lock.lock();
        let known = self.pulled(id).unwrap_or_default();
        let mut pulled = known.unwrap_or_else(|| Pulled { image: id.to_owned(), ..Pulled::default() });
        pulled.add(repository, by);
        self.write_pulled(&pulled)
    }

    /// Whether one of these secrets has pulled an image from a repository, or any pod may use it.
    pub fn admits<'a>(
        &self,
        id: &str,
        repository: &str,
        secrets: impl Iterator<Item = &'a PullSecret>,
    ) -> bool {
        self.pulled(id).ok().flatten().is_some_and(|pulled| pulled.admits(repository, secrets))
    }

    /// Whether a pod pulled an image with these names, or may just have done so.
    pub fn was_pulled(&self, id: &str, names: &[String]) -> bool {
        if !matches!(self.pulled(id), Ok(None)) {
            return true;
        }
        let Ok(under_way) = self.files(PULLING) else { return true };
        under_way.iter().any(|(path, _)| match read(path) {
            // Images get their names after they become visible.
            Ok(Some(name)) => names.is_empty() || is_named(names, &String::from_utf8_lossy(&name)),
            Ok(None) => false,
            Err(_) => true,
        })
    }

    /// Forgets images that are gone, and settles pulls that were given up long ago. `images` were listed at a time;
    /// `is_under_way` says whether somebody still waits for a pull.
    pub fn settle(&self, images: &[cri::Image], listed: SystemTime, is_under_way: impl Fn(&str) -> bool) {
        let _lock = self.lock.lock();
        let age = |at: SystemTime| listed.duration_since(at).unwrap_or_default();
        let here: BTreeSet<PathBuf> = images.iter().map(|image| self.path(PULLED, &image.id)).collect();
        for (path, at) in self.files(PULLED).unwrap_or_default() {
            if age(at) > RECENT && !here.contains(&path) {
                remove(&path);
            }
        }
        for (path, at) in self.files(PULLING).unwrap_or_default() {
            let Ok(Some(name)) = read(&path) else { continue };
            let name = String::from_utf8_lossy(&name);
            if age(at) <= GIVEN_UP || is_under_way(&name) {
                continue;
            }
            match self.keep_from_everyone(images, &name) {
                Ok(()) => remove(&path),
                Err(error) => {
                    tracing::warn!(image = %name, error = %causes::chain(&error), "stale image pull not resolved, will retry")
                }
            }
        }
    }

    /// Records an image with unknown credentials, so that every pod has to pull it.
    fn keep_from_everyone(&self, images: &[cri::Image], name: &str) -> Result<(), RecordError> {
        for image in images {
            let names: Vec<String> = image.repo_tags.iter().chain(&image.repo_digests).cloned().collect();
            if is_named(&names, name) && matches!(self.pulled(&image.id), Ok(None)) {
                self.write_pulled(&Pulled { image: image.id.clone(), ..Pulled::default() })?;
            }
        }
        Ok(())
    }

    /// Files are named by hash: ids and names have characters that files must not have.
    fn path(&self, kind: &str, text: &str) -> PathBuf {
        let hash: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(kind).join(hash)
    }

    fn pulled(&self, id: &str) -> Result<Option<Pulled>, RecordError> {
        let path = self.path(PULLED, id);
        let Some(bytes) = read(&path)? else { return Ok(None) };
        let pulled: Pulled =
            serde_json::from_slice(&bytes).map_err(|e| RecordError::new("reading", &path)(e.into()))?;
        Ok(Some(pulled))
    }

    fn write_pulled(&self, pulled: &Pulled) -> Result<(), RecordError> {
        let path = self.path(PULLED, &pulled.image);
        let bytes = serde_json::to_vec(pulled).map_err(|e| RecordError::new("writing", &path)(e.into()))?;
        write(&path, &bytes)
    }

    /// Files of a kind with their times.
    fn files(&self, kind: &str) -> io::Result<Vec<(PathBuf, SystemTime)>> {
        let listing = match fs::read_dir(self.dir.join(kind)) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in listing {
            let entry = entry?;
            // One that went meanwhile is no failure.
            if !entry.file_name().as_encoded_bytes().starts_with(b".")
                && let Ok(about) = entry.metadata()
            {
                files.push((entry.path(), about.modified()?));
            }
        }
        Ok(files)
    }
}

/// Whether an image with these names, as runtimes tell them, is the one that a pod calls `name`.
fn is_named(names: &[String], name: &str) -> bool {
    let whole = reference::parse(name).ok().and_then(|image| match image.digest() {
        Some(digest) => Some(reference::digest_name(&image, digest)),
        None => reference::tag_name(&image),
    });
    names.iter().any(|known| known == name || whole.as_ref() == Some(known))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, RecordError> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RecordError::new("opening", path)(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_RECORD).read_to_end(&mut bytes).map_err(RecordError::new("reading", path))?;
    Ok(Some(bytes))
}

/// The old or the new content is there, also after a power cut. The caller holds the lock.
fn write(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let temporary = dir.join(".new");
    let write = || -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let mut file =
            fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        fs::File::open(dir)?.sync_all()
    };
    write().map_err(RecordError::new("writing", path))
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), error = %causes::chain(&error), "record of an image pull not removed");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const REPOSITORY: &str = "reg.example/app";

    fn secret(namespace: &str, uid: &str, hash: &str) -> PullSecret {
        PullSecret { namespace: namespace.into(), name: "pull".into(), uid: uid.into(), hash: hash.into() }
    }

    fn records() -> (tempfile::TempDir, PullRecords) {
        let dir = tempfile::tempdir().unwrap();
        let records = PullRecords::new(dir.path().join("image-pulls"));
        (dir, records)
    }

    fn image(id: &str, tags: &[&str]) -> cri::Image {
        let repo_tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        cri::Image { id: id.into(), repo_tags, ..cri::Image::default() }
    }

    fn later(by: Duration) -> SystemTime {
        SystemTime::now() + by
    }

    #[test]
    fn who_pulled_an_image_may_use_it() {
        let (dir, records) = records();
        let owner = secret("a", "1", "x");
        let admits = |id: &str, repository: &str, secrets: &[PullSecret]| {
            // As a new agent sees it.
            PullRecords::new(dir.path().join("image-pulls")).admits(id, repository, secrets.iter())
        };
        assert!(!admits("id", REPOSITORY, std::slice::from_ref(&owner)));
        records.add("id", REPOSITORY, Some(&owner)).unwrap();
        for (by, admitted) in [
            (secret("a", "1", "x"), true),
            (secret("b", "2", "x"), true),
            (secret("a", "1", "changed"), true),
            (secret("a", "2", "made anew"), false),
            (secret("b", "1", "other"), false),
        ] {
            assert_eq!(admits("id", REPOSITORY, std::slice::from_ref(&by)), admitted, "{by:?}");
        }
        assert!(!admits("id", REPOSITORY, &[]));
        assert!(!admits("id", "reg.example/other", std::slice::from_ref(&owner)), "by another name");
        assert!(!admits("other", REPOSITORY, std::slice::from_ref(&owner)));
        records.add("id", REPOSITORY, None).unwrap();
        assert!(admits("id", REPOSITORY, &[]), "it was pulled without credentials");
        records.add("id", REPOSITORY, Some(&owner)).unwrap();
        assert!(admits("id", REPOSITORY, &[]), "and stays for everyone");
    }

    #[test]
    fn records_do_not_grow_for_ever() {
        let mut pulled = Pulled::default();
        for n in 0..300 {
            pulled.add(REPOSITORY, Some(&secret("a", &n.to_string(), &n.to_string())));
            pulled.add(&format!("reg.example/{}", n % 15), None);
        }
        let access = pulled.repositories.iter().find(|access| access.repository == REPOSITORY).unwrap();
        assert_eq!((pulled.repositories.len(), access.secrets.len()), (MAX_REPOSITORIES, MAX_SECRETS));
        assert!(pulled.admits(REPOSITORY, [&secret("a", "299", "299")].into_iter()));
        assert!(!pulled.admits(REPOSITORY, [&secret("a", "0", "0")].into_iter()));
        pulled.add("reg.example/one/more", None);
        assert_eq!(pulled.repositories.len(), MAX_REPOSITORIES);
    }

    #[test]
    fn an_image_that_comes_is_not_preloaded() {
        let (_dir, records) = records();
        let names = ["docker.io/library/app:1".to_owned()];
        assert!(!records.was_pulled("id", &names));
        assert!(records.begin("app:1").unwrap());
        assert!(!records.begin("app:1").unwrap(), "one that was given up is there already");
        assert!(records.was_pulled("id", &names));
        assert!(records.was_pulled("id", &[]), "it may get its name any moment");
        assert!(!records.was_pulled("id", &["docker.io/library/app:2".into()]));
        records.add("id", "docker.io/library/app", None).unwrap();
        records.end("app:1");
        assert!(records.was_pulled("id", &names));
        assert!(!records.was_pulled("other", &names));
    }

    #[test]
    fn what_cannot_be_read_admits_nobody() {
        let (_dir, records) = records();
        records.add("id", REPOSITORY, None).unwrap();
        fs::write(records.path(PULLED, "id"), "{").unwrap();
        assert!(records.was_pulled("id", &[]));
        assert!(!records.admits("id", REPOSITORY, std::iter::empty()));
        records.add("id", REPOSITORY, None).unwrap();
        assert!(records.admits("id", REPOSITORY, std::iter::empty()), "the next pull writes it anew");
    }

    #[test]
    fn a_record_goes_with_its_image() {
        let (_dir, records) = records();
        records.add("gone", REPOSITORY, None).unwrap();
        records.add("here", REPOSITORY, None).unwrap();
        let images = [image("here", &[])];
        records.settle(&images, SystemTime::now(), |_| false);
        assert!(records.was_pulled("gone", &[]), "the list may be older than the pull");
        records.settle(&images, later(RECENT * 2), |_| false);
        assert!(!records.was_pulled("gone", &[]));
        assert!(records.was_pulled("here", &[]));
    }

    #[test]
    fn the_image_of_a_pull_that_nobody_saw_the_end_of_is_for_nobody() {
        let (_dir, records) = records();
        let names = ["reg.example/app:1".to_owned()];
        for name in ["reg.example/app:1", "reg.example/none:1"] {
            records.begin(name).unwrap();
        }
        let images = [image("id", &["reg.example/app:1"]), image("preloaded", &["reg.example/other:1"])];
        records.settle(&images, later(GIVEN_UP * 2), |_| true);
        records.settle(&images, SystemTime::now(), |_| false);
        assert_eq!(records.files(PULLING).unwrap().len(), 2, "somebody waits for them, or did just now");
        records.settle(&images, later(GIVEN_UP * 2), |_| false);
        assert!(records.files(PULLING).unwrap().is_empty());
        assert!(records.was_pulled("id", &names) && !records.admits("id", REPOSITORY, std::iter::empty()));
        assert!(!records.was_pulled("preloaded", &["reg.example/other:1".into()]));
    }
}
