//! Directories and links that change places while the agent works in them.

use coracle_agent::volume::{ownership, subpath, teardown};
use nix::fcntl::{RenameFlags, renameat2};
use nix::mount::{MntFlags, umount2};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const GROUP: u32 = 54_321;
const TIME: Duration = Duration::from_secs(3);

/// Exchanges two entries again and again, as a container does that waits for the agent to look away.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    fn start(one: PathBuf, other: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let thread = std::thread::spawn(move || {
            let here = nix::fcntl::AT_FDCWD;
            while !until.load(Ordering::Relaxed) {
                let _ = renameat2(here, &one, here, &other, RenameFlags::RENAME_EXCHANGE);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A volume with a directory and a link to a directory outside, which has a file.
fn volume(temp: &Path) -> (PathBuf, PathBuf) {
    let (volume, outside) = (temp.join("volume"), temp.join("outside"));
    fs::create_dir_all(volume.join("dir/sub")).unwrap();
    fs::create_dir_all(outside.join("sub")).unwrap();
    for dir in [volume.join("dir"), outside.clone()] {
        fs::write(dir.join("file"), "x").unwrap();
        fs::write(dir.join("sub/file"), "x").unwrap();
    }
    fs::write(outside.join("host"), "x").unwrap();
    symlink(&outside, volume.join("link")).unwrap();
    (volume, outside)
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_cannot_make_the_fs_group_walk_leave_its_volume() {
    let temp = tempfile::tempdir().unwrap();
    let (volume, outside) = volume(temp.path());
    let inside = volume.join("dir");
    for path in [outside.clone(), outside.join("file"), outside.join("sub"), outside.join("host")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let swapper = Swapper::start(inside, volume.join("link"));
    let begun = Instant::now();
    while begun.elapsed() < TIME {
        // The walk may fail when something changes under it; what counts is where it was.
        let _ = ownership::give_to_group(&volume, GROUP, false);
        for path in ["", "file", "sub", "sub/file", "host"] {
            let meta = fs::symlink_metadata(outside.join(path)).unwrap();
            assert_ne!(meta.gid(), GROUP, "outside/{path} was given away after {:?}", begun.elapsed());
        }
    }
    drop(swapper);
    ownership::give_to_group(&volume, GROUP, false).unwrap();
    let dir = if volume.join("dir").is_symlink() { volume.join("link") } else { volume.join("dir") };
    assert_eq!(fs::metadata(dir.join("sub/file")).unwrap().gid(), GROUP, "an honest volume is given");
    assert_ne!(fs::metadata(&outside).unwrap().gid(), GROUP);
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_does_not_get_set_id_bits_back_from_the_fs_group_walk() {
    let temp = tempfile::tempdir().unwrap();
    let volume = temp.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let program = volume.join("program");
    fs::write(&program, "x").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6711)).unwrap();
    ownership::give_to_group(&volume, GROUP, false).unwrap();
    let meta = fs::metadata(&program).unwrap();
    assert_eq!((meta.gid(), meta.mode() & 0o7777), (GROUP, 0o771));
    assert_eq!(fs::metadata(&volume).unwrap().mode() & 0o2070, 0o2070);
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_cannot_mount_what_is_outside_its_volume_as_a_sub_path() {
    let temp = tempfile::tempdir().unwrap();
    let (volume, _) = volume(temp.path());
    let pin = temp.path().join("pins/0");
    let _swapper = Swapper::start(volume.join("dir"), volume.join("link"));
    let begun = Instant::now();
    let (mut pinned, mut made) = (0, 0);
    while begun.elapsed() < TIME {
        for part in ["dir", "link", "dir/new/deep"] {
            let Ok(at) = subpath::pin(&volume, part, &pin) else { continue };
            pinned += 1;
            made += usize::from(part.ends_with("deep"));
            assert!(!at.join("host").exists(), "{part} is outside the volume");
            while umount2(&pin, MntFlags::MNT_DETACH).is_ok() {}
        }
        assert!(!temp.path().join("outside/new").exists(), "a directory was made outside the volume");
    }
    assert!(pinned > 0 && made > 0, "{pinned} {made}");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_cannot_have_files_outside_its_volume_removed() {
    let temp = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < TIME {
        let (volume, outside) = volume(temp.path());
        let swapper = Swapper::start(volume.join("dir"), volume.join("link"));
        while teardown::remove_tree(&volume).is_err() {}
        drop(swapper);
        assert!(!volume.exists());
        for path in ["file", "sub/file", "host"] {
            assert!(outside.join(path).exists(), "outside/{path} was removed after {:?}", begun.elapsed());
        }
        rounds += 1;
    }
    assert!(rounds > 10, "{rounds}");
}
