//! Archives: OCI layouts in a tar (`index.json`, `blobs/`) and `docker save` (`manifest.json`).

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek},
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use serde::Deserialize;

use super::{
    ArchiveError, Error, ImageRecord, ImageStore, Result, Unsupported,
    chain::check_layers,
    commit::NewImage,
    disk::DiskUse,
    layer::{self, Limits},
    manifest::{self, ConfigBlob, Descriptor, Manifest, Platform},
    pull::{blocking, record_of},
    reference,
    tar_limit::{BudgetedReader, ReadBudget},
};

/// Maximum number of members of an archive.
const MAX_MEMBERS: usize = 20_000;
/// Maximum number of images of an archive.
const MAX_IMAGES: usize = 1000;
/// Maximum nesting of indexes.
const MAX_INDEX_DEPTH: usize = 3;
/// The longest name of a member.
const MAX_NAME_LEN: usize = 4096;

const NAME_KEYS: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

impl ImageStore {
    /// Imports every image for this machine of an archive, with the names it has there, or `name` if given. The archive
    /// may be compressed as a whole. Names that came with it are the first of each record.
    ///
    /// Layers are verified like those of a pull; an image appears whole or not at all.
    pub async fn import(&self, archive: &Path, name: Option<&str>) -> Result<Vec<ImageRecord>> {
        let (store, path, name) = (self.clone(), archive.to_owned(), name.map(str::to_owned));
        blocking(move || {
            let archive = Archive::open(&path, &store.ingest_dir())?;
            let found = archive.images(name.as_deref())?;
            found.into_iter().map(|image| import_image(&store, &archive, image)).collect()
        })
        .await
    }
}

fn import_image(store: &ImageStore, archive: &Archive, image: Found) -> Result<ImageRecord> {
    let bytes = archive.verified(&image.config, &image.config_path)?;
    let config: ConfigBlob =
        serde_json::from_slice(&bytes).map_err(|e| archive.unusable(Unsupported::Config(e)))?;
    if let Some(size) = image.config_size.filter(|size| *size > 0 && *size != bytes.len() as u64) {
        let (document, bytes) = ("config", bytes.len());
        return Err(archive.unusable(Unsupported::Size { document, bytes, described: size }));
    }
    let what = archive.path.display().to_string();
    check_layers(&what, config.rootfs.diff_ids.len(), image.layers.len())?;
    let names = image.names.clone();
    let mut new = NewImage {
        record: ImageRecord { imported: true, ..record_of(&image.config, &image.manifest, &config) },
        names: image.names,
        config: bytes,
        staged: Vec::new(),
    };
    let layers = new.record.layers.clone();
    let mut missing: Vec<_> = layers.iter().filter(|layer| !store.layers.has(layer)).cloned().collect();
    loop {
        for (layer, path) in layers.iter().zip(&image.layers).filter(|(l, _)| missing.contains(l)) {
            let (reader, size) = archive.open_member(path)?;
            new.staged.push(layer::stage(store, layer.clone(), reader, Limits::for_compressed(size))?);
        }
        store.flush(&new.staged)?;
        missing = store.commit(&mut new)?;
        if missing.is_empty() {
            let mut record = store.get(&new.record.id)?;
            record.repo_tags.sort_by_key(|tag| !names.contains(tag));
            return Ok(record);
        }
    }
}

/// An image of an archive.
struct Found {
    names: Vec<String>,
    manifest: String,
    config: String,
    config_path: String,
    /// What its descriptor says.
    config_size: Option<u64>,
    layers: Vec<String>,
}

/// A tar whose members are read in any order.
struct Archive {
    path: std::path::PathBuf,
    file: Arc<File>,
    members: BTreeMap<String, (u64, u64)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// One member, read with `pread` so that readers are independent.
struct Member {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Member {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.file.read_at(&mut buffer[..room], self.at)?;
        (self.at, self.left) = (self.at + n as u64, self.left - n as u64);
        Ok(n)
    }
}

/// The file, or what it decompresses to in a file without a name in `scratch`.
fn plain(path: &Path, scratch: &Path) -> Result<File> {
    let file = File::open(path).map_err(Error::io("reading", path))?;
    let mut head = [0; 4];
    let filled = file.read_at(&mut head, 0).map_err(Error::io("reading", path))?;
    if !layer::is_compressed(&head[..filled]) {
        return Ok(file);
    }
    let size = file.metadata().map_err(Error::io("reading", path))?.len();
    let most = Limits::for_compressed(size).max_bytes;
    let at = scratch.join(format!("archive-{}", uuid::Uuid::new_v4()));
    let spool = || -> io::Result<(File, u64)> {
        let mut whole = File::options().read(true).write(true).create_new(true).open(&at)?;
        fs::remove_file(&at)?;
        let copied =
            copy_while_space_left(&mut layer::decoded(file)?.take(most.saturating_add(1)), &mut whole)?;
        whole.rewind()?;
        Ok((whole, copied))
    };
    let (whole, copied) = spool().map_err(Error::io("decompressing", path))?;
    if copied > most {
        let reason = ArchiveError::DecompressesTooFar { most };
        return Err(Error::unsupported(path.display().to_string(), reason));
    }
    Ok(whole)
}

/// Copies while the disk has free space.
fn copy_while_space_left(source: &mut impl Read, whole: &mut File) -> io::Result<u64> {
    const DISK_CHECK_INTERVAL: u64 = 64 << 20;
    let mut copied = 0;
    loop {
        let n = io::copy(&mut source.take(DISK_CHECK_INTERVAL), whole)?;
        copied += n;
        if n < DISK_CHECK_INTERVAL {
            return Ok(copied);
        }
        if DiskUse::of(&*whole)?.is_full() {
            return Err(io::ErrorKind::StorageFull.into());
        }
    }
}

impl Archive {
    fn open(path: &Path, scratch: &Path) -> Result<Self> {
        let file = plain(path, scratch)?;
        let read = || -> io::Result<BTreeMap<String, (u64, u64)>> {
            let mut members = BTreeMap::new();
            let mut links = Vec::new();
            let allowance = ReadBudget::default();
            let mut tar = tar::Archive::new(BudgetedReader { inner: &file, allowance: allowance.clone() });
            allowance.headers();
            for entry in tar.entries_with_seek()? {
                let entry = entry?;
                // Contents are skipped.
                allowance.headers();
                let name = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
                if name.len() > MAX_NAME_LEN || members.len() + links.len() >= MAX_MEMBERS {
                    return Err(io::Error::other("too many members, or too long names"));
                }
                // docker save uses links for identical layers.
                match entry.link_name()?.filter(|_| !entry.header().entry_type().is_file()) {
                    Some(target) => links.push((name, target.to_string_lossy().into_owned())),
                    None => drop(members.insert(name, (entry.raw_file_position(), entry.size()))),
                }
            }
            for (name, target) in links {
                let beside = Path::new(&name).parent().unwrap_or(Path::new("")).join(&target);
                let target = clean(&beside).filter(|t| members.contains_key(t)).unwrap_or(target);
                if let Some(found) = members.get(&target).copied() {
                    members.insert(name, found);
                }
            }
            Ok(members)
        };
        let members = read().map_err(|error| match error.raw_os_error() {
            Some(_) => Error::io("reading", path)(error),
            None => Error::unsupported(path.display().to_string(), ArchiveError::Damaged),
        })?;
        Ok(Archive { path: path.to_owned(), file: Arc::new(file), members })
    }

    fn unusable(&self, reason: impl Into<Unsupported>) -> Error {
        Error::unsupported(self.path.display().to_string(), reason)
    }

    fn images(&self, name: Option<&str>) -> Result<Vec<Found>> {
        let mut found = if self.members.contains_key("index.json") {
            let index = self.read("index.json")?;
            let mut found = Vec::new();
            self.walk_index(&index, &[], 1, &mut found)?;
            found
        } else if self.members.contains_key("manifest.json") {
            self.docker_images()?
        } else {
            return Err(self.unusable(ArchiveError::UnknownLayout));
        };
        if found.is_empty() {
            let architecture = Platform::host().architecture;
            return Err(self.unusable(ArchiveError::NoImage { architecture }));
        }
        if let Some(name) = name {
            let reference = reference::parse(name)?;
            found.truncate(1);
            found[0].names = reference::tag_name(&reference).into_iter().collect();
        }
        Ok(found)
    }

    /// Top-level entries are images of their own; a nested index is one image for several machines.
    fn walk_index(&self, bytes: &[u8], names: &[String], depth: usize, found: &mut Vec<Found>) -> Result<()> {
        let what = self.path.display().to_string();
        let Manifest::Index(entries) = Manifest::parse(&what, bytes)? else {
            return Err(self.unusable(ArchiveError::NotAnIndex));
        };
        let host = Platform::host();
        if depth > MAX_INDEX_DEPTH || entries.len() > MAX_IMAGES {
            return Err(self.unusable(ArchiveError::TooManyIndexes));
        }
        for entry in &entries {
            let mut names = names.to_vec();
            names.extend(entry_name(entry));
            let bytes = self.verified(&entry.digest, &blob_path(&entry.digest)?)?;
            match Manifest::parse(&what, &bytes)? {
                Manifest::Image { config, layers } => {
                    let other = entry.platform.as_ref().is_some_and(|p| p.architecture != host.architecture);
                    if !other {
                        found.push(Found {
                            names: names.clone(),
                            manifest: entry.digest.clone(),
                            config_path: blob_path(&config.digest)?,
                            config_size: Some(config.size),
                            config: config.digest,
                            layers: layers.iter().map(|l| blob_path(&l.digest)).collect::<Result<_>>()?,
                        });
                    }
                }
                Manifest::Index(nested) => {
                    let chosen = manifest::for_platform(&what, &nested, &host)?.clone();
                    let document = serde_json::json!({ "schemaVersion": 2, "manifests": [chosen] });
                    self.walk_index(document.to_string().as_bytes(), &names, depth + 1, found)?;
                }
            }
        }
        Ok(())
    }

    fn docker_images(&self) -> Result<Vec<Found>> {
        let images: Vec<DockerImage> = serde_json::from_slice(&self.read("manifest.json")?)
            .map_err(|e| self.unusable(ArchiveError::DockerManifest(e)))?;
        if images.len() > MAX_IMAGES {
            let (images, most) = (images.len(), MAX_IMAGES);
            return Err(self.unusable(ArchiveError::TooManyImages { images, most }));
        }
        let mut found = Vec::new();
        for image in images {
            let tags = image.repo_tags.unwrap_or_default();
            let names = tags.iter().map(|t| Ok(reference::parse(t)?.whole())).collect::<Result<_>>()?;
            found.push(Found {
                names,
                manifest: String::new(),
                config: manifest::digest_of(&self.read(&image.config)?),
                config_path: image.config,
                config_size: None,
                layers: image.layers,
            });
        }
        Ok(found)
    }

    fn open_member(&self, name: &str) -> Result<(Member, u64)> {
        let (at, size) = *self
            .members
            .get(name)
            .ok_or_else(|| self.unusable(ArchiveError::Missing { name: name.to_owned() }))?;
        Ok((Member { file: self.file.clone(), at, left: size }, size))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let (mut reader, size) = self.open_member(name)?;
        if size > manifest::MAX_DOCUMENT {
            return Err(self.unusable(ArchiveError::LongMember { name: name.to_owned(), bytes: size }));
        }
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(Error::io("reading", &self.path))?;
        Ok(bytes)
    }

    fn verified(&self, digest: &str, path: &str) -> Result<Vec<u8>> {
        let bytes = self.read(path)?;
        let actual = manifest::digest_of(&bytes);
        if actual != digest {
            return Err(Error::Digest { what: path.to_owned(), actual, expected: digest.to_owned() });
        }
        Ok(bytes)
    }
}

fn blob_path(digest: &str) -> Result<String> {
    Ok(format!("blobs/sha256/{}", manifest::hex_of(digest)?))
}

/// A full name, or nothing: a bare tag says nothing about the repository.
fn entry_name(entry: &Descriptor) -> Option<String> {
    let annotations = &entry.annotations;
    let full = annotations.get(NAME_KEYS[0]);
    let text = full.or_else(|| annotations.get(NAME_KEYS[1]).filter(|n| n.contains(['/', ':'])))?;
    reference::tag_name(&reference::parse(text).ok()?)
}

fn clean(path: &Path) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.to_str()?.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            other => parts.push(other),
        }
    }
    Some(parts.join("/"))
}
