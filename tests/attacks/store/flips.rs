//! One byte of one file is another one. The store has all that was acknowledged, or does not open and says where.

use coracle_store::{Durability, Revision, Store, Write, embedded::Embedded};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

/// `CORACLE_FLIPS` says how many otherwise.
const FLIPS: usize = 150;
const WRITERS: usize = 24;
const EACH: usize = 150;

/// A generator that gives the same numbers every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

/// What was acknowledged.
struct Ledger {
    keys: BTreeMap<String, Vec<u8>>,
    newest: Revision,
}

async fn write(store: Arc<Embedded>, writer: usize) -> BTreeMap<String, Vec<u8>> {
    let (mut dice, mut keys) = (Dice(writer as u64 + 1), BTreeMap::new());
    let mut versions: BTreeMap<String, Revision> = BTreeMap::new();
    for _ in 0..EACH {
        // Long, so that the index goes to tables, too.
        let key = format!("/registry/{}/w{writer}/k{}", "long-".repeat(100), dice.roll(60));
        let expect = versions.get(&key).copied().unwrap_or(0);
        // Text that cannot be made small, mostly of some kilobytes.
        let size = if dice.roll(4) == 0 { 20 } else { 500 };
        let text: String = (0..dice.roll(size)).map(|_| format!("{:x}", dice.roll(usize::MAX))).collect();
        let value = (expect == 0 || dice.roll(8) > 0).then(|| text.into_bytes());
        let bytes = value.clone().map(Into::into);
        let durability = if dice.roll(10) == 0 { Durability::Lazy } else { Durability::Sync };
        let revision = store
            .write(Write { key: key.clone(), expect, value: bytes, durability, fence: None })
            .await
            .unwrap();
        match value {
            Some(value) => {
                keys.insert(key.clone(), value);
                versions.insert(key, revision);
            }
            None => {
                keys.remove(&key);
                versions.remove(&key);
            }
        }
    }
    keys
}

/// A store with tables and journals: one that was closed, and a copy of it from before that, as a kill leaves it.
async fn build(dir: &Path) -> Ledger {
    let closed = dir.join("closed");
    for _ in 0..2 {
        // Opened twice, so that there is a journal that goes on and not only a new one.
        drop(Embedded::open(&closed).unwrap());
    }
    let store = Arc::new(Embedded::open(&closed).unwrap());
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))).collect();
    let mut keys = BTreeMap::new();
    for writer in writers {
        keys.extend(writer.await.unwrap());
    }
    store.flush().await.unwrap();
    let last = Write {
        key: "/registry/last".to_owned(),
        expect: 0,
        value: Some("acknowledged".into()),
        durability: Durability::Sync,
        fence: None,
    };
    let newest = store.write(last).await.unwrap();
    keys.insert("/registry/last".to_owned(), b"acknowledged".to_vec());
    copy(&closed, &dir.join("killed"));
    Ledger { keys, newest }
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").args(["-a", "--sparse=always"]).args([from, to]).status().unwrap();
    assert!(status.success());
}

fn files(dir: &Path, found: &mut Vec<(PathBuf, usize)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        // A new journal is 64 MiB of zeros; some of those are hit, too.
        let data = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if data > 0 {
            found.push((path, bytes.len().min(data + data / 8)));
        }
    }
    found.sort();
}

/// Every third flip is in the end of the newest journal, every third in any file, the others anywhere.
fn place(files: &[(PathBuf, usize)], dice: &mut Dice, round: usize) -> (PathBuf, usize) {
    let journals = || files.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "jnl"));
    match round % 3 {
        0 => {
            let (path, length) = journals().next_back().unwrap();
            (path.clone(), length - 1 - dice.roll(20_000.min(*length)))
        }
        1 => {
            let (path, length) = &files[dice.roll(files.len())];
            (path.clone(), dice.roll(*length))
        }
        _ => {
            let mut at = dice.roll(files.iter().map(|(_, length)| length).sum());
            for (path, length) in files {
                if at < *length {
                    return (path.clone(), at);
                }
                at -= length;
            }
            unreachable!("the sum of all lengths is more than each")
        }
    }
}

fn flip(path: &Path, at: usize, mask: u8) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ mask], at as u64).unwrap();
}

/// Everything is there and the next write gets a new revision; or the reason why it was not opened.
async fn open(dir: &Path, ledger: &Ledger) -> Result<(), String> {
    let opened = catch_unwind(AssertUnwindSafe(|| Embedded::open(dir)));
    let store = opened.map_err(|_| "it panicked".to_owned())?.map_err(|error| error.to_string())?;
    let (found, revision) = store.range("/", None).await.expect("an open store can be read");
    assert!(revision >= ledger.newest, "revision {revision} after {}", ledger.newest);
    let found: BTreeMap<String, Vec<u8>> =
        found.into_iter().map(|one| (one.key, one.value.to_vec())).collect();
    assert!(found == ledger.keys, "{} keys of {} or other values", found.len(), ledger.keys.len());
    let next = Write {
        key: "/registry/next".to_owned(),
        expect: 0,
        value: Some("1".into()),
        durability: Durability::Sync,
        fence: None,
    };
    assert!(store.write(next).await.unwrap() > ledger.newest);
    Ok(())
}

#[test]
fn a_flipped_byte_never_costs_an_acknowledged_write_in_silence() {
    let flips = std::env::var("CORACLE_FLIPS").map_or(FLIPS, |flips| flips.parse().unwrap());
    // Thousands of syncs and copies: in memory, where there is some.
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ledger = runtime.block_on(build(dir.path()));
    let (begun, mut dice) = (Instant::now(), Dice(42));
    let (mut kept, mut refused, mut reasons) = (0, 0, BTreeMap::<String, usize>::new());
    for sort in ["closed", "killed"] {
        let original = dir.path().join(sort);
        let mut all = Vec::new();
        files(&original, &mut all);
        let tables = all.iter().filter(|(path, _)| path.to_string_lossy().contains("/tables/")).count();
        assert!(tables > 4, "too little was written: {all:?}");
        for round in 0..flips / 2 {
            let (path, at) = place(&all, &mut dice, round);
            let name = path.strip_prefix(&original).unwrap().to_owned();
            let damaged = dir.path().join("damaged");
            copy(&original, &damaged);
            flip(&damaged.join(&name), at, 1 + dice.roll(255) as u8);
            let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(open(&damaged, &ledger))));
            match result.unwrap_or_else(|_| panic!("byte {at} of {} of the {sort} store", name.display())) {
                Ok(()) => kept += 1,
                Err(why) => {
                    assert!(why.contains(" is damaged at byte "), "byte {at} of {}: {why}", name.display());
                    let what = why.split(" is damaged at byte ").nth(1).unwrap_or_default();
                    let what = what.split(". The store").next().unwrap_or_default();
                    let words: String = what.chars().filter(|c| !c.is_ascii_digit()).collect();
                    *reasons.entry(words.chars().take(60).collect()).or_default() += 1;
                    refused += 1;
                }
            }
            std::fs::remove_dir_all(&damaged).unwrap();
        }
    }
    println!(
        "{} flips in {:?}: {kept} kept everything, {refused} refused with file and offset; {} keys at revision {}",
        kept + refused,
        begun.elapsed(),
        ledger.keys.len(),
        ledger.newest
    );
    println!("{reasons:#?}");
    assert!(refused > flips / 2, "most bytes matter");
}
