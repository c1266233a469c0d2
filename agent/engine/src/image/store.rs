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

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;

use super::{
    Error, ImageRecord, ReferenceError, Result,
    chain::Layers,
    holds::Holds,
    ingest,
    manifest::hex_of,
    record::LayerRef,
    records::{Names, Records},
    reference::{self, as_id},
    trash::Trash,
};

/// Images and their layers.
///
/// Methods block for at most a few file operations unless they say otherwise. Any number of processes may share a
/// directory.
#[derive(Debug, Clone)]
pub struct ImageStore {
    pub(super) root: PathBuf,
    pub(super) records: Records,
    pub(super) layers: Layers,
    pub(super) holds: Holds,
    pub(super) trash: Trash,
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
        let store = ImageStore {
            records: Records::new(&root),
            layers: Layers::new(&root),
            holds: Holds::new(&root),
            trash: Trash::new(&root),
            busy: Arc::default(),
            root,
        };
        store.sweep()?;
        Ok(store)
    }

    /// Directory for unfinished work; old files in it are deleted.
    pub fn ingest_dir(&self) -> PathBuf {
        self.root.join("ingest")
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
        self.records.list()
    }

    /// The image of a name, an id, or an id's unambiguous beginning.
    pub fn get(&self, name: &str) -> Result<ImageRecord> {
        self.find(name)?.ok_or_else(|| Error::NotFound { name: name.to_owned() })
    }

    /// As `get`, with `None` for an image that is not here.
    pub fn find(&self, name: &str) -> Result<Option<ImageRecord>> {
        self.records.find(name)
    }

    /// The layer directories of an image, topmost first, as overlayfs wants its `lowerdir`.
    ///
    /// Paths are short links, so that many layers fit in one mount option.
    pub fn rootfs_layers(&self, id: &str) -> Result<Vec<PathBuf>> {
        self.get(id)?.layers.iter().rev().map(|layer| self.layers.link(layer)).collect()
    }

    /// Options of an overlay mount of the image with a container's own `upper` and `work`.
    pub fn overlay_options(&self, id: &str, upper: &Path, work: &Path) -> Result<String> {
        let lower: Vec<String> = self.rootfs_layers(id)?.iter().map(|p| p.display().to_string()).collect();
        Ok(format!("lowerdir={},upperdir={},workdir={}", lower.join(":"), upper.display(), work.display()))
    }

    /// The config blob, verbatim.
    pub fn config_blob(&self, id: &str) -> Result<Vec<u8>> {
        let path = self.records.config_path(hex_of(&self.get(id)?.id)?);
        fs::read(&path).map_err(Error::io("reading", &path))
    }

    /// Marks an image as used by a container until `release`; survives restarts. Fails when the image is gone.
    pub fn hold(&self, id: &str, container: &str) -> Result<()> {
        let _lock = self.exclusive()?;
        let record = self.get(id)?;
        let hex = hex_of(&record.id)?;
        self.holds.add(hex, container)?;
        self.records.touch(hex);
        Ok(())
    }

    /// The container no longer uses the image. Idempotent.
    pub fn release(&self, id: &str, container: &str) -> Result<()> {
        let Some(hex) = as_id(id) else {
            return Err(Error::BadReference { name: id.into(), reason: ReferenceError::NotAnId });
        };
        self.holds.remove(hex, container)?;
        self.records.touch(hex);
        Ok(())
    }

    /// Drops the holds of containers for which `live` is false; called at the start of an engine.
    pub fn retain_holds(&self, live: impl Fn(&str) -> bool) -> Result<()> {
        let _lock = self.exclusive()?;
        self.holds.retain(live)
    }

    /// Adds a name to an image; removes it from the image that had it.
    pub fn tag(&self, id: &str, name: &str) -> Result<()> {
        let reference = reference::parse(name)?;
        let _lock = self.exclusive()?;
        let record = self.get(id)?;
        let name = reference::tag_name(&reference).unwrap_or_else(|| reference.whole());
        self.records.add_names(&record.id, &[name])
    }

    /// Exempts an image from garbage collection, or no longer.
    pub fn pin(&self, id: &str, pinned: bool) -> Result<()> {
        let _lock = self.exclusive()?;
        let record = ImageRecord { pinned, ..self.get(id)? };
        self.records.write(&record)
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
        self.trash.empty();
        Ok(())
    }

    pub(super) fn remove_locked(&self, record: &ImageRecord) -> Result<()> {
        let hex = hex_of(&record.id)?;
        let holders = self.holds.of(hex)?;
        if !holders.is_empty() {
            return Err(Error::InUse { id: record.id.clone(), holders });
        }
        self.records.remove(record)?;
        self.holds.forget(hex);
        self.drop_unreferenced_layers()
    }

    /// Layers of the earlier form that containers of an image may have mounted, when a new record is about to replace
    /// the one that names them. The store's lock is held.
    pub(super) fn former_layers(&self, new: &ImageRecord) -> Result<Vec<LayerRef>> {
        let hex = hex_of(&new.id)?;
        if self.holds.of(hex)?.is_empty() {
            return Ok(Vec::new());
        }
        let Some(old) = self.records.read(hex, &Names::new())? else { return Ok(Vec::new()) };
        Ok(old.former_layers.into_iter().chain(old.layers).filter(|l| l.chain_id.is_none()).collect())
    }

    /// Moves layers that no image needs to the trash. The store's lock is held.
    fn drop_unreferenced_layers(&self) -> Result<()> {
        let mut needed = Vec::new();
        for record in self.list()? {
            let held = !self.holds.of(hex_of(&record.id)?)?.is_empty();
            needed.extend(record.layers);
            needed.extend(record.former_layers.into_iter().filter(|_| held));
        }
        self.layers.retain(&needed, &self.trash)
    }

    /// Deletes layers without a record, and everything in `trash`.
    fn sweep(&self) -> Result<()> {
        let lock = self.exclusive()?;
        self.drop_unreferenced_layers()?;
        ingest::sweep(&self.root)?;
        drop(lock);
        self.trash.empty();
        Ok(())
    }

    /// Deletes the layers of removed images and waits for it.
    pub fn purge(&self) {
        self.trash.purge();
    }
}
