//! Kernel settings that the proxy needs.

use coracle_cli::causes;
use std::fs;
use std::path::Path;

const FORWARD: [&str; 2] = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
const BRIDGE: [&str; 2] = ["net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"];
const LOOPBACK: &str = "net/ipv4/conf/all/route_localnet";

/// Sets them; whether what stays on a bridge is seen, IPv4 and IPv6.
pub fn prepare() -> [bool; 2] {
    for path in FORWARD.iter().chain([&LOOPBACK]) {
        switch_on(path);
    }
    if !Path::new("/proc/sys").join(BRIDGE[0]).exists() {
        // The module may be there without having been needed; without it sources are hidden instead.
        let _ = std::process::Command::new("modprobe").args(["-q", "br_netfilter"]).status();
    }
    BRIDGE.map(switch_on)
}

fn switch_on(path: &str) -> bool {
    let path = Path::new("/proc/sys").join(path);
    if fs::read_to_string(&path).is_ok_and(|value| value.trim() == "1") {
        return true;
    }
    fs::write(&path, "1")
        .inspect_err(
            |error| tracing::warn!(path = %path.display(), error = %causes::chain(error), "sysctl not set"),
        )
        .is_ok()
}
