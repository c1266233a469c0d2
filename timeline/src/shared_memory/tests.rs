#![allow(clippy::unwrap_used)]

use coracle_trace::Verb;

use super::*;

fn shared_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

#[test]
fn the_next_process_finds_what_was_recorded() {
    let dir = shared_dir();
    let path = dir.path().join("spans");
    let (memory, left) = open(&path, Sizes::TEST).unwrap();
    assert!(left.is_none());
    assert!(matches!(open(&path, Sizes::TEST), Err(SharedMemoryError::Locked(_))));
    let recorder = memory.start_unlocked(Clock::start());
    let mut write = recorder.write(Verb::Create, "pods", "default", "web");
    write.object("11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11", "web");
    write.stored(42);
    drop(write);

    let (_memory, left) = open(&path, Sizes::TEST).unwrap();
    let left = left.unwrap();
    assert_eq!(left.pid(), u64::from(std::process::id()));
    assert_eq!(left.epoch(), recorder.clock().unwrap().unix(Moment(0)));
    let found = left.read();
    assert_eq!(found.records.len(), 1);
    assert_eq!(found.records[0].0.revision, 42);
}

#[test]
fn other_sizes_and_other_boots() {
    let dir = shared_dir();
    let path = dir.path().join("spans");
    let (memory, _) = open(&path, Sizes::TEST).unwrap();
    let recorder = memory.start_unlocked(Clock::start());
    drop(recorder.write(Verb::Create, "pods", "default", "web"));
    let larger = Sizes { slots: Sizes::TEST.slots * 2, ..Sizes::TEST };
    let (memory, left) = open(&path, larger).unwrap();
    assert_eq!(left.unwrap().read().records.len(), 1);
    memory.words[header::BOOT[0]].store(1, Relaxed);
    drop(memory);
    let (_, left) = open(&path, larger).unwrap();
    assert!(left.is_none());
}

#[test]
fn a_new_data_directory_at_an_old_path_has_no_past() {
    let dir = shared_dir();
    let (timeline, path) = (dir.path().join("trace"), dir.path().join("spans"));
    let keep = crate::Keep::exclusive(&timeline, crate::Limits::default()).unwrap();
    let (memory, _) = open(&path, Sizes::TEST).unwrap();
    memory.start_unlocked(Clock::start());
    forget_earlier(&timeline, &path);
    assert!(path.exists(), "it is that of the process before");
    drop(keep);
    std::fs::remove_dir_all(&timeline).unwrap();
    let (locked, _) = open(&path, Sizes::TEST).unwrap();
    forget_earlier(&timeline, &path);
    assert!(path.exists(), "somebody records there");
    drop(locked);
    forget_earlier(&timeline, &path);
    assert!(!path.exists());
    forget_earlier(&timeline, &path);
}

#[test]
fn a_disk_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("spans");
    let file = File::create(&path).unwrap();
    if fstatfs(&file).unwrap().filesystem_type() != TMPFS_MAGIC {
        assert!(matches!(open(&path, Sizes::TEST), Err(SharedMemoryError::NotTmpfs(_))));
    }
}

#[test]
fn private_memory_records() {
    let recorder = private(Sizes::TEST).start(Clock::start());
    assert!(recorder.is_on());
    assert!(path(Path::new("/nonexistent/data")).is_some());
}
