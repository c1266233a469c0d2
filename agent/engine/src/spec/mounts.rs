//! Mounts of a container: the kernel's, the sandbox's files, the image's volumes, the pod's.

use std::collections::BTreeSet;
use std::path::Path;

use coracle_proto::cri;
use serde_json::{Value, json};

use super::{Error, Facts};

/// The `mounts` section and what follows from it.
pub struct Mounts {
    /// In the order they are made.
    pub list: Vec<Value>,
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
    let mut list: Vec<Value> = kernel(security)
        .into_iter()
        .filter(|m| !own.contains(m["destination"].as_str().unwrap_or("")))
        .collect();
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
        let host = facts.namespaces.host.contains("ipc");
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
            value["options"].as_array_mut().into_iter().for_each(|o| o.push("rro".into()));
        }
        binds.push(value);
    }
    // Stable: of two at the same depth, the pod's order holds.
    binds.sort_by_key(|m| {
        m["destination"].as_str().unwrap_or("").split('/').filter(|p| !p.is_empty()).count()
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

fn bind(source: &Path, destination: &str, read_only: bool, propagation: &str) -> Value {
    let access = if read_only { "ro" } else { "rw" };
    json!({ "destination": destination, "type": "bind", "source": source,
        "options": ["rbind", propagation, access] })
}

fn kernel(security: &cri::LinuxContainerSecurityContext) -> Vec<Value> {
    let mount = |destination: &str, kind: &str, source: &str, options: &[&str]| json!({ "destination": destination, "type": kind, "source": source, "options": options });
    let access = if security.privileged { "rw" } else { "ro" };
    vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", access]),
    ]
}
