use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use coracle_tests::{lab::Lab, program};
use serde_json::{Value, json};

/// Where our plugins are.
pub fn our_dir() -> PathBuf {
    program("bridge").parent().unwrap().to_owned()
}

/// Calls one plugin with one configuration.
pub struct Caller {
    pub config: Value,
    pub dir: PathBuf,
}

impl Caller {
    /// A bridge with both families and masquerading.
    pub fn bridge(lab: &Lab) -> Self {
        let config = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "lab0",
            "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
            "ipam": { "type": "host-local", "dataDir": lab.path("ipam"),
                      "ranges": [[{ "subnet": "10.77.0.0/16" }], [{ "subnet": "fd77::/64" }]] },
        });
        Caller { config, dir: our_dir() }
    }

    pub fn with(&self, key: &str, value: Value) -> Self {
        let mut config = self.config.clone();
        config[key] = value;
        Caller { config, dir: self.dir.clone() }
    }

    pub fn spawn(&self, verb: &str, id: &str, netns: &Path) -> Child {
        let plugin = self.dir.join(self.config["type"].as_str().unwrap());
        let mut child = Command::new(plugin)
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", id)
            .env("CNI_NETNS", netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", &self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(self.config.to_string().as_bytes()).unwrap();
        child
    }

    /// The answer, or the error's JSON.
    pub fn call(&self, verb: &str, id: &str, netns: &Path) -> Result<Value, Value> {
        finish(self.spawn(verb, id, netns))
    }
}

pub fn finish(child: Child) -> Result<Value, Value> {
    let output = child.wait_with_output().unwrap();
    let answer = match output.stdout.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&output.stdout).unwrap(),
    };
    match output.status.success() {
        true => Ok(answer),
        false if answer.is_null() => panic!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)),
        false => Err(answer),
    }
}

/// The addresses of a result, without prefixes.
pub fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned()).collect()
}

/// Address files of a network.
pub fn reserved(lab: &Lab) -> Vec<String> {
    let listing: Vec<std::fs::DirEntry> =
        std::fs::read_dir(lab.path("ipam/net")).map(|l| l.flatten().collect()).unwrap_or_default();
    let names = listing.iter().map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
}

/// Names of veth links here.
pub fn veths() -> Vec<String> {
    let links: Value =
        serde_json::from_str(&coracle_tests::lab::run("ip", &["-j", "link", "show", "type", "veth"]))
            .unwrap_or_default();
    links.as_array().into_iter().flatten().map(|l| l["ifname"].as_str().unwrap().to_owned()).collect()
}

/// How many elements the maps of all tables have.
pub fn elements() -> usize {
    let rules: Value =
        serde_json::from_str(&coracle_tests::lab::run("nft", &["-j", "list", "ruleset"])).unwrap();
    let maps = rules["nftables"].as_array().unwrap().iter().filter_map(|item| item["map"]["elem"].as_array());
    maps.map(Vec::len).sum()
}
