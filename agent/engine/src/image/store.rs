//! The image store on disk.
//!
//! ```text
//! images/<hex>.json   records, named by config digest        names.json   image names → ids
//! chains/<hex>/       fs/ unpacked once per chain id, size    l/<short>    links to chains/<hex>/fs
//! configs/<hex>       config blobs, verbatim                  holds/<hex>/ one file per container
//! ingest/             downloads and unpacking under way       trash/       deletions under way
//! lock                flock: exclusive while anything here becomes visible or invisible
//! layers/<hex>/       layers of images that earlier versions recorded, by diff id
//! ```

use coracle_cli::causes;
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;

use super::super::paths::remove_tree;
use super::{
    Error, ImageRecord, ReferenceError, Result,
    files::{modified, names_in, remove_file, write_atomic},
    ingest,
    manifest::hex_of,
    reference::{self, as_id},
};

/// Images and their layers.
///
/// Methods block for at most a few file operations unless they say otherwise. Any number of processes may share a
/// directory.
#[derive(Debug, Clone)]
pub struct ImageStore {
    pub(super) root: PathBuf,
    /// Serializes pulls and unpacking of the same image or layer.
    pub(super) busy: Arc<KeyedLocks>,
}

/// Keyed locks.
#[derive(Debug, Default)]
pub(super) struct KeyedLocks {
    keys: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl KeyedLocks {
    pub(super) async fn lock(&self, key: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut keys = self.keys.lock();
            keys.retain(|_, lock| Arc::strong_count(lock) > 1);
            keys.entry(key.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }
}

pub(super) type Names = BTreeMap<String, String>;

impl ImageStore {
    /// Opens or creates a store and removes leftovers of a crash.
    pub fn open(dir: &Path) -> Result<Self> {
        for sub in ["images", "chains", "layers", "l", "configs", "holds", "ingest", "trash"] {
            let path = dir.join(sub);
            fs::create_dir_all(&path).map_err(Error::io("creating", &path))?;
        }
        // Images contain devices and setuid programs: no other local user may access them.
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(Error::io("closing", dir))?;
        let root = dir.canonicalize().map_err(Error::io("resolving", dir))?;
        let store = ImageStore { root, busy: Arc::default() };
        store.sweep()?;
        Ok(store)
    }

    /// Directory for unfinished work; old files in it are deleted.
    pub fn ingest_dir(&self) -> PathBuf {
        self.root.join("ingest")
    }

    pub(super) fn path(&self, sub: &str, name: &str) -> PathBuf {
        self.root.join(sub).join(name)
    }

    /// Takes the store's lock, held while something becomes visible or invisible.
    pub(super) fn exclusive(&self) -> Result<Flock<fs::File>> {
        let path = self.root.join("lock");
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(Error::io("opening", &path))?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| Error::io("locking", &path)(errno.into()))
    }

    /// All images, by id.
    pub fn list(&self) -> Result<Vec<ImageRecord>> {
        let names = self.names()?;
        let mut records = Vec::new();
        for hex in self.entries("images")? {
            if let Some(hex) = hex.strip_suffix(".json")
                && let Some(record) = self.record(hex, &names)?
            {
                records.push(record);
            }
        }
        Ok(records)
    }

    /// The image of a name, an id, or an id's unambiguous beginning.
    pub fn get(&self, name: &str) -> Result<ImageRecord> {
        self.find(name)?.ok_or_else(|| Error::NotFound { name: name.to_owned() })
    }

    /// As `get`, with `None` for an image that is not here.
    pub fn find(&self, name: &str) -> Result<Option<ImageRecord>> {
        let names = self.names()?;
        if let Some(hex) = as_id(name) {
            return self.record(hex, &names);
        }
        if let Ok(reference) = reference::parse(name) {
            let by_digest = reference.digest().map(|d| reference::digest_name(&reference, d));
            let wanted = by_digest.or_else(|| reference::tag_name(&reference)).unwrap_or_default();
            if let Some(id) = names.get(&wanted) {
                return self.record(hex_of(id)?, &names);
            }
        }
        let start = name.strip_prefix("sha256:").unwrap_or(name);
        if start.len() < 4 || !start.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let ids = self.entries("images")?;
        let mut fitting = ids.iter().filter(|id| id.starts_with(start));
        match (fitting.next(), fitting.next()) {
            (Some(id), None) => self.record(id.trim_end_matches(".json"), &names),
            _ => Ok(None),
        }
    }

    /// Options of an overlay mount of the image with a container's own `upper` and `work`.
    pub fn overlay_options(&self, id: &str, upper: &Path, work: &Path) -> Result<String> {
        let lower: Vec<String> = self.rootfs_layers(id)?.iter().map(|p| p.display().to_string()).collect();
        Ok(format!("lowerdir={},upperdir={},workdir={}", lower.join(":"), upper.display(), work.display()))
    }

    /// The config blob, verbatim.
    pub fn config_blob(&self, id: &str) -> Result<Vec<u8>> {
        let path = self.path("configs", hex_of(&self.get(id)?.id)?);
        fs::read(&path).map_err(Error::io("reading", &path))
    }

    /// Marks an image as used by a container until `release`; survives restarts. Fails when the image is gone.
    pub fn hold(&self, id: &str, container: &str) -> Result<()> {
        let _lock = self.exclusive()?;
        let record = self.get(id)?;
        let hex = hex_of(&record.id)?;
        let dir = self.path("holds", hex);
        let path = dir.join(container);
        fs::create_dir_all(&dir).and_then(|()| fs::write(&path, "")).map_err(Error::io("writing", &path))?;
        self.touch(hex);
        Ok(())
    }

    /// The container no longer uses the image. Idempotent.
    pub fn release(&self, id: &str, container: &str) -> Result<()> {
        let Some(hex) = as_id(id) else {
            return Err(Error::BadReference { name: id.into(), reason: ReferenceError::NotAnId });
        };
        let path = self.path("holds", hex).join(container);
        remove_file(&path)?;
        self.touch(hex);
        Ok(())
    }

    /// Drops the holds of containers for which `live` is false; called at the start of an engine.
    pub fn retain_holds(&self, live: impl Fn(&str) -> bool) -> Result<()> {
        let _lock = self.exclusive()?;
        for hex in self.entries("holds")? {
            for container in self.holders(&hex)? {
                if !live(&container) {
                    remove_file(&self.path("holds", &hex).join(container))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn holders(&self, hex: &str) -> Result<Vec<String>> {
        names_in(&self.path("holds", hex))
    }

    /// Adds a name to an image; removes it from the image that had it.
    pub fn tag(&self, id: &str, name: &str) -> Result<()> {
        let reference = reference::parse(name)?;
        let _lock = self.exclusive()?;
        let record = self.get(id)?;
        let mut names = self.names()?;
        names.insert(reference::tag_name(&reference).unwrap_or_else(|| reference.whole()), record.id);
        self.write_names(&names)
    }

    /// Exempts an image from garbage collection, or no longer.
    pub fn pin(&self, id: &str, pinned: bool) -> Result<()> {
        let _lock = self.exclusive()?;
        let record = ImageRecord { pinned, ..self.get(id)? };
        self.write_record(&record)
    }

    /// Removes an image with all its names, and the layers no other image has.
    ///
    /// An image that is not here is fine; one with containers is not touched. Layer directories are deleted in the
    /// background after they became invisible.
    pub fn remove(&self, name: &str) -> Result<()> {
        let lock = self.exclusive()?;
        let Some(record) = self.find(name)? else { return Ok(()) };
        self.remove_locked(&record)?;
        drop(lock);
        self.empty_trash();
        Ok(())
    }

    pub(super) fn remove_locked(&self, record: &ImageRecord) -> Result<()> {
        let hex = hex_of(&record.id)?;
        let holders = self.holders(hex)?;
        if !holders.is_empty() {
            return Err(Error::InUse { id: record.id.clone(), holders });
        }
        let mut names = self.names()?;
        names.retain(|_, id| *id != record.id);
        self.write_names(&names)?;
        remove_file(&self.path("images", &format!("{hex}.json")))?;
        remove_file(&self.path("configs", hex))?;
        let _ = fs::remove_dir(self.path("holds", hex));
        self.drop_unreferenced_layers()
    }

    pub(super) fn names(&self) -> Result<Names> {
        let path = self.root.join("names.json");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| Error::io("reading", &path)(e.into())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Names::new()),
            Err(e) => Err(Error::io("reading", &path)(e)),
        }
    }

    pub(super) fn write_names(&self, names: &Names) -> Result<()> {
        let path = self.root.join("names.json");
        let bytes = serde_json::to_vec_pretty(names).map_err(|e| Error::io("writing", &path)(e.into()))?;
        write_atomic(&path, &bytes)
    }

    pub(super) fn record(&self, hex: &str, names: &Names) -> Result<Option<ImageRecord>> {
        let path = self.path("images", &format!("{hex}.json"));
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("reading", &path)(e)),
        };
        let mut record: ImageRecord =
            serde_json::from_slice(&bytes).map_err(|e| Error::io("reading", &path)(e.into()))?;
        let own = names.iter().filter(|(_, id)| **id == record.id).map(|(name, _)| name.clone());
        (record.repo_digests, record.repo_tags) = own.partition(|name| name.contains('@'));
        record.last_used = modified(&self.path("configs", hex));
        Ok(Some(record))
    }

    pub(super) fn write_record(&self, record: &ImageRecord) -> Result<()> {
        let path = self.path("images", &format!("{}.json", hex_of(&record.id)?));
        let bytes = serde_json::to_vec_pretty(record).map_err(|e| Error::io("writing", &path)(e.into()))?;
        write_atomic(&path, &bytes)
    }

    /// The config blob's modification time is when the image was last used.
    fn touch(&self, hex: &str) {
        let path = self.path("configs", hex);
        if let Ok(file) = fs::File::open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    pub(super) fn entries(&self, sub: &str) -> Result<Vec<String>> {
        names_in(&self.root.join(sub))
    }

    /// Deletes layers without a record, and everything in `trash`.
    fn sweep(&self) -> Result<()> {
        let lock = self.exclusive()?;
        self.drop_unreferenced_layers()?;
        ingest::sweep(&self.root)?;
        drop(lock);
        self.empty_trash();
        Ok(())
    }

    /// Deletes in the background; what a crash leaves is deleted at the next opening.
    pub(super) fn empty_trash(&self) {
        if self.entries("trash").is_ok_and(|doomed| !doomed.is_empty()) {
            let store = self.clone();
            std::thread::spawn(move || store.purge());
        }
    }

    /// Deletes the layers of removed images and waits for it.
    pub fn purge(&self) {
        for doomed in self.entries("trash").unwrap_or_default() {
            let path = self.path("trash", &doomed);
            // A layer may be too deep for a recursive removal.
            if let Err(error) = remove_tree(&path) {
                tracing::warn!(path = %path.display(), error = %causes::chain(&error), "image layer not deleted, will retry at the next start");
            }
        }
    }
}
