//! Unpacks a compressed layer into a directory.
//!
//! A layer is unpacked into `ingest/<unique>/fs` while its diff id is verified, and moved into the store when the image is
//! committed.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

use super::super::paths::remove_tree;
pub use super::unpack::Limits;
use super::{
    Error, ImageStore, LayerViolation, Result,
    chain::Layers,
    manifest::format_digest,
    record::LayerRef,
    unpack::{self, Unpacker},
};

/// An unpacked, verified layer that is not in the store yet. Deleted if it is dropped without `publish`.
#[derive(Debug)]
pub(super) struct StagedLayer {
    pub layer: LayerRef,
    dir: PathBuf,
    /// Directories it did not describe.
    implicit: Vec<PathBuf>,
    /// Lock that keeps other processes from deleting the directory.
    _alive: Option<Flock<File>>,
}

impl StagedLayer {
    /// Where its files are until it is published.
    pub(super) fn files(&self) -> PathBuf {
        self.dir.join("fs")
    }

    /// Sets metadata of implicit directories from the layers below, topmost first. They are part of the chain id, so
    /// every image that shares the layer has the same ones.
    pub(super) fn inherit(&self, below: &[PathBuf]) -> Result<()> {
        unpack::inherit(&self.files(), &self.implicit, below).map_err(Error::io("completing", &self.dir))
    }

    /// Moves the layer into the store; the caller holds the store's lock. If the layer exists already, that one is kept.
    pub(super) fn publish(self, layers: &Layers) -> Result<()> {
        let target = layers.dir(&self.layer)?;
        if target.join("fs").is_dir() {
            return Ok(());
        }
        let _ = fs::remove_file(self.dir.join("alive"));
        fs::rename(&self.dir, &target).map_err(Error::io("publishing", &target))
    }
}

impl Drop for StagedLayer {
    fn drop(&mut self) {
        // Published directories are no longer there.
        let _ = remove_tree(&self.dir);
    }
}

/// Unpacks a compressed layer read from `source` and verifies that it is `layer`. Blocks.
pub(super) fn stage(
    store: &ImageStore,
    layer: LayerRef,
    source: impl Read + Send,
    limits: Limits,
) -> Result<StagedLayer> {
    let dir = store.ingest_dir().join(format!("layer-{}", uuid::Uuid::new_v4()));
    // Another process must not delete the directory before it is locked.
    let lock = store.exclusive()?;
    let made = fs::create_dir(&dir).and_then(|()| fs::create_dir(dir.join("fs")));
    made.map_err(Error::io("creating", &dir))?;
    let alive = File::create(dir.join("alive")).map_err(Error::io("creating", &dir))?;
    let mut staged = StagedLayer {
        layer,
        implicit: Vec::new(),
        _alive: Flock::lock(alive, FlockArg::LockExclusiveNonblock).ok(),
        dir: dir.clone(),
    };
    drop(lock);
    let unpacked = unpack_to(&dir.join("fs"), &staged.layer.diff_id, source, limits)?;
    if unpacked.diff_id != staged.layer.diff_id {
        let (actual, expected) = (unpacked.diff_id, staged.layer.diff_id.clone());
        return Err(Error::Digest { what: "layer contents".into(), actual, expected });
    }
    staged.implicit = unpacked.implicit;
    fs::write(dir.join("size"), unpacked.size.to_string()).map_err(Error::io("writing", &dir))?;
    Ok(staged)
}

/// Result of unpacking.
#[derive(Debug)]
pub struct Unpacked {
    /// Bytes of file content.
    pub size: u64,
    /// Digest of the uncompressed tar.
    pub diff_id: String,
    /// Directories that were needed but not described.
    pub implicit: Vec<PathBuf>,
}

/// Unpacks into an existing directory.
pub fn unpack_to(dir: &Path, name: &str, source: impl Read + Send, limits: Limits) -> Result<Unpacked> {
    let failed = |source: io::Error| Error::Io { action: "unpacking", path: dir.into(), source };
    let inner = decoded(source).map_err(failed)?;
    let mut hashed = Hashing { inner, hash: Sha256::new(), left: limits.max_bytes };
    let mut unpacker = Unpacker::new(dir, name, limits)?;
    unpacker.run(&mut hashed)?;
    // The diff id covers the padding after the last entry too.
    io::copy(&mut hashed, &mut io::sink()).map_err(|e| unpacker.explain(e))?;
    let (size, diff_id) = (unpacker.written(), format_digest(hashed.hash.finalize()));
    Ok(Unpacked { size, diff_id, implicit: unpacker.into_implicit() })
}

/// Magic bytes of gzip and zstd.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Maximum zstd window as a power of two: the default of the zstd tool.
const ZSTD_WINDOW: u32 = 27;

/// Whether [`decoded`] would decompress data with this beginning.
pub(super) fn is_compressed(head: &[u8]) -> bool {
    head.starts_with(&GZIP) || head.starts_with(&ZSTD)
}

/// Decompresses gzip and zstd; returns other data unchanged.
pub(super) fn decoded<'a>(mut source: impl Read + Send + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut head = [0; 4];
    let filled = fill(&mut source, &mut head)?;
    let start = io::Cursor::new(head[..filled].to_vec());
    let whole = BufReader::with_capacity(128 << 10, start.chain(source));
    Ok(if head.starts_with(&GZIP) {
        Box::new(MultiGzDecoder::new(whole))
    } else if head.starts_with(&ZSTD) {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(whole)?;
        decoder.window_log_max(ZSTD_WINDOW)?;
        Box::new(decoder)
    } else {
        Box::new(whole)
    })
}

fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

/// Hashes the stream and stops decompression bombs.
struct Hashing<R> {
    inner: R,
    hash: Sha256,
    left: u64,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        let left = self.left.checked_sub(n as u64);
        self.left = left.ok_or_else(|| io::Error::other(LayerViolation::TooBig))?;
        self.hash.update(&buffer[..n]);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_host_dir::HostDir;
    use tar::{Builder, EntryType, Header};

    fn add(tar: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, target: &str) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_uid(nix::unistd::getuid().as_raw().into());
        header.set_gid(nix::unistd::getgid().as_raw().into());
        header.set_size(0);
        if target.is_empty() {
            tar.append_data(&mut header, path, io::empty()).unwrap();
        } else {
            tar.append_link(&mut header, path, target).unwrap();
        }
    }

    fn unpack(tar: Builder<Vec<u8>>) -> Result<Unpacked> {
        let dir = tempfile::tempdir().unwrap();
        let bytes = tar.into_inner().unwrap();
        let unpacked = unpack_to(dir.path(), "layer", io::Cursor::new(bytes), Limits::for_compressed(1));
        // A tree that is too deep must not fail the removal instead.
        remove_tree(&dir.keep()).unwrap();
        unpacked
    }

    /// A directory of this depth, a link to it, and directories behind the link, each described or not.
    fn behind_a_link(above: usize, below: usize, described: bool) -> Result<Unpacked> {
        let mut tar = Builder::new(Vec::new());
        add(&mut tar, EntryType::Directory, &vec!["d"; above].join("/"), "");
        add(&mut tar, EntryType::Symlink, "link", &vec!["d"; above].join("/"));
        for depth in if described { 1..=below } else { below..=below } {
            add(&mut tar, EntryType::Directory, &format!("link/{}", vec!["e"; depth].join("/")), "");
        }
        unpack(tar)
    }

    #[test]
    fn links_do_not_hide_how_deep_directories_are() {
        for described in [true, false] {
            behind_a_link(100, 100, described).unwrap();
            let error = behind_a_link(100, 101, described).unwrap_err();
            assert!(error.to_string().contains("more than 200 directories inside each other"), "{error}");
        }
    }

    #[test]
    fn links_to_directories_that_are_not_there_yet_are_followed_inside() {
        let mut tar = Builder::new(Vec::new());
        add(&mut tar, EntryType::Symlink, "link", "/../a/./b/../c");
        add(&mut tar, EntryType::Regular, "link/sub/file", "");
        let made: Vec<PathBuf> = ["a", "a/b", "a/c", "a/c/sub"].map(PathBuf::from).into();
        assert_eq!(unpack(tar).unwrap().implicit, made);
    }

    fn make_deep(dir: &Path) {
        let mut at = HostDir::open(dir).unwrap().make_dir("deep", 0o755).unwrap();
        for _ in 0..3000 {
            at = at.make_dir("d", 0o755).unwrap();
        }
    }

    /// Runs with a stack that is too small for a removal that calls itself for every directory of [`make_deep`].
    fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
        std::thread::Builder::new().stack_size(256 << 10).spawn(work).unwrap().join().unwrap();
    }

    #[test]
    fn layers_of_any_depth_are_deleted() {
        let temp = tempfile::tempdir().unwrap();
        let store = ImageStore::open(temp.path()).unwrap();
        let staged = StagedLayer {
            layer: LayerRef { diff_id: String::new(), chain_id: None, size: 0 },
            dir: store.ingest_dir().join("layer-x"),
            implicit: Vec::new(),
            _alive: None,
        };
        let trash = store.root.join("trash/x");
        for dir in [&staged.dir, &trash] {
            fs::create_dir(dir).unwrap();
            make_deep(dir);
        }
        let ingest = staged.dir.clone();
        on_a_small_stack(move || {
            drop(staged);
            store.purge();
        });
        assert!(!ingest.exists() && !trash.exists());
    }

    #[test]
    fn a_directory_that_a_later_entry_replaces_goes_with_everything_in_it() {
        let temp = tempfile::tempdir().unwrap();
        make_deep(temp.path());
        let mut tar = Builder::new(Vec::new());
        add(&mut tar, EntryType::Regular, "deep", "");
        let bytes = io::Cursor::new(tar.into_inner().unwrap());
        let dir = temp.path().to_owned();
        on_a_small_stack(move || drop(unpack_to(&dir, "layer", bytes, Limits::for_compressed(1)).unwrap()));
        assert!(temp.path().join("deep").is_file());
    }
}
