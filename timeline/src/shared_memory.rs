//! Memory of a recorder that outlives its process: a file on a tmpfs, mapped shared.
//!
//! Only a tmpfs, and only if it has room for the whole file: a write into a mapping that has no page behind it ends the process.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};

use coracle_trace::{Clock, Leftover, Moment, Recorder, Sizes, Uid, leftover};
use nix::fcntl::{FallocateFlags, Flock, FlockArg, OFlag, fallocate};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs, statfs};
use nix::unistd::Uid as User;
use xxhash_rust::xxh3::xxh3_64;

/// The file of a timeline's directory that the recording process holds a lock on.
pub(crate) const LOCK: &str = "lock";
const MAGIC: u64 = u64::from_le_bytes(*b"CORSPANS");
/// Of the header and of everything that the recorder keeps.
const VERSION: u64 = 1;

/// The words before those of the recorder.
mod header {
    /// Written last: without it the rest means nothing.
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const BOOT: [usize; 2] = [2, 3];
    pub(super) const PID: usize = 4;
    /// Unix time of the epoch of the recorder's clock.
    pub(super) const EPOCH: usize = 5;
    pub(super) const SIZES: [usize; 4] = [6, 7, 8, 9];
    pub(super) const WORDS: usize = 16;
}

/// Why memory cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum SharedMemoryError {
    /// Any step but those below.
    #[error("cannot {what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// The answer of the kernel.
        #[source]
        source: io::Error,
    },
    /// The file would be on a disk.
    #[error("{0} is not on a tmpfs")]
    NotTmpfs(PathBuf),
    /// Another process records there.
    #[error("{0} is used by another process")]
    Locked(PathBuf),
    /// The file is somebody else's.
    #[error("{0} belongs to another user, or is no plain file")]
    Foreign(PathBuf),
}

/// Memory for a recorder.
#[derive(Debug)]
pub struct SharedMemory {
    /// With the header.
    words: &'static [AtomicU64],
    sizes: Sizes,
    lock: Option<Flock<File>>,
}

/// What an earlier process of the same boot left.
#[derive(Debug)]
pub struct Left {
    words: LeftWords,
    sizes: Sizes,
    epoch: u64,
    pid: u64,
}

#[derive(Debug)]
enum LeftWords {
    /// Still in the mapping: a crash now loses nothing.
    Mapped(&'static [AtomicU64]),
    /// The sizes have changed since, so that the file had to.
    Copied(Vec<AtomicU64>),
}

impl Left {
    /// The unix time of moment 0 of that process.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The id of that process.
    pub fn pid(&self) -> u64 {
        self.pid
    }

    /// Reads it. To be done before [`SharedMemory::start`], which clears the memory.
    pub fn read(&self) -> Leftover {
        let words = match &self.words {
            LeftWords::Mapped(words) => words,
            LeftWords::Copied(words) => words.as_slice(),
        };
        leftover(&words[header::WORDS..], self.sizes)
    }
}

/// The file for the spans of a process with this data directory, which need not exist. `None` on a machine without a tmpfs for it.
pub fn path(data_dir: &Path) -> Option<PathBuf> {
    let data_dir = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    let name = format!("spans-{:016x}", xxh3_64(data_dir.as_os_str().as_encoded_bytes()));
    if User::effective().is_root() && is_tmpfs(Path::new("/run")) {
        return Some(Path::new("/run/coracle").join(name));
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let dir = own.into_iter().chain([PathBuf::from("/dev/shm")]).find(|dir| is_tmpfs(dir))?;
    Some(dir.join(format!("coracle-{name}")))
}

fn is_tmpfs(dir: &Path) -> bool {
    statfs(dir).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}

/// Maps the file, which is created, filled with zeroes and locked; what an earlier process of the same boot left in it is returned.
pub fn open(path: &Path, sizes: Sizes) -> Result<(SharedMemory, Option<Left>), SharedMemoryError> {
    let failed = |what| move |source| SharedMemoryError::Io { what, path: path.to_owned(), source };
    if let Some(dir) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir)
            .map_err(failed("create the directory of"))?;
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
        .map_err(failed("open"))?;
    let metadata = file.metadata().map_err(failed("read"))?;
    // A second name could be that of a file with another purpose.
    let is_own = metadata.uid() == User::effective().as_raw() && metadata.is_file() && metadata.nlink() == 1;
    if !is_own {
        return Err(SharedMemoryError::Foreign(path.to_owned()));
    }
    if fstatfs(&file).map_err(|error| failed("read")(error.into()))?.filesystem_type() != TMPFS_MAGIC {
        let _ = std::fs::remove_file(path);
        return Err(SharedMemoryError::NotTmpfs(path.to_owned()));
    }
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|_| SharedMemoryError::Locked(path.to_owned()))?;
    let count = header::WORDS + Recorder::words(sizes);
    let old = left_header(&lock).map_err(failed("read"))?;
    let same = old.as_ref().is_some_and(|old| old.sizes == sizes);
    let copied = match &old {
        Some(old) if !same => copy(&lock, old.sizes).map_err(failed("read"))?,
        _ => None,
    };
    if !same {
        lock.set_len(0).map_err(failed("clear"))?;
    }
    let length = count as u64 * 8;
    lock.set_len(length).map_err(failed("resize"))?;
    fallocate(&*lock, FallocateFlags::empty(), 0, length.cast_signed())
        .map_err(|error| failed("allocate")(error.into()))?;
    let words = map(&lock, count).map_err(failed("map"))?;
    let left = old.and_then(|old| {
        let words = if same { LeftWords::Mapped(words) } else { LeftWords::Copied(copied?) };
        Some(Left { words, sizes: old.sizes, epoch: old.epoch, pid: old.pid })
    });
    Ok((SharedMemory { words, sizes, lock: Some(lock) }, left))
}

/// Removes what a process with an earlier data directory of the same path left. `timeline` is the directory for spans in the data
/// directory: where it was never used, nothing can be left of this one. To be called before it is opened.
pub fn forget_earlier(timeline: &Path, path: &Path) {
    if timeline.join(LOCK).exists() {
        return;
    }
    // To read, too: whoever else may make files there could have made a pipe, which opens at once only for both.
    let opened = OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path);
    // Whoever still records holds the lock.
    if opened.is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok()) {
        let _ = std::fs::remove_file(path);
    }
}

/// Memory that ends with the process.
pub fn private(sizes: Sizes) -> SharedMemory {
    let count = header::WORDS + Recorder::words(sizes);
    let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
    SharedMemory { words: words.leak(), sizes, lock: None }
}

impl SharedMemory {
    /// A recorder in it. What was left in the memory is gone then.
    pub fn start(self, clock: Clock) -> Recorder {
        let (head, memory) = self.words.split_at(header::WORDS);
        head[header::MAGIC].store(0, Relaxed);
        // The order counts for the process after this one, whenever this one is killed.
        fence(SeqCst);
        let epoch = clock.unix(Moment(0));
        let recorder = Recorder::on(memory, self.sizes, clock);
        let boot = boot_id();
        let sizes = [self.sizes.shards, self.sizes.slots, self.sizes.open, self.sizes.contexts];
        for (word, value) in [
            (header::VERSION, VERSION),
            (header::BOOT[0], (boot >> 64) as u64),
            (header::BOOT[1], boot as u64),
            (header::PID, u64::from(std::process::id())),
            (header::EPOCH, epoch),
        ]
        .into_iter()
        .chain(header::SIZES.into_iter().zip(sizes.map(|size| size as u64)))
        {
            head[word].store(value, Relaxed);
        }
        fence(SeqCst);
        head[header::MAGIC].store(MAGIC, Relaxed);
        // The lock is held until the process ends.
        std::mem::forget(self.lock);
        recorder
    }

    /// As a process that ends: its lock is gone, the rest is as it was.
    #[cfg(test)]
    pub(crate) fn start_unlocked(mut self, clock: Clock) -> Recorder {
        self.lock = None;
        self.start(clock)
    }

    /// The word with the unix time of the recorder's epoch.
    pub(crate) fn epoch(&self) -> &'static AtomicU64 {
        &self.words[header::EPOCH]
    }
}

/// The random id that the kernel drew when it started.
pub(crate) fn boot_id() -> u128 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Uid::of(id.trim()).0
}

struct OldHeader {
    sizes: Sizes,
    epoch: u64,
    pid: u64,
}

/// The header of an earlier process, if it was of this version and this boot.
fn left_header(file: &File) -> io::Result<Option<OldHeader>> {
    let length = file.metadata()?.len();
    if length < header::WORDS as u64 * 8 {
        return Ok(None);
    }
    let words = read_words(file, header::WORDS)?;
    let boot = u128::from(words[header::BOOT[0]]) << 64 | u128::from(words[header::BOOT[1]]);
    if words[header::MAGIC] != MAGIC || words[header::VERSION] != VERSION || boot != boot_id() {
        return Ok(None);
    }
    let [shards, slots, open, contexts] = header::SIZES.map(|word| words[word] as usize);
    let sizes = Sizes { shards, slots, open, contexts };
    let plausible = [shards, slots, open, contexts].into_iter().all(|size| size < 1 << 20)
        && shards > 0
        && slots.is_power_of_two()
        && length == (header::WORDS + Recorder::words(sizes)) as u64 * 8;
    Ok(plausible.then_some(OldHeader { sizes, epoch: words[header::EPOCH], pid: words[header::PID] }))
}

fn copy(file: &File, sizes: Sizes) -> io::Result<Option<Vec<AtomicU64>>> {
    let words = read_words(file, header::WORDS + Recorder::words(sizes))?;
    Ok(Some(words.into_iter().map(AtomicU64::new).collect()))
}

fn read_words(file: &File, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect())
}

#[allow(unsafe_code)]
fn map(file: &File, count: usize) -> io::Result<&'static [AtomicU64]> {
    let length = NonZeroUsize::new(count * 8).ok_or(io::ErrorKind::InvalidInput)?;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: the kernel chooses an address that nothing else has, aligned to a page, and the mapping is never removed. The file has
    // `length` bytes, all allocated, and is locked, private to this user and never made shorter while it is mapped. The words are
    // only accessed as atomics, for which every bit pattern is valid, also if another process wrote it.
    unsafe {
        let pointer = mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0)?;
        Ok(std::slice::from_raw_parts(pointer.cast::<AtomicU64>().as_ptr(), count))
    }
}

#[cfg(test)]
mod tests;
