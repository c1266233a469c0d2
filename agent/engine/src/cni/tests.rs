#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};

use super::{config::NetworkList, *};

/// A plugin that logs each call as one line of JSON, and answers ADD with one address.
const PLUGIN: &str = r#"#!/bin/sh
input=$(cat)
self=$(basename "$0")
echo "{\"plugin\":\"$self\",\"verb\":\"$CNI_COMMAND\",\"id\":\"$CNI_CONTAINERID\",\"args\":\"$CNI_ARGS\",\"netns\":\"$CNI_NETNS\",\"conf\":$input}" >> "$(dirname "$0")/log"
if [ -e "$(dirname "$0")/fail-$self-$CNI_COMMAND" ]; then
  echo '{"cniVersion":"1.1.0","code":11,"msg":"not now","details":"later"}'; exit 1
fi
if [ "$CNI_COMMAND" = ADD ]; then
  echo '{"cniVersion":"1.1.0","interfaces":[{"name":"br"},{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.1.0.1/16","interface":0},{"address":"10.1.0.9/16","interface":1}]}'
fi
"#;

fn network(dir: &Path) -> Network {
    for kind in ["one", "two"] {
        let path = dir.join(kind);
        fs::write(&path, PLUGIN).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let list = json!({
        "name": "net", "cniVersion": "1.1.0",
        "plugins": [{ "type": "one" }, { "type": "two", "capabilities": { "portMappings": true } }],
    });
    fs::create_dir(dir.join("conf")).unwrap();
    fs::write(dir.join("conf/10-net.conflist"), list.to_string()).unwrap();
    Network::new(NetworkDirs { conf: dir.join("conf"), bin: vec![dir.into()], cache: dir.join("cache") })
}

fn pod(id: &str) -> PodNet {
    let port =
        PortMapping { host_port: 80, container_port: 8080, protocol: "TCP".into(), host_ip: String::new() };
    PodNet {
        id: id.into(),
        netns: "/proc/self/ns/net".into(),
        name: "web".into(),
        namespace: "default".into(),
        uid: "u".into(),
        port_mappings: vec![port],
        ..PodNet::default()
    }
}

fn calls(dir: &Path) -> Vec<Value> {
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn verbs(dir: &Path) -> Vec<String> {
    let word = |call: &Value, key: &str| call[key].as_str().unwrap().to_owned();
    calls(dir).iter().map(|call| format!("{} {}", word(call, "plugin"), word(call, "verb"))).collect()
}

#[tokio::test]
async fn chain_passes_results_and_capabilities_and_deletes_in_reverse() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(dir.path());
    let attachment = network.attach(&pod("a")).await.unwrap();
    assert_eq!(attachment.ips, ["10.1.0.9".parse::<std::net::IpAddr>().unwrap()]);
    network.detach(&pod("a")).await.unwrap();
    assert_eq!(verbs(dir.path()), ["one ADD", "two ADD", "two DEL", "one DEL"]);

    let calls = calls(dir.path());
    assert!(calls[0]["conf"].get("runtimeConfig").is_none());
    assert!(calls[0]["conf"].get("prevResult").is_none());
    assert_eq!(calls[1]["conf"]["runtimeConfig"]["portMappings"][0]["protocol"], "tcp");
    assert_eq!(calls[1]["conf"]["prevResult"]["ips"][1]["address"], "10.1.0.9/16");
    assert_eq!(calls[3]["conf"]["prevResult"]["ips"][1]["address"], "10.1.0.9/16");
    assert_eq!(
        calls[0]["args"],
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=a;K8S_POD_UID=u"
    );
}

/// What is left of a namespace that was unmounted is a plain file.
#[tokio::test]
async fn a_file_that_is_no_namespace_is_not_passed_to_plugins() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(dir.path());
    let file = dir.path().join("net");
    fs::write(&file, "").unwrap();
    for (netns, passed) in [("/proc/self/ns/net".into(), "/proc/self/ns/net"), (file, "")] {
        network.detach(&PodNet { netns, ..pod("a") }).await.unwrap();
        assert_eq!(calls(dir.path()).last().unwrap()["netns"], passed);
    }
}

#[tokio::test]
async fn the_plugin_for_ports_is_asked_only_for_pods_that_have_some() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(dir.path());
    fs::rename(dir.path().join("two"), dir.path().join("portmap")).unwrap();
    let list = json!({
        "name": "net", "cniVersion": "1.1.0",
        "plugins": [{ "type": "one" }, { "type": "portmap", "capabilities": { "portMappings": true } }],
    });
    fs::write(dir.path().join("conf/10-net.conflist"), list.to_string()).unwrap();
    let plain = PodNet { port_mappings: Vec::new(), ..pod("a") };
    let attachment = network.attach(&plain).await.unwrap();
    assert_eq!(attachment.ips, ["10.1.0.9".parse::<std::net::IpAddr>().unwrap()]);
    network.detach(&plain).await.unwrap();
    network.attach(&pod("b")).await.unwrap();
    network.detach(&pod("b")).await.unwrap();
    assert_eq!(verbs(dir.path()), ["one ADD", "one DEL", "one ADD", "portmap ADD", "portmap DEL", "one DEL"]);
}

#[tokio::test]
async fn the_plugin_for_limits_is_asked_only_where_there_are_some() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(dir.path());
    fs::rename(dir.path().join("two"), dir.path().join("bandwidth")).unwrap();
    let configure = |plugin: Value| {
        let list = json!({ "name": "net", "cniVersion": "1.1.0", "plugins": [{ "type": "one" }, plugin] });
        fs::write(dir.path().join("conf/10-net.conflist"), list.to_string()).unwrap();
    };
    let attach = async |pod: PodNet| {
        let before = verbs(dir.path()).len();
        network.attach(&pod).await.unwrap();
        verbs(dir.path())[before..].to_vec()
    };
    configure(json!({ "type": "bandwidth", "capabilities": { "bandwidth": true } }));
    assert_eq!(attach(pod("a")).await, ["one ADD"]);
    let limits = Some(Bandwidth { ingress: 0, egress: 8_000 });
    assert_eq!(attach(PodNet { bandwidth: limits, ..pod("b") }).await, ["one ADD", "bandwidth ADD"]);
    let calls = calls(dir.path());
    let offered = &calls.last().unwrap()["conf"]["runtimeConfig"]["bandwidth"];
    assert_eq!(*offered, json!({ "egressRate": 8_000, "egressBurst": u32::MAX }));
    configure(json!({ "type": "bandwidth", "capabilities": { "bandwidth": true }, "ingressRate": 8_000 }));
    assert_eq!(attach(pod("c")).await, ["one ADD", "bandwidth ADD"], "a limit of all pods");
}

#[tokio::test]
async fn detach_after_restart_uses_the_configuration_of_the_attach() {
    let dir = tempfile::tempdir().unwrap();
    network(dir.path()).attach(&pod("a")).await.unwrap();
    fs::remove_file(dir.path().join("conf/10-net.conflist")).unwrap();
    let dirs = NetworkDirs {
        conf: dir.path().join("conf"),
        bin: vec![dir.path().into()],
        cache: dir.path().join("cache"),
    };
    let restarted = Network::new(dirs);
    assert_eq!(restarted.attached("a").unwrap().unwrap().ips.len(), 1);
    restarted.detach(&pod("a")).await.unwrap();
    assert_eq!(verbs(dir.path())[2..], ["two DEL", "one DEL"]);
    restarted.detach(&pod("a")).await.unwrap();
    assert_eq!(verbs(dir.path()).len(), 4, "nothing left to delete");
}

#[tokio::test]
async fn failed_attach_is_undone_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(dir.path());
    fs::write(dir.path().join("fail-two-ADD"), "").unwrap();
    let error = network.attach(&pod("a")).await.unwrap_err();
    assert_eq!(error.to_string(), r#"plugin type="two" name="net" failed (add): not now; later"#);
    assert!(error.is_temporary());
    assert_eq!(verbs(dir.path()), ["one ADD", "two ADD", "two DEL", "one DEL"]);
    assert!(network.attached("a").unwrap().is_none());
}

#[tokio::test]
async fn failed_detach_tries_every_plugin_and_can_be_retried() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(dir.path());
    network.attach(&pod("a")).await.unwrap();
    let failure = dir.path().join("fail-two-DEL");
    fs::write(&failure, "").unwrap();
    network.detach(&pod("a")).await.unwrap_err();
    assert_eq!(verbs(dir.path())[2..], ["two DEL", "one DEL"]);
    fs::remove_file(failure).unwrap();
    network.detach(&pod("a")).await.unwrap();
    assert_eq!(verbs(dir.path())[4..], ["two DEL", "one DEL"]);
}

#[tokio::test]
async fn gc_deletes_the_dead_and_names_the_living() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(dir.path());
    network.attach(&pod("alive")).await.unwrap();
    network.attach(&pod("dead")).await.unwrap();
    network.gc(|| HashSet::from(["alive".to_owned()])).await.unwrap();
    let calls = calls(dir.path());
    let deleted: Vec<_> =
        calls.iter().filter(|c| c["verb"] == "DEL").map(|c| c["id"].as_str().unwrap()).collect();
    assert_eq!(deleted, ["dead", "dead"]);
    let told = calls.iter().find(|c| c["verb"] == "GC").unwrap();
    assert_eq!(
        told["conf"]["cni.dev/valid-attachments"],
        json!([{ "containerID": "alive", "ifname": "eth0" }])
    );
}

#[tokio::test]
async fn status_without_configuration_or_plugin_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(dir.path());
    network.status().await.unwrap();
    fs::remove_file(dir.path().join("two")).unwrap();
    assert!(matches!(network.status().await, Err(Error::PluginMissing { plugin, .. }) if plugin == "two"));
    fs::remove_file(dir.path().join("conf/10-net.conflist")).unwrap();
    assert!(network.status().await.unwrap_err().to_string().contains("cni plugin not initialized"));
}

#[test]
fn configurations() {
    let good = [
        (json!({ "name": "n", "cniVersion": "0.3.1", "type": "x" }), "0.3.1"),
        (json!({ "name": "n", "cniVersion": "0.4.0", "plugins": [{ "type": "x" }] }), "0.4.0"),
        (
            json!({ "name": "n", "cniVersion": "1.0.0", "cniVersions": ["1.1.0", "9.0.0"], "plugins": [{ "type": "x" }] }),
            "1.1.0",
        ),
        (json!({ "name": "n", "type": "x" }), "0.1.0"),
    ];
    for (value, version) in good {
        let list = NetworkList::parse(value).unwrap();
        assert_eq!((list.version.as_str(), list.plugins.len()), (version, 1));
    }
    let bad = [
        (json!([]), "not a JSON object"),
        (json!({ "type": "x" }), "missing network name"),
        (json!({ "name": "../n", "type": "x" }), "invalid characters"),
        (json!({ "name": "n", "plugins": [{}] }), "missing 'type'"),
        (json!({ "name": "n", "plugins": [{ "type": "../x" }] }), "missing 'type'"),
        (json!({ "name": "n", "cniVersion": "7.0.0", "type": "x" }), "incompatible CNI versions"),
    ];
    for (value, reason) in bad {
        let error = NetworkList::parse(value.clone()).unwrap_err();
        assert!(error.to_string().contains(reason), "{value}: {error}");
    }
}

#[test]
fn first_file_in_name_order_counts() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, network: &str| {
        fs::write(dir.path().join(name), json!({ "name": network, "type": "x" }).to_string()).unwrap();
    };
    write("20-b.conf", "b");
    write("10-a.json", "a");
    write("00-ignored.txt", "c");
    assert_eq!(config::first(dir.path()).unwrap().name, "a");
    fs::write(dir.path().join("05-broken.conflist"), "{").unwrap();
    let error = config::first(dir.path()).unwrap_err();
    assert!(error.to_string().contains("05-broken.conflist: error parsing configuration"), "{error}");
}

#[test]
fn results_of_old_versions() {
    let old = json!({ "ip4": { "ip": "10.0.0.2/24" }, "ip6": { "ip": "fd00::2/64" }, "dns": { "nameservers": ["1.1.1.1"] } });
    let attachment = Attachment::from_result(old);
    assert_eq!(attachment.ips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.2", "fd00::2"]);
    assert_eq!(attachment.dns.servers, ["1.1.1.1"]);
}

#[tokio::test]
async fn host_ports_that_are_gone_are_put_back_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let network = network(dir.path());
    network.attach(&pod("a")).await.unwrap();
    network.attach(&PodNet { port_mappings: vec![], ..pod("b") }).await.unwrap();
    let before = verbs(dir.path()).len();
    assert_eq!(network.restore_ports().await.unwrap(), 0);
    assert_eq!(
        verbs(dir.path())[before..],
        ["two CHECK"],
        "only who maps ports is asked, only about those with ports"
    );
    fs::write(dir.path().join("fail-two-CHECK"), "").unwrap();
    let before = verbs(dir.path()).len();
    assert_eq!(network.restore_ports().await.unwrap(), 1);
    assert_eq!(verbs(dir.path())[before..], ["two CHECK", "two ADD"]);
    let calls = calls(dir.path());
    let conf = &calls.last().unwrap()["conf"];
    assert_eq!(conf["runtimeConfig"]["portMappings"][0]["hostPort"], 80);
    assert_eq!(conf["prevResult"]["ips"][1]["address"], "10.1.0.9/16");
    network.detach(&pod("a")).await.unwrap();
    assert_eq!(network.restore_ports().await.unwrap(), 0);
}
