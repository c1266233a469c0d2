//! Enables `br_netfilter`, so that packets between pods on one bridge pass the node's rules.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

const SWITCHES: [&str; 2] =
    ["/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"];

/// Loads the kernel module if needed and sets its sysctls.
pub fn ensure_filtered() -> io::Result<()> {
    if !Path::new(SWITCHES[0]).exists() {
        let mut modprobe = Command::new("modprobe");
        modprobe.arg("br_netfilter").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        modprobe.status()?;
    }
    for switch in SWITCHES {
        if std::fs::read_to_string(switch)?.trim() != "1" {
            std::fs::write(switch, "1")?;
        }
    }
    Ok(())
}
