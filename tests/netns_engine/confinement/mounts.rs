//! Contexts of mounts and devices.

use coracle_proto::cri;

use super::contexts::Context;

fn bind(path: &str, change: impl FnOnce(&mut cri::Mount)) -> cri::Mount {
    let mut mount =
        cri::Mount { container_path: path.into(), host_path: "/var/lib".into(), ..Default::default() };
    change(&mut mount);
    mount
}

/// All of them.
pub const CONTEXTS: &[Context] = &[
    Context {
        name: "volumes",
        change: |_, c| {
            c.mounts.push(bind("/a", |_| {}));
            c.mounts.push(bind("/b", |mount| mount.readonly = true));
            c.mounts.push(bind("/c", |mount| {
                mount.propagation = cri::MountPropagation::PropagationHostToContainer.into()
            }));
            c.mounts.push(bind("/d", |mount| {
                mount.readonly = true;
                mount.recursive_read_only = true;
            }));
            c.mounts.push(bind("/deep/below/a", |_| {}));
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
];
