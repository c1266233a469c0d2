//! Machines: network namespaces on one bridge, with a name, an address and a link of their own each. The trial itself is on the
//! bridge, where clients are.

use coracle_tests::lab::{Lab, run, try_run};
use std::path::PathBuf;

/// The trial's own address.
pub const CLIENTS: &str = "10.88.0.1";
const BRIDGE: &str = "lab0";
/// The table with the rules of partitions.
const TABLE: &str = "nemesis";

/// Makes the bridge.
pub fn make_bridge() {
    run("ip", &["link", "set", "lo", "up"]);
    run("ip", &["link", "add", BRIDGE, "type", "bridge"]);
    run("ip", &["addr", "add", &format!("{CLIENTS}/24"), "dev", BRIDGE]);
    run("ip", &["link", "set", BRIDGE, "up"]);
}

/// A machine.
#[derive(Debug, Clone)]
pub struct Machine {
    pub name: String,
    pub address: String,
    netns: PathBuf,
}

impl Machine {
    /// A machine whose address ends with this number.
    pub fn new(lab: &Lab, name: &str, number: usize) -> Self {
        let machine =
            Self { name: name.to_owned(), address: format!("10.88.0.{number}"), netns: lab.netns(name) };
        let (inside, outside) = (format!("in{number}"), format!("out{number}"));
        run("ip", &["link", "add", &outside, "type", "veth", "peer", "name", &inside]);
        run("ip", &["link", "set", &outside, "master", BRIDGE, "up"]);
        run("ip", &["link", "set", &inside, "netns", &machine.netns.display().to_string()]);
        machine.ip(&["link", "set", "lo", "up"]);
        machine.ip(&["link", "set", &inside, "name", "eth0"]);
        machine.ip(&["addr", "add", &format!("{}/24", machine.address), "dev", "eth0"]);
        machine.ip(&["link", "set", "eth0", "up"]);
        machine.ip(&["route", "add", "default", "via", CLIENTS]);
        machine
    }

    /// What runs its arguments on the machine's network, in the same process.
    pub fn prefix(&self) -> Vec<String> {
        vec!["nsenter".into(), format!("--net={}", self.netns.display())]
    }

    fn ip(&self, args: &[&str]) {
        self.run(&[&["ip"], args].concat());
    }

    fn run(&self, command: &[&str]) {
        let prefix = self.prefix();
        let words: Vec<&str> =
            prefix[1..].iter().map(String::as_str).chain(command.iter().copied()).collect();
        run(&prefix[0], &words);
    }

    /// Drops all packets from and to these addresses.
    pub fn cut(&self, addresses: &[&str]) {
        let set = addresses.join(", ");
        let rules = format!(
            "table inet {TABLE} {{
               chain in {{ type filter hook input priority -300; ip saddr {{ {set} }} drop; }}
               chain out {{ type filter hook output priority -300; ip daddr {{ {set} }} drop; }}
             }}"
        );
        self.run(&["nft", &rules]);
    }

    /// Ends that.
    pub fn heal(&self) {
        let prefix = self.prefix();
        let command = ["nft", "delete", "table", "inet", TABLE];
        let words: Vec<&str> = prefix[1..].iter().map(String::as_str).chain(command).collect();
        // There may be none.
        let _ = try_run(&prefix[0], &words);
    }
}
