//! Contexts of mounts and devices.

use coracle_proto::cri;

use super::contexts::{Context, privileged, security, spaces, user, user_namespace};

fn bind(path: &str, change: impl FnOnce(&mut cri::Mount)) -> cri::Mount {
    let mut mount =
        cri::Mount { container_path: path.into(), host_path: "/var/lib".into(), ..Default::default() };
    change(&mut mount);
    mount
}

type Container = cri::ContainerConfig;

/// Volumes of every kind that may be written or not, in directories that the image has or not.
fn volumes(container: &mut Container) {
    container.mounts.push(bind("/a", |_| {}));
    container.mounts.push(bind("/b", |mount| mount.readonly = true));
    container.mounts.push(bind("/c", |mount| {
        mount.propagation = cri::MountPropagation::PropagationHostToContainer.into();
    }));
    container.mounts.push(bind("/d", |mount| {
        mount.readonly = true;
        mount.recursive_read_only = true;
    }));
    container.mounts.push(bind("/deep/below/a", |_| {}));
}

/// A directory of devices as that of a host, without being it.
fn devices_of_host(container: &mut Container) {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let dir = std::env::temp_dir().join("coracle-devices");
    std::fs::create_dir_all(&dir).expect("a directory is made");
    let mode = Mode::from_bits_truncate(0o666);
    for (name, major, minor) in [("null", 1, 3), ("zero", 1, 5), ("console", 5, 1), ("ptmx", 5, 2)] {
        let _ = mknod(&dir.join(name), SFlag::S_IFCHR, mode, makedev(major, minor));
    }
    let host_path = dir.display().to_string();
    container.mounts.push(bind("/dev", |mount| mount.host_path = host_path));
}

fn hidden_paths(container: &mut Container) {
    let text = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect();
    security(container).masked_paths = text(&["/etc", "/proc/version", "/etc/passwd/below", "/nowhere"]);
    security(container).readonly_paths = text(&["/dev/shm", "/tmp", "/proc/sys", "/nowhere"]);
}

/// All of them.
pub const CONTEXTS: &[Context] = &[
    Context { name: "volumes", change: |_, c| volumes(c) },
    Context {
        name: "volumes that the container mounts into",
        change: |s, c| {
            privileged(s, c);
            let both = cri::MountPropagation::PropagationBidirectional.into();
            c.mounts.push(bind("/a", |mount| mount.propagation = both));
            c.mounts.push(bind("/b", |_| {}));
        },
    },
    Context {
        name: "device",
        change: |_, c| {
            c.devices.push(cri::Device {
                container_path: "/dev/net/tun".into(),
                host_path: "/dev/net/tun".into(),
                permissions: "rw".into(),
            });
        },
    },
    Context {
        name: "volume at a link to nothing",
        change: |_, c| c.mounts.push(bind("/etc/localtime", |mount| mount.host_path = "/etc/hosts".into())),
    },
    Context {
        name: "devices of the host",
        change: |s, c| {
            privileged(s, c);
            devices_of_host(c);
        },
    },
    Context {
        name: "devices of the host, terminal, mounts go both ways",
        change: |s, c| {
            privileged(s, c);
            devices_of_host(c);
            c.tty = true;
            let both = cri::MountPropagation::PropagationBidirectional.into();
            c.mounts.push(bind("/a", |mount| mount.propagation = both));
        },
    },
    Context {
        name: "working directory that is not there",
        change: |_, c| {
            user(c, 1000);
            c.working_dir = "/made/on/demand".into();
        },
    },
    Context {
        name: "working directory that is not there, read-only root",
        change: |_, c| {
            security(c).readonly_rootfs = true;
            c.working_dir = "/made/on/demand".into();
        },
    },
    Context {
        name: "working directory that is hidden",
        change: |_, c| {
            hidden_paths(c);
            c.working_dir = "/etc".into();
        },
    },
    Context {
        name: "hidden paths, another user, read-only root",
        change: |_, c| {
            hidden_paths(c);
            user(c, 1000);
            security(c).readonly_rootfs = true;
        },
    },
    Context {
        name: "user namespace, volumes, hidden paths",
        change: |s, c| {
            user_namespace(s, c);
            volumes(c);
            hidden_paths(c);
        },
    },
    Context {
        name: "user namespace, read-only root, working directory that is not there",
        change: |s, c| {
            user_namespace(s, c);
            user(c, 1000);
            security(c).readonly_rootfs = true;
            c.working_dir = "/made/on/demand".into();
        },
    },
    Context {
        name: "user namespace, device",
        change: |s, c| {
            user_namespace(s, c);
            c.devices.push(cri::Device {
                container_path: "/dev/net/tun".into(),
                host_path: "/dev/net/tun".into(),
                permissions: "rw".into(),
            });
        },
    },
    Context {
        name: "user namespace, terminal of another user",
        change: |s, c| {
            user_namespace(s, c);
            user(c, 1000);
            c.tty = true;
        },
    },
    Context {
        name: "user namespace, processes of the pod",
        change: |s, c| {
            user_namespace(s, c);
            spaces(s, c, |options| options.pid = cri::NamespaceMode::Pod.into());
        },
    },
];
