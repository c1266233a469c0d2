use std::{collections::HashSet, fs, path::PathBuf};

use coracle_engine::cni::{Network, NetworkDirs, PodNet, PortMapping};
use coracle_tests::lab::{Lab, in_lab};
use serde_json::json;

use crate::{
    bridge::{ask, serve},
    caller::{elements, our_dir, reserved, veths},
};

fn network(lab: &Lab, bin: PathBuf, version: &str, plugins: serde_json::Value) -> Network {
    let conf = lab.path("conf");
    fs::create_dir_all(&conf).unwrap();
    let list = json!({ "cniVersion": version, "name": "net", "plugins": plugins });
    fs::write(conf.join("10-net.conflist"), list.to_string()).unwrap();
    Network::new(NetworkDirs { conf, bin: vec![bin], cache: lab.path("cache") })
}

fn pod(lab: &Lab, id: &str) -> PodNet {
    let port =
        PortMapping { host_port: 8080, container_port: 80, protocol: "TCP".into(), host_ip: String::new() };
    PodNet {
        id: id.into(),
        netns: lab.netns(id),
        name: id.into(),
        namespace: "default".into(),
        uid: id.into(),
        port_mappings: vec![port],
        ..PodNet::default()
    }
}

fn bridge(lab: &Lab) -> serde_json::Value {
    json!({ "type": "bridge", "bridge": "lab0", "isDefaultGateway": true, "hairpinMode": true,
            "ipam": { "type": "host-local", "dataDir": lab.path("ipam"), "subnet": "10.77.0.0/16" } })
}

/// A runtime whose threads all live in the lab.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn our_plugins_in_a_chain() {
    in_lab(|lab| {
        let portmap = json!({ "type": "portmap", "capabilities": { "portMappings": true } });
        let network = network(lab, our_dir(), "1.1.0", json!([bridge(lab), portmap]));
        let (pod, gone) = (pod(lab, "a"), pod(lab, "gone"));
        block_on(async {
            network.status().await.unwrap();
            let attachment = network.attach(&pod).await.unwrap();
            assert_eq!(attachment.ips[0].to_string(), "10.77.0.2");
            network.attach(&PodNet { port_mappings: Vec::new(), ..gone }).await.unwrap();
            serve(lab, &pod.netns, 80);
            assert!(ask("10.77.0.2", 80).is_ok());
            assert!(ask("127.0.0.1", 8080).is_ok());
            network.check(&pod).await.unwrap();
            network.gc(|| HashSet::from(["a".to_owned()])).await.unwrap();
            assert_eq!((reserved(lab).len(), veths().len()), (1, 1));
            network.detach(&pod).await.unwrap();
            network.detach(&pod).await.unwrap();
            assert_eq!((reserved(lab).len(), veths().len(), elements()), (0, 0, 0));
        });
    });
}

#[test]
fn debians_plugins_under_our_runtime_side() {
    let theirs = PathBuf::from("/usr/lib/cni");
    assert!(theirs.join("bridge").exists(), "containernetworking-plugins is missing: scripts/deps test");
    in_lab(|lab| {
        let tuning = json!({ "type": "tuning", "sysctl": { "net.ipv4.conf.eth0.arp_notify": "1" } });
        let network = network(lab, theirs, "1.0.0", json!([bridge(lab), tuning]));
        let pod = pod(lab, "a");
        block_on(async {
            network.status().await.unwrap();
            let attachment = network.attach(&pod).await.unwrap();
            assert_eq!(attachment.ips[0].to_string(), "10.77.0.2");
            serve(lab, &pod.netns, 80);
            assert!(ask("10.77.0.2", 80).is_ok());
            network.check(&pod).await.unwrap();
            network.detach(&pod).await.unwrap();
            assert_eq!((reserved(lab).len(), veths().len()), (0, 0));
        });
    });
}

#[test]
fn ours_take_over_what_debians_made() {
    in_lab(|lab| {
        let theirs = network(lab, "/usr/lib/cni".into(), "1.0.0", json!([bridge(lab)]));
        let (old, new) = (pod(lab, "old"), pod(lab, "new"));
        block_on(async {
            theirs.attach(&old).await.unwrap();
            let ours = network(lab, our_dir(), "1.0.0", json!([bridge(lab)]));
            let attachment = ours.attach(&new).await.unwrap();
            assert_eq!(attachment.ips[0].to_string(), "10.77.0.3", "their reservation counts");
            ours.check(&old).await.unwrap();
            ours.detach(&old).await.unwrap();
            ours.detach(&new).await.unwrap();
            assert_eq!((reserved(lab).len(), veths().len()), (0, 0));
        });
    });
}
