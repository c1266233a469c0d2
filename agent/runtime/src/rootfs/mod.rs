//! The file system of a container: what libcontainer mounts, and what is done after it, in the container.
//!
//! libcontainer hides paths before mounts have their propagation, keeps no flags of a path that becomes read-only, and makes
//! devices and links even in a `/dev` of the host.

// Where mounts go.
mod destination;
// What can fail.
mod failure;
// What is done in the container.
mod complete;
// The null device.
mod null;
// System calls that take mounts by descriptors.
pub mod tree;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use libcontainer::rootfs::utils::is_bind;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use oci_spec::runtime::{LinuxDevice, LinuxNamespaceType, Mount, Spec};

use super::error::Error;
use super::propagation::Propagation;

pub use self::failure::RootfsError;

const DEV: &str = "/dev";
const PROC: &str = "/proc";
/// Where mounts of `/dev` are until it is free, if the image has nothing there.
const ASIDE: &str = "/.coracle-dev";
/// Names that are tried for it.
const ASIDE_NAMES: usize = 16;

/// What is left to do in the container, before its process is confined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rootfs {
    propagation: Propagation,
    /// Whether the root mount is shared while others are made: volumes that the container mounts into are peers of the host's.
    shared: bool,
    /// Directories in `/dev` that libcontainer makes for devices, for everybody to write.
    device_directories: Vec<PathBuf>,
    /// Where a directory is mounted that belongs to `/dev`, which then has its own devices; none if there is no such mount.
    aside: Option<PathBuf>,
    /// Whether something is mounted at `/proc`.
    proc: bool,
    /// Mounts that become read-only when all others are made.
    read_only: Vec<PathBuf>,
    read_only_paths: Vec<PathBuf>,
    masked_paths: Vec<PathBuf>,
    /// SELinux label of what hides directories.
    label: Option<String>,
    /// Working directory, which is made if it is missing.
    cwd: PathBuf,
}

impl Rootfs {
    /// Takes out of a configuration what libcontainer does not do as runc does. `root` is the root file system on the host,
    /// `bundle` the directory that sources of mounts are relative to.
    pub fn take_out(spec: &mut Spec, root: &Path, bundle: &Path) -> Result<Self, Error> {
        let mut process = spec.process().clone().ok_or(Error::Missing("process"))?;
        let cwd = process.cwd().clone();
        process.set_cwd("/".into());
        spec.set_process(Some(process));
        let mut mounts = spec.mounts().clone().unwrap_or_default();
        let propagation = Propagation::of(&mounts);
        destination::resolve(&mut mounts, root);
        let mut read_only = Vec::new();
        for mount in &mut mounts {
            if is_bind(mount) {
                let source = mount.source().as_ref().map(|source| bundle.join(source));
                mount.set_source(source);
            } else {
                prepare(mount, root, &mut read_only);
            }
        }
        let bound_dev = mounts.iter().any(|mount| is_bind(mount) && mount.destination() == Path::new(DEV));
        let aside = bound_dev.then(|| free_name(root, &mounts)).transpose()?;
        if let Some(aside) = &aside {
            put_aside(&mut mounts, aside);
        }
        let proc = mounts.iter().any(|mount| mount.destination() == Path::new(PROC));
        spec.set_mounts(Some(mounts));
        let mut top = spec.root().clone().ok_or(Error::Missing("root"))?;
        if top.readonly().unwrap_or(false) {
            read_only.push("/".into());
        }
        top.set_readonly(Some(false));
        spec.set_root(Some(top));
        let mut linux = spec.linux().clone().ok_or(Error::Missing("linux"))?;
        let mut namespaces = linux.namespaces().iter().flatten();
        if !namespaces.any(|namespace| namespace.typ() == LinuxNamespaceType::Mount) {
            return Err(Error::Unsupported("a container without a mount namespace"));
        }
        let paths = |list: &Option<Vec<String>>| list.iter().flatten().map(PathBuf::from).collect();
        let root_propagation = linux.rootfs_propagation().as_deref().map(of_root).transpose()?;
        let taken = Self {
            propagation,
            shared: root_propagation.as_deref() == Some("shared"),
            device_directories: directories(linux.devices().as_deref().unwrap_or_default()),
            aside,
            proc,
            read_only,
            read_only_paths: paths(linux.readonly_paths()),
            masked_paths: paths(linux.masked_paths()),
            label: linux.mount_label().clone().filter(|label| !label.is_empty()),
            cwd,
        };
        linux.set_readonly_paths(None).set_masked_paths(None).set_rootfs_propagation(root_propagation);
        spec.set_linux(Some(linux));
        Ok(taken)
    }
}

/// The propagation of the root mount. libcontainer knows only the names of the recursive ones without their `r`.
fn of_root(name: &str) -> Result<String, Error> {
    match name.strip_prefix('r').unwrap_or(name) {
        known @ ("private" | "shared" | "slave" | "unbindable") => Ok(known.to_owned()),
        _ => Err(Error::Invalid { what: "rootfsPropagation", value: name.to_owned() }),
    }
}

/// Directories between `/dev` and devices.
fn directories(devices: &[LinuxDevice]) -> Vec<PathBuf> {
    let inside = |path: &&Path| path.starts_with(DEV) && *path != Path::new(DEV);
    let above = devices.iter().flat_map(|device| device.path().ancestors().skip(1).filter(inside));
    above.map(Path::to_path_buf).collect()
}

/// As runc has it: a file system in memory has the mode of the directory that it covers, and becomes read-only when everything
/// else is mounted; the devices of the kernel are read-only as a file system, not only as a mount; a mount does not need a source.
fn prepare(mount: &mut Mount, root: &Path, read_only: &mut Vec<PathBuf>) {
    if mount.source().is_none() {
        mount.set_source(Some("none".into()));
    }
    let in_memory = mount.typ().as_deref() == Some("tmpfs");
    let mut options = mount.options().clone().unwrap_or_default();
    if in_memory && !options.iter().any(|option| option.starts_with("mode=")) {
        options.extend(mode_of(root, mount.destination()).map(|mode| format!("mode={mode:04o}")));
    }
    if in_memory || mount.destination() == Path::new(DEV) {
        let access = options.iter().rev().find(|option| *option == "ro" || *option == "rw");
        if access.is_some_and(|access| access == "ro") {
            read_only.push(mount.destination().clone());
        }
        options.retain(|option| option != "ro");
    }
    if mount.typ().as_deref() == Some("sysfs") && options.iter().any(|option| option == "ro") {
        // libcontainer takes `ro` for the mount, and gives this to the file system.
        options.push("ro=".into());
    }
    mount.set_options(Some(options));
}

/// Mode of a directory of the image.
fn mode_of(root: &Path, path: &Path) -> Option<u32> {
    let top = fs::File::open(root).ok()?;
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let found = fs::File::from(openat2(&top, path, how).ok()?).metadata().ok()?;
    Some(found.permissions().mode() & 0o7777)
}

/// A name at the top that neither the image nor a mount has: a link or files of the image there could not be trusted.
fn free_name(root: &Path, mounts: &[Mount]) -> Result<PathBuf, Error> {
    for number in 0..ASIDE_NAMES {
        let name = if number == 0 { ASIDE.to_owned() } else { format!("{ASIDE}-{number}") };
        if mounts.iter().any(|mount| mount.destination().starts_with(&name)) {
            continue;
        }
        let path = root.join(name.trim_start_matches('/'));
        match fs::symlink_metadata(&path) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(name.into()),
            Err(error) => return Err(Error::file(path)(error)),
        }
    }
    Err(Error::Unsupported("a /dev of the host with an image that has all names of /.coracle-dev"))
}

/// Lets libcontainer make its devices and links in a file system of their own, and mount a `/dev` of the host, with all that is
/// below it, at `aside`.
fn put_aside(mounts: &mut Vec<Mount>, aside: &Path) {
    for mount in mounts.iter_mut() {
        if let Ok(below) = mount.destination().strip_prefix(DEV) {
            let place = if below.as_os_str().is_empty() { aside.to_owned() } else { aside.join(below) };
            mount.set_destination(place);
        }
    }
    let mut own = Mount::default();
    own.set_destination(DEV.into())
        .set_typ(Some("tmpfs".into()))
        .set_source(Some("tmpfs".into()))
        .set_options(Some(vec!["nosuid".into(), "mode=755".into()]));
    mounts.insert(0, own);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn taken(change: impl FnOnce(&mut Value)) -> (Spec, Result<Rootfs, Error>) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("cache")).unwrap();
        fs::set_permissions(dir.path().join("cache"), fs::Permissions::from_mode(0o1770)).unwrap();
        let mut spec = json!({
            "ociVersion": "1.1.0",
            "process": { "user": { "uid": 1, "gid": 1 }, "args": ["true"], "cwd": "/srv" },
            "root": { "path": "rootfs", "readonly": true },
            "mounts": [],
            "linux": { "namespaces": [{ "type": "mount" }], "maskedPaths": ["/proc/keys"], "readonlyPaths": ["/proc/sys"] },
        });
        change(&mut spec);
        let mut spec: Spec = serde_json::from_value(spec).unwrap();
        let rootfs = Rootfs::take_out(&mut spec, dir.path(), Path::new("/bundle"));
        (spec, rootfs)
    }

    fn destinations(spec: &Spec) -> Vec<String> {
        let mounts = spec.mounts().iter().flatten();
        mounts.map(|mount| mount.destination().display().to_string()).collect()
    }

    #[test]
    fn libcontainer_neither_hides_paths_nor_enters_the_working_directory() {
        let (spec, rootfs) = taken(|_| {});
        let rootfs = rootfs.unwrap();
        assert_eq!(rootfs.masked_paths, [PathBuf::from("/proc/keys")]);
        assert_eq!(rootfs.read_only_paths, [PathBuf::from("/proc/sys")]);
        assert_eq!((rootfs.read_only, rootfs.cwd), (vec!["/".into()], "/srv".into()));
        let linux = spec.linux().as_ref().unwrap();
        assert_eq!((linux.masked_paths(), linux.readonly_paths()), (&None, &None));
        assert_eq!(spec.root().as_ref().unwrap().readonly(), Some(false));
        assert_eq!(spec.process().as_ref().unwrap().cwd(), Path::new("/"));
    }

    #[test]
    fn a_directory_at_dev_is_mounted_aside() {
        let mounts = json!([
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev/", "type": "bind", "source": "/dev", "options": ["rbind"] },
            { "destination": "/dev/pts", "type": "devpts", "source": "devpts" },
            { "destination": "/device", "type": "bind", "source": "x", "options": ["rbind"] },
        ]);
        let (spec, rootfs) = taken(|spec| spec["mounts"] = mounts);
        let rootfs = rootfs.unwrap();
        assert_eq!((rootfs.aside, rootfs.proc), (Some("/.coracle-dev".into()), true));
        assert_eq!(destinations(&spec), ["/dev", "/proc", "/.coracle-dev", "/.coracle-dev/pts", "/device"]);
        let mut sources = spec.mounts().iter().flatten().map(|mount| mount.source().clone().unwrap());
        assert_eq!(sources.next_back().unwrap(), Path::new("/bundle/x"));
        let own = json!([{ "destination": "/dev", "type": "tmpfs", "source": "tmpfs" }]);
        let rootfs = taken(|spec| spec["mounts"] = own).1.unwrap();
        assert_eq!((rootfs.aside, rootfs.proc), (None, false));
    }

    #[test]
    fn nothing_of_the_image_is_where_a_directory_for_dev_is_mounted() {
        let root = tempfile::tempdir().unwrap();
        let mounts: Vec<Mount> =
            serde_json::from_value(json!([{ "destination": "/.coracle-dev-2/below", "type": "tmpfs" }]))
                .unwrap();
        let found = || free_name(root.path(), &mounts);
        assert_eq!(found().unwrap(), Path::new("/.coracle-dev"));
        std::os::unix::fs::symlink("nowhere", root.path().join(".coracle-dev")).unwrap();
        assert_eq!(found().unwrap(), Path::new("/.coracle-dev-1"));
        fs::create_dir(root.path().join(".coracle-dev-1")).unwrap();
        assert_eq!(found().unwrap(), Path::new("/.coracle-dev-3"));
        for number in 3..ASIDE_NAMES {
            fs::create_dir(root.path().join(format!(".coracle-dev-{number}"))).unwrap();
        }
        assert!(matches!(found(), Err(Error::Unsupported(_))));
    }

    #[test]
    fn a_file_system_in_memory_has_the_mode_of_its_directory_and_is_read_only_at_last() {
        let mounts = json!([
            { "destination": "/cache", "type": "tmpfs", "options": ["ro"] },
            { "destination": "/missing", "type": "tmpfs", "source": "tmpfs", "options": ["size=1k"] },
            { "destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["mode=700"] },
            { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nodev", "ro"] },
        ]);
        let (spec, rootfs) = taken(|spec| spec["mounts"] = mounts);
        assert_eq!(rootfs.unwrap().read_only, [PathBuf::from("/cache"), PathBuf::from("/")]);
        let options: Vec<_> =
            spec.mounts().iter().flatten().map(|mount| mount.options().clone().unwrap().join(",")).collect();
        assert_eq!(options, ["mode=1770", "size=1k", "mode=700", "nodev,ro,ro="]);
    }

    #[test]
    fn directories_of_devices_are_those_in_dev() {
        let device = |path: &str| serde_json::from_value(json!({ "path": path, "type": "c" })).unwrap();
        let found = directories(&[device("/dev/net/tun"), device("/dev/fuse"), device("/other/x")]);
        assert_eq!(found, [PathBuf::from("/dev/net")]);
    }

    #[test]
    fn every_propagation_of_the_root_is_known_and_a_mount_namespace_is_needed() {
        for (given, wanted) in [("rslave", "slave"), ("rshared", "shared"), ("private", "private")] {
            let (spec, _) = taken(|spec| spec["linux"]["rootfsPropagation"] = json!(given));
            assert_eq!(spec.linux().as_ref().unwrap().rootfs_propagation().as_deref(), Some(wanted));
        }
        let (_, unknown) = taken(|spec| spec["linux"]["rootfsPropagation"] = json!("sideways"));
        assert!(matches!(unknown, Err(Error::Invalid { .. })));
        let (_, without) = taken(|spec| spec["linux"]["namespaces"] = json!([]));
        assert!(matches!(without, Err(Error::Unsupported(_))));
    }
}
