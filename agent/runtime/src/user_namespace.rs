//! What a container with a user namespace needs of the host.
//!
//! libcontainer opens namespaces and sources of bind mounts when its process has joined the user namespace already. Root of the
//! container may not enter the directories of the node in which they are, so they are opened before: namespaces as
//! descriptors, sources as mounts in a directory that everybody may enter, in a mount namespace of this process.

use std::fs::{self, DirBuilder, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use coracle_keeper::{clone3, pidfd};
use libcontainer::rootfs::utils::is_bind;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pause};
use oci_spec::runtime::{Linux, LinuxIdMapping, LinuxNamespaceType, Mount, Spec};

use super::error::Error;
use super::rootfs::tree;

/// Directories of the host that one of is free to be covered: nothing that the container needs is in it.
const POINTS: [&str; 6] = ["/dev/shm", "/dev/mqueue", "/mnt", "/media", "/srv", "/opt"];
const NONE: Option<&str> = None;

/// What has to stay open until the container is created.
#[derive(Debug, Default)]
pub struct Opened(#[allow(dead_code)] Vec<File>);

/// Opens what the configuration names of the host, if it has a user namespace. `needed` are paths that libcontainer uses.
pub fn open(spec: &mut Spec, needed: &[&Path]) -> Result<Opened, Error> {
    let mut linux = spec.linux().clone().ok_or(Error::Missing("linux"))?;
    let mut namespaces = linux.namespaces().clone().unwrap_or_default();
    if !namespaces.iter().any(|namespace| namespace.typ() == LinuxNamespaceType::User) {
        return Ok(Opened::default());
    }
    let mut opened = Vec::new();
    for namespace in &mut namespaces {
        let file = match namespace.path() {
            Some(path) => File::open(path).map_err(Error::file(path))?,
            // For one that it makes itself, libcontainer wants cgroups of systemd.
            None if namespace.typ() == LinuxNamespaceType::User => create(&linux)?,
            None => continue,
        };
        namespace.set_path(Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into()));
        opened.push(file);
    }
    linux.set_namespaces(Some(namespaces));
    spec.set_linux(Some(linux));
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    stage(&mut mounts, needed)?;
    spec.set_mounts(Some(mounts));
    Ok(Opened(opened))
}

/// Makes a user namespace.
fn create(linux: &Linux) -> Result<File, Error> {
    let maps = [("uid_map", lines(linux.uid_mappings())?), ("gid_map", lines(linux.gid_mappings())?)];
    let child = clone3(CloneFlags::CLONE_NEWUSER, None).map_err(Error::file("user namespace"))?;
    let Some((pid, process)) = child else {
        let _ = set_pdeathsig(Signal::SIGKILL);
        loop {
            pause();
        }
    };
    let map = || {
        for (file, lines) in maps {
            let path = format!("/proc/{pid}/{file}");
            fs::write(&path, lines).map_err(Error::file(path))?;
        }
        let path = format!("/proc/{pid}/ns/user");
        File::open(&path).map_err(Error::file(path))
    };
    let made = map();
    let _ = pidfd::kill(&process, libc::SIGKILL);
    let _ = waitpid(Pid::from_raw(pid), None);
    made
}

/// The lines of a map.
fn lines(ids: &Option<Vec<LinuxIdMapping>>) -> Result<String, Error> {
    let line = |id: &LinuxIdMapping| format!("{} {} {}\n", id.container_id(), id.host_id(), id.size());
    let lines: String = ids.iter().flatten().map(line).collect();
    if lines.is_empty() { Err(Error::Missing("mappings of a user namespace")) } else { Ok(lines) }
}

/// Mounts the sources where the container's root gets to them.
fn stage(mounts: &mut [Mount], needed: &[&Path]) -> Result<(), Error> {
    if !mounts.iter().any(is_bind) {
        return Ok(());
    }
    let point = point(needed).ok_or(Error::Missing("directory for the sources of mounts"))?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(Error::kernel("mount namespace"))?;
    // Mounts that the host makes later still come through; none goes back.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)
        .map_err(Error::kernel("mount propagation"))?;
    // All are taken before the directory is covered: one may be in it.
    let trees = mounts.iter().map(tree_of).collect::<Result<Vec<_>, _>>()?;
    mount(Some("tmpfs"), point, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=755"))
        .map_err(Error::kernel("mount of sources"))?;
    for (number, (mount, tree)) in mounts.iter_mut().zip(trees).enumerate() {
        let Some((tree, directory)) = tree else { continue };
        let at = point.join(number.to_string());
        attach(&tree, directory, &at)?;
        mount.set_source(Some(at));
    }
    Ok(())
}

fn point(needed: &[&Path]) -> Option<&'static Path> {
    let free = |point: &&Path| !needed.iter().any(|path| path.starts_with(point)) && point.is_dir();
    POINTS.map(Path::new).into_iter().find(free)
}

/// The source of a bind mount, and whether it is a directory.
fn tree_of(mount: &Mount) -> Result<Option<(OwnedFd, bool)>, Error> {
    let Some(source) = mount.source().as_ref().filter(|_| is_bind(mount)) else { return Ok(None) };
    let place = tree::place(source).map_err(Error::file(source))?;
    let directory = place.metadata().map_err(Error::file(source))?.is_dir();
    let recursive = mount.options().iter().flatten().any(|option| option == "rbind");
    let tree = tree::clone(&place, recursive).map_err(Error::mount(source))?;
    Ok(Some((tree, directory)))
}

fn attach(tree: &OwnedFd, directory: bool, at: &Path) -> Result<(), Error> {
    match directory {
        true => DirBuilder::new().mode(0o755).create(at),
        false => File::create(at).map(drop),
    }
    .map_err(Error::file(at))?;
    let place = tree::place(at).map_err(Error::file(at))?;
    tree::attach(tree, &place).map_err(Error::mount(at))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn spec(namespaces: serde_json::Value) -> Spec {
        let spec =
            json!({ "ociVersion": "1.1.0", "root": { "path": "/" }, "linux": { "namespaces": namespaces } });
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn namespaces_are_opened_only_with_a_user_namespace() {
        let path = "/proc/self/ns/net";
        let mut plain = spec(json!([{ "type": "network", "path": path }]));
        open(&mut plain, &[]).unwrap();
        let first = |spec: &Spec| {
            let linux = spec.linux().as_ref().unwrap();
            linux.namespaces().as_ref().unwrap()[0].path().clone().unwrap()
        };
        assert_eq!(first(&plain), Path::new(path));
        let user = json!({ "type": "user", "path": "/proc/self/ns/user" });
        let mut mapped = spec(json!([{ "type": "network", "path": path }, user]));
        let opened = open(&mut mapped, &[]).unwrap();
        assert_eq!(opened.0.len(), 2);
        let identity = |path: &Path| fs::read_link(path).unwrap();
        assert_eq!(identity(&first(&mapped)), identity(Path::new(path)));
        assert!(matches!(open(&mut spec(json!([{ "type": "user" }])), &[]), Err(Error::Missing(_))));
    }

    #[test]
    fn a_directory_in_use_is_not_covered() {
        let usual = point(&[]).unwrap();
        assert_ne!(point(&[&usual.join("images/rootfs")]), Some(usual));
    }
}
