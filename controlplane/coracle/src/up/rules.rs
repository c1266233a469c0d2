//! Packet forwarding of the hub: outbound packets of the nodes go to slirp4netns, or are rejected without it.

use super::network;
use super::process::Process;
use anyhow::{Context, anyhow, ensure};
use coracle_cni::route::{Cidr, Route, RouteSpec, Rule};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

/// Routing table for outbound packets while there is no default route, and the priority of the rule that selects it.
const TABLE: u32 = 89;
const PRIORITY: u32 = 40000;

/// Kernel settings, as paths below `/proc/sys/net` and their values.
const SWITCHES: [(&str, &str); 3] =
    [("ipv4/ip_forward", "1"), ("ipv4/icmp_ratelimit", "0"), ("ipv6/conf/all/forwarding", "1")];

/// Outbound packets get the hub's address. Without slirp4netns they are rejected with an ICMP error, so that both TCP and UDP
/// clients fail at once.
const RULES: &str = r#"table ip coracle-outbound
delete table ip coracle-outbound
table ip coracle-outbound {
    chain leave { type nat hook postrouting priority 100; oifname "out0" masquerade; }
    chain stay { type filter hook forward priority 0; oifname "lo" reject with icmp type net-prohibited; }
}
"#;

/// A thread in the network namespace of a hub that sets up its rules. Dropping this waits for the thread, so that rules are
/// never left half done when another part of `up` fails.
pub struct Rules(Option<JoinHandle<anyhow::Result<()>>>);

impl Rules {
    /// Starts to set up the rules of a hub. Idempotent.
    pub fn write(hub: &Process) -> anyhow::Result<Self> {
        let netns = network::namespace(hub)?;
        // The hub's own mount of /proc is writable even if that of the machine is read-only.
        let switches = PathBuf::from(format!("/proc/{}/root/proc/sys/net", hub.pid));
        let work = move || netns.within(|| write(&switches)).unwrap_or_else(|error| Err(error.into()));
        let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(work);
        Ok(Rules(Some(thread.context("a thread for the rules of the hub")?)))
    }

    /// Waits for the result.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.join()
    }

    fn join(&mut self) -> anyhow::Result<()> {
        let Some(thread) = self.0.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(anyhow!("the thread panicked")))
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

/// slirp4netns adds a default route. Without one, packets reach [`TABLE`], whose only route leads to loopback, where nftables
/// rejects them; if nftables fails, the route itself prohibits them.
fn write(switches: &Path) -> anyhow::Result<()> {
    for (name, value) in SWITCHES {
        let path = switches.join(name);
        // Not every kernel has IPv6.
        if path.exists() || !name.starts_with("ipv6/") {
            std::fs::write(&path, value).with_context(|| path.display().to_string())?;
        }
    }
    let mut route = Route::here()?;
    route.remove_rule(PRIORITY)?;
    route.add_rule(&Rule { priority: PRIORITY, input: network::BRIDGE, table: TABLE })?;
    let destination = Cidr { ip: Ipv4Addr::UNSPECIFIED.into(), prefix: 0 };
    let loaded = load();
    match loaded {
        Ok(()) => route.replace_route(&RouteSpec {
            destination,
            gateway: None,
            link: network::LOOPBACK,
            mtu: 0,
            advmss: 0,
            priority: 0,
            table: TABLE,
            scope: None,
        })?,
        Err(_) => route.prohibit(destination, TABLE)?,
    }
    loaded
}

/// Loads the rules of nftables in the network namespace of this thread.
fn load() -> anyhow::Result<()> {
    let mut nft = Command::new("nft");
    nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = nft.spawn().context("nft")?;
    if let Some(mut stdin) = child.stdin.take() {
        // If nft ends before it has read everything, its exit status and stderr say why.
        let _ = stdin.write_all(RULES.as_bytes());
    }
    let output = child.wait_with_output().context("nft")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
