//! The network configuration for the node's pod range.

use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::Path;

const FILE: &str = "10-coracle.conflist";

/// The configuration: our bridge with addresses from the node's ranges, and host ports.
pub fn conflist(data: &Path, pod_cidrs: &[String]) -> Value {
    let ranges: Vec<Value> = pod_cidrs.iter().map(|cidr| json!([{"subnet": cidr}])).collect();
    let routes: Vec<Value> = pod_cidrs
        .iter()
        .map(|cidr| json!({"dst": if cidr.contains(':') { "::/0" } else { "0.0.0.0/0" }}))
        .collect();
    json!({
        "cniVersion": "1.0.0",
        "name": "cbr0",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "coracle0",
                "isGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {"type": "host-local", "dataDir": data, "ranges": ranges, "routes": routes},
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

/// Writes the configuration, all at once, if it is another one; says whether it was.
pub fn write(dir: &Path, data: &Path, pod_cidrs: &[String]) -> io::Result<bool> {
    let text = format!("{:#}\n", conflist(data, pod_cidrs));
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
        assert!(write(temp.path(), Path::new("/state"), &ranges).unwrap());
        assert!(!write(temp.path(), Path::new("/state"), &ranges).unwrap());
        let read: Value = serde_json::from_slice(&fs::read(temp.path().join(FILE)).unwrap()).unwrap();
        assert_eq!(read["plugins"][0]["ipam"]["ranges"][1][0]["subnet"], "fd00:1::/64");
        assert_eq!(read["plugins"][0]["ipam"]["routes"][1]["dst"], "::/0");
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
