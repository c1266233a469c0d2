//! The CNI configuration for the node's pod CIDRs.

use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::Path;

const FILE: &str = "10-coracle.conflist";

/// What the configuration is made from.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// Where addresses in use are kept.
    pub data: &'a Path,
    /// The node's ranges.
    pub pod_cidrs: &'a [String],
    /// Largest packet; the kernel's choice when not known.
    pub mtu: Option<u32>,
    /// The bridge plugin masquerades.
    pub masquerade: bool,
    /// The plugin for limits of traffic is installed; a node must not wait for it.
    pub bandwidth: bool,
}

/// The configuration: our bridge with addresses from the node's ranges, host ports, and limits of traffic.
pub fn conflist(network: &Network<'_>) -> Value {
    let Network { data, pod_cidrs, mtu, masquerade, bandwidth } = *network;
    let ranges: Vec<Value> = pod_cidrs.iter().map(|cidr| json!([{"subnet": cidr}])).collect();
    let routes: Vec<Value> = pod_cidrs
        .iter()
        .map(|cidr| json!({"dst": if cidr.contains(':') { "::/0" } else { "0.0.0.0/0" }}))
        .collect();
    let mut plugins = vec![
        json!({
            "type": "bridge",
            "bridge": "coracle0",
            "isGateway": true,
            "ipMasq": masquerade,
            "mtu": mtu.unwrap_or(0),
            "hairpinMode": true,
            "ipam": {"type": "host-local", "dataDir": data, "ranges": ranges, "routes": routes},
        }),
        json!({"type": "portmap", "capabilities": {"portMappings": true}}),
    ];
    if bandwidth {
        plugins.push(json!({"type": "bandwidth", "capabilities": {"bandwidth": true}}));
    }
    json!({"cniVersion": "1.0.0", "name": "cbr0", "plugins": plugins})
}

/// Writes the configuration atomically if it changed; returns whether it did.
pub fn write(dir: &Path, network: &Network<'_>) -> io::Result<bool> {
    let text = format!("{:#}\n", conflist(network));
    let path = dir.join(FILE);
    if fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return Ok(false);
    }
    fs::create_dir_all(dir)?;
    let fresh = dir.join(format!(".{FILE}.new"));
    fs::write(&fresh, text)?;
    fs::rename(fresh, path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn written_once() {
        let temp = tempfile::tempdir().unwrap();
        let ranges = ["10.244.1.0/24".to_owned(), "fd00:1::/64".to_owned()];
        let network = Network {
            data: Path::new("/state"),
            pod_cidrs: &ranges,
            mtu: Some(1450),
            masquerade: false,
            bandwidth: true,
        };
        assert!(write(temp.path(), &network).unwrap());
        assert!(!write(temp.path(), &network).unwrap());
        let read: Value = serde_json::from_slice(&fs::read(temp.path().join(FILE)).unwrap()).unwrap();
        assert_eq!(read["plugins"][0]["ipam"]["ranges"][1][0]["subnet"], "fd00:1::/64");
        assert_eq!(read["plugins"][0]["ipam"]["routes"][1]["dst"], "::/0");
        assert_eq!(read["plugins"][0]["mtu"], 1450);
        assert_eq!(read["plugins"][2]["capabilities"]["bandwidth"], true);
        let without = conflist(&Network { bandwidth: false, ..network });
        assert_eq!(without["plugins"].as_array().unwrap().len(), 2);
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
