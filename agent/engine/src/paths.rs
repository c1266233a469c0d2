//! Directories and files of the engine.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use coracle_host_dir::{HostDir, private};

/// `pause`, as `build.rs` compiled it.
const PAUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// Directories of the engine: `root` is persistent, `run` is cleared by a reboot.
///
/// ```text
/// root/sandboxes/<id>.json   root/containers/<id>.json   records
/// root/containers/<id>/      upper, work, volumes
/// root/images/               the image store
/// root/pause/pause           root of every pause
/// root/boot                  the boot that pids in records are of
/// run/sandboxes/<id>/        ns/*, shm, resolv.conf, hostname, hosts
/// run/containers/<id>/       bundle: config.json, rootfs, images, mapped
/// run/runtime/               the OCI runtime's own state
/// run/x/                     short-lived files of execs and launches
/// run/keeper.sock …          the keeper's
/// ```
#[derive(Debug, Clone)]
pub struct Paths {
    root: PathBuf,
    run: PathBuf,
}

impl Paths {
    /// Creates the directories and writes `pause`.
    pub fn create(root: &Path, run: &Path) -> io::Result<Self> {
        let ensure = |path: &Path, mode| private::ensure(path, mode).map_err(io::Error::other);
        // A pod's root in a user namespace is an unprivileged user here and must traverse to its own bundle, which only
        // it may enter.
        let paths = Self { root: ensure(root, 0o700)?, run: ensure(run, 0o711)? };
        ensure(&paths.run.join("containers"), 0o711)?;
        for dir in ["sandboxes", "containers", "images"] {
            ensure(&paths.root.join(dir), 0o700)?;
        }
        for dir in ["sandboxes", "runtime", "x"] {
            ensure(&paths.run.join(dir), 0o700)?;
        }
        paths.write_pause()?;
        Ok(paths)
    }

    fn write_pause(&self) -> io::Result<()> {
        let dir = self.pause_root();
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&dir)?;
        let path = dir.join("pause");
        if fs::read(&path).is_ok_and(|old| old == PAUSE) {
            return Ok(());
        }
        // By rename, because the old file may be executing.
        let fresh = dir.join(".pause");
        fs::write(&fresh, PAUSE)?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
        fs::rename(&fresh, path)
    }

    /// Run directory.
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// Root directory of `pause`.
    pub fn pause_root(&self) -> PathBuf {
        self.root.join("pause")
    }

    /// Image store.
    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// The boot that the pids in records are of.
    pub fn boot(&self) -> PathBuf {
        self.root.join("boot")
    }

    /// Records of sandboxes.
    pub fn sandbox_records(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    /// Records of containers.
    pub fn container_records(&self) -> PathBuf {
        self.root.join("containers")
    }

    /// Run-time directory of a sandbox.
    pub fn sandbox(&self, id: &str) -> PathBuf {
        self.run.join("sandboxes").join(id)
    }

    /// Where a sandbox's namespace is pinned.
    pub fn namespace(&self, id: &str, kind: &str) -> PathBuf {
        self.sandbox(id).join("ns").join(kind)
    }

    /// Bundle of a container.
    pub fn bundle(&self, id: &str) -> PathBuf {
        self.run.join("containers").join(id)
    }

    /// Root filesystem of a container.
    pub fn rootfs(&self, id: &str) -> PathBuf {
        self.bundle(id).join("rootfs")
    }

    /// Where an image is mounted for a container's n-th mount.
    pub fn image_mount(&self, id: &str, number: usize) -> PathBuf {
        self.bundle(id).join("images").join(number.to_string())
    }

    /// Where a container's layers or volumes are mounted with the ids of its user namespace.
    pub fn mapped(&self, id: &str, kind: &str) -> PathBuf {
        self.bundle(id).join("mapped").join(kind)
    }

    /// Writable layer and volumes of a container.
    pub fn layer(&self, id: &str) -> PathBuf {
        self.root.join("containers").join(id)
    }

    /// The OCI runtime's state of all containers.
    pub fn runtime_state(&self) -> PathBuf {
        self.run.join("runtime")
    }

    /// A short path for a file of a launch or exec: socket names have a limit of 108 bytes.
    pub fn transient(&self, id: &str, kind: &str) -> PathBuf {
        let short = &id[..id.len().min(16)];
        self.run.join("x").join(format!("{short}.{kind}"))
    }

    /// Removes the files of a launch or exec.
    pub fn remove_transient(&self, id: &str) {
        for kind in ["pid", "log", "tty", "json"] {
            let _ = fs::remove_file(self.transient(id, kind));
        }
    }
}

/// Creates a directory that only root can access.
pub fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a tree. Succeeds if it does not exist; fails if something is mounted in it.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match HostDir::of_file(path) {
        Ok((dir, name)) => dir.remove_tree(name),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}
