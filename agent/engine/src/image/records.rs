//! Records of images, their names and their config blobs.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{
    Error, ImageRecord, Result,
    files::{modified, names_in, remove_file, write_atomic},
    manifest::hex_of,
    reference::{self, as_id},
};

/// Ids by image name.
pub(super) type Names = BTreeMap<String, String>;

/// `images/`, `names.json` and `configs/` of a store. Whoever writes holds the lock of the store.
#[derive(Debug, Clone)]
pub(super) struct Records {
    root: PathBuf,
}

impl Records {
    /// In the directory of a store.
    pub(super) fn new(root: &Path) -> Self {
        Records { root: root.to_owned() }
    }

    fn path(&self, hex: &str) -> PathBuf {
        self.root.join("images").join(format!("{hex}.json"))
    }

    /// The config blob of an image.
    pub(super) fn config_path(&self, hex: &str) -> PathBuf {
        self.root.join("configs").join(hex)
    }

    /// Ids of all images, in hex.
    fn ids(&self) -> Result<Vec<String>> {
        let files = names_in(&self.root.join("images"))?;
        Ok(files.iter().filter_map(|name| name.strip_suffix(".json")).map(str::to_owned).collect())
    }

    /// All images, by id.
    pub(super) fn list(&self) -> Result<Vec<ImageRecord>> {
        let names = self.names()?;
        let mut records = Vec::new();
        for hex in self.ids()? {
            records.extend(self.read(&hex, &names)?);
        }
        Ok(records)
    }

    /// The image of a name, an id, or an id's unambiguous beginning.
    pub(super) fn find(&self, name: &str) -> Result<Option<ImageRecord>> {
        let names = self.names()?;
        if let Some(hex) = as_id(name) {
            return self.read(hex, &names);
        }
        if let Ok(reference) = reference::parse(name) {
            let by_digest = reference.digest().map(|d| reference::digest_name(&reference, d));
            let wanted = by_digest.or_else(|| reference::tag_name(&reference)).unwrap_or_default();
            if let Some(id) = names.get(&wanted) {
                return self.read(hex_of(id)?, &names);
            }
        }
        let start = name.strip_prefix("sha256:").unwrap_or(name);
        if start.len() < 4 || !start.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let ids = self.ids()?;
        let mut fitting = ids.iter().filter(|id| id.starts_with(start));
        match (fitting.next(), fitting.next()) {
            (Some(id), None) => self.read(id, &names),
            _ => Ok(None),
        }
    }

    /// The record of an id; its names are those of `names`.
    pub(super) fn read(&self, hex: &str, names: &Names) -> Result<Option<ImageRecord>> {
        let path = self.path(hex);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("reading", &path)(e)),
        };
        let mut record: ImageRecord =
            serde_json::from_slice(&bytes).map_err(|e| Error::io("reading", &path)(e.into()))?;
        let own = names.iter().filter(|(_, id)| **id == record.id).map(|(name, _)| name.clone());
        (record.repo_digests, record.repo_tags) = own.partition(|name| name.contains('@'));
        record.last_used = modified(&self.config_path(hex));
        Ok(Some(record))
    }

    /// Replaces a record.
    pub(super) fn write(&self, record: &ImageRecord) -> Result<()> {
        let path = self.path(hex_of(&record.id)?);
        let bytes = serde_json::to_vec_pretty(record).map_err(|e| Error::io("writing", &path)(e.into()))?;
        write_atomic(&path, &bytes)
    }

    /// Removes an image with all its names.
    pub(super) fn remove(&self, record: &ImageRecord) -> Result<()> {
        let hex = hex_of(&record.id)?;
        let mut names = self.names()?;
        names.retain(|_, id| *id != record.id);
        self.write_names(&names)?;
        remove_file(&self.path(hex))?;
        remove_file(&self.config_path(hex))
    }

    /// Gives names to an image; those of other images move to it.
    pub(super) fn add_names(&self, id: &str, added: &[String]) -> Result<()> {
        let mut names = self.names()?;
        names.extend(added.iter().map(|name| (name.clone(), id.to_owned())));
        self.write_names(&names)
    }

    fn names(&self) -> Result<Names> {
        let path = self.root.join("names.json");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| Error::io("reading", &path)(e.into())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Names::new()),
            Err(e) => Err(Error::io("reading", &path)(e)),
        }
    }

    fn write_names(&self, names: &Names) -> Result<()> {
        let path = self.root.join("names.json");
        let bytes = serde_json::to_vec_pretty(names).map_err(|e| Error::io("writing", &path)(e.into()))?;
        write_atomic(&path, &bytes)
    }

    /// Marks an image as used now: the modification time of its config blob.
    pub(super) fn touch(&self, hex: &str) {
        if let Ok(file) = fs::File::open(self.config_path(hex)) {
            let _ = file.set_modified(SystemTime::now());
        }
    }
}
