//! Mounts of a container: the kernel's, the sandbox's files, the image's volumes, the pod's.

use std::collections::BTreeSet;
use std::path::Path;

use coracle_proto::cri;
use oci_spec::runtime::{LinuxNamespaceType, Mount};

use super::{Error, Facts};

/// The `mounts` section and what follows from it.
pub struct Mounts {
    /// In the order they are made.
    pub list: Vec<Mount>,
    /// Propagation of the root filesystem, when a mount needs one.
    pub root_propagation: Option<&'static str>,
}

/// All mounts, parents before what is mounted inside them.
pub fn generate(
    config: &cri::ContainerConfig,
    security: &cri::LinuxContainerSecurityContext,
    facts: &Facts,
) -> Result<Mounts, Error> {
    let own: BTreeSet<String> = config.mounts.iter().map(|m| clean(&m.container_path)).collect();
    let replaced = |m: &Mount| m.destination().to_str().is_some_and(|at| own.contains(at));
    let mut list: Vec<Mount> = kernel(security).into_iter().filter(|m| !replaced(m)).collect();
    let mut binds = Vec::new();
    let read_only_files = security.readonly_rootfs;
    for (file, destination) in
        [("hostname", "/etc/hostname"), ("hosts", "/etc/hosts"), ("resolv.conf", "/etc/resolv.conf")]
    {
        if !own.contains(destination) {
            let source = facts.sandbox_dir.join(file);
            binds.push(bind(&source, destination, read_only_files, "rprivate"));
        }
    }
    if !own.contains("/dev/shm") {
        let host = facts.namespaces.host.contains(&LinuxNamespaceType::Ipc);
        let source = if host { "/dev/shm".into() } else { facts.sandbox_dir.join("shm") };
        binds.push(bind(&source, "/dev/shm", false, "rprivate"));
    }
    for (destination, source) in &facts.volumes {
        if !own.contains(destination) {
            binds.push(bind(source, destination, false, "rprivate"));
        }
    }
    let mut root_propagation = None;
    for mount in &config.mounts {
        let destination = clean(&mount.container_path);
        if !destination.starts_with('/') || destination == "/" {
            return Err(Error::Relative { what: "mount destination", path: mount.container_path.clone() });
        }
        let propagation = match mount.propagation() {
            cri::MountPropagation::PropagationPrivate => "rprivate",
            cri::MountPropagation::PropagationHostToContainer => {
                root_propagation.get_or_insert("rslave");
                "rslave"
            }
            cri::MountPropagation::PropagationBidirectional => {
                root_propagation = Some("rshared");
                "rshared"
            }
        };
        let mut value = bind(Path::new(&mount.host_path), &destination, mount.readonly, propagation);
        if mount.recursive_read_only {
            let refused = |why| Err(Error::RecursiveReadOnly { path: mount.container_path.clone(), why });
            if !mount.readonly {
                return refused("it is not read-only");
            }
            if propagation != "rprivate" {
                return refused("mounts are propagated to it");
            }
            value.options_mut().get_or_insert_default().push("rro".into());
        }
        binds.push(value);
    }
    // Stable: of two at the same depth, the pod's order holds.
    binds.sort_by_key(|m| {
        m.destination().to_string_lossy().split('/').filter(|part| !part.is_empty()).count()
    });
    list.extend(binds);
    Ok(Mounts { list, root_propagation })
}

fn clean(path: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"))
}

fn entry(destination: &str, kind: &str, source: &Path, options: &[&str]) -> Mount {
    let mut mount = Mount::default();
    mount
        .set_destination(destination.into())
        .set_typ(Some(kind.to_owned()))
        .set_source(Some(source.to_owned()))
        .set_options(Some(options.iter().map(|&option| option.to_owned()).collect()));
    mount
}

fn bind(source: &Path, destination: &str, read_only: bool, propagation: &str) -> Mount {
    let access = if read_only { "ro" } else { "rw" };
    entry(destination, "bind", source, &["rbind", propagation, access])
}

fn kernel(security: &cri::LinuxContainerSecurityContext) -> [Mount; 6] {
    // The source of these is the name of their type.
    let mount =
        |destination: &str, kind: &str, options: &[&str]| entry(destination, kind, Path::new(kind), options);
    let access = if security.privileged { "rw" } else { "ro" };
    [
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", access]),
    ]
}
