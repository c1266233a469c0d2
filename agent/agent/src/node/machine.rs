//! Properties of the machine, from the kernel and a few files.

use k8s_openapi::api::core::v1::{NodeSwapStatus, NodeSystemInfo};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use crate::pod::all_pods::swap_total;
use crate::pod::huge_pages;

/// Facts that do not change while the agent runs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Cpu in thousandths, memory and disk in bytes, huge pages.
    pub capacity: BTreeMap<String, i64>,
    /// For `status.nodeInfo`.
    pub info: NodeSystemInfo,
    /// Host name of the kernel.
    pub hostname: String,
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Host name of the kernel.
pub fn hostname() -> String {
    nix::sys::utsname::uname()
        .map(|uname| uname.nodename().to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Reads the machine; `data` is where pods' data goes.
pub fn read_machine(data: &Path) -> Machine {
    let uname = nix::sys::utsname::uname().ok();
    let text = |part: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
        uname.as_ref().map(|uname| part(uname).to_string_lossy().into_owned()).unwrap_or_default()
    };
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut capacity = BTreeMap::from([
        ("cpu".to_owned(), i64::try_from(cpus).unwrap_or(1) * 1000),
        ("memory".to_owned(), memory(&read("/proc/meminfo"))),
    ]);
    if let Ok(disk) = nix::sys::statvfs::statvfs(data) {
        let bytes = disk.blocks() * disk.fragment_size();
        capacity.insert("ephemeral-storage".to_owned(), i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    capacity.extend(huge_page_capacity(Path::new(huge_pages::SIZES)));
    let release = read("/etc/os-release");
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
    Machine {
        capacity,
        hostname: hostname(),
        info: NodeSystemInfo {
            architecture: architecture().to_owned(),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            kernel_version: text(|uname| uname.release()),
            kubelet_version: coracle_proto::version::BUILD.to_owned(),
            kube_proxy_version: String::new(),
            machine_id: read("/etc/machine-id"),
            operating_system: "linux".to_owned(),
            os_image: pretty.trim_matches('"').to_owned(),
            system_uuid: read("/sys/class/dmi/id/product_uuid"),
            container_runtime_version: String::new(),
            swap: swap(swap_total()),
        },
    }
}

/// The architecture as images name it.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

fn memory(meminfo: &str) -> i64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<i64>().ok()).unwrap_or(0)
        * 1024
}

/// Swap of the machine, unless it has none.
fn swap(bytes: i64) -> Option<NodeSwapStatus> {
    (bytes > 0).then_some(NodeSwapStatus { capacity: Some(bytes) })
}

/// `hugepages-2Mi` and so on, with how many bytes of them there are.
fn huge_page_capacity(dir: &Path) -> BTreeMap<String, i64> {
    let bytes = |size: i64| {
        let count = read(&dir.join(huge_pages::directory(size)).join("nr_hugepages").to_string_lossy());
        count.parse().unwrap_or(0_i64).saturating_mul(size)
    };
    huge_pages::sizes(dir).into_iter().map(|size| (huge_pages::resource(size), bytes(size))).collect()
}

/// Local address used to connect to the API server.
pub fn address_towards(server: SocketAddr) -> Option<IpAddr> {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(server).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_this_machine() {
        let temp = tempfile::tempdir().unwrap();
        let machine = read_machine(temp.path());
        assert!(
            machine.capacity["cpu"] >= 1000
                && machine.capacity["memory"] > 0
                && machine.capacity["ephemeral-storage"] > 0
        );
        assert!(!machine.info.kernel_version.is_empty() && !machine.info.os_image.is_empty());
        assert_eq!(memory("MemTotal:  2048 kB\nMemFree: 1 kB\n"), 2 << 20);
        assert_eq!((swap(0), swap(4096)), (None, Some(NodeSwapStatus { capacity: Some(4096) })));
        assert_eq!(address_towards("127.0.0.1:6443".parse().unwrap()), Some("127.0.0.1".parse().unwrap()));
    }
}
