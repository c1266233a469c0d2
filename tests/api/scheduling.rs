//! The scheduler as its operator configures it: profiles, the older Policy, and an extender that a real HTTPS server is.

use crate::rollout::Hollow;
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_tests::https::Https;
use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::server::Server;
use coracle_tests::{eventually, program};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn file(dir: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("scheduler.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

fn cluster(server: &Server, nodes: usize) -> (Kubectl, Hollow) {
    let kubectl = newest(&server.kubeconfig());
    let hollow = Hollow::start(server, nodes, 20);
    eventually("the default account is there", MINUTE, || {
        kubectl.try_with("get serviceaccount default", "").ok
    });
    eventually("nodes are there", MINUTE, || kubectl.run("get nodes -o name").lines().count() == nodes);
    (kubectl, hollow)
}

fn pod(name: &str, scheduler: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"schedulerName": scheduler,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]}})
    .to_string()
}

fn node_of(kubectl: &Kubectl, name: &str) -> String {
    let line = format!("get pod {name} -o jsonpath={{.spec.nodeName}}");
    eventually(&format!("{name} has a node"), MINUTE, || !kubectl.run(&line).is_empty());
    kubectl.run(&line)
}

#[test]
fn profiles_pack_pods_and_an_extender_over_https_chooses_nodes() {
    let extender = Https::start(|asked| {
        let names: Vec<Value> = asked.body["NodeNames"].as_array().cloned().unwrap_or_default();
        let wanted = asked.body["Pod"]["metadata"]["annotations"]["example.com/node"].clone();
        let left: Vec<Value> = names.into_iter().filter(|name| wanted.is_null() || *name == wanted).collect();
        (200, json!({"NodeNames": left}))
    });
    let dir = tempfile::tempdir().unwrap();
    let ca = STANDARD.encode(extender.authority());
    let config = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: packer
  plugins: {{score: {{disabled: [{{name: '*'}}], enabled: [{{name: NodeResourcesFit}}]}}}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {{scoringStrategy: {{type: MostAllocated}}}}
extenders:
- urlPrefix: {}
  filterVerb: filter
  nodeCacheCapable: true
  enableHTTPS: true
  tlsConfig: {{caData: {ca}}}
",
        extender.url("/scheduler")
    );
    let server = Server::with(&["--scheduler-config", file(&dir, &config).to_str().unwrap()]);
    let (kubectl, _hollow) = cluster(&server, 4);
    for name in ["p0", "p1", "p2", "p3"] {
        kubectl.run_with("apply -f -", &pod(name, "packer"));
        node_of(&kubectl, name);
    }
    let packed: std::collections::BTreeSet<String> =
        ["p0", "p1", "p2", "p3"].map(|name| node_of(&kubectl, name)).into();
    assert_eq!(packed.len(), 1, "{packed:?}");
    for node in kubectl.run("get nodes -o jsonpath={.items[*].metadata.name}").split(' ') {
        let mut wanting: Value =
            serde_json::from_str(&pod(&format!("on-{node}"), "default-scheduler")).unwrap();
        wanting["metadata"]["annotations"] = json!({"example.com/node": node});
        kubectl.run_with("apply -f -", &wanting.to_string());
        assert_eq!(node_of(&kubectl, &format!("on-{node}")), node);
    }
    kubectl.run_with("apply -f -", &pod("foreign", "nobody"));
    assert_eq!(kubectl.run("get pod foreign -o jsonpath={.spec.nodeName}"), "");
}

#[test]
fn a_policy_of_older_schedulers_is_translated() {
    let dir = tempfile::tempdir().unwrap();
    // The documented example, without what would keep pods from cordoned nodes: that is always there.
    let policy = r#"{"kind": "Policy", "apiVersion": "v1",
        "predicates": [{"name": "PodFitsHostPorts"}, {"name": "PodFitsResources"}, {"name": "HostName"}],
        "priorities": [{"name": "MostRequestedPriority", "weight": 1}]}"#;
    let server = Server::with(&["--policy-config-file", file(&dir, policy).to_str().unwrap()]);
    let (kubectl, _hollow) = cluster(&server, 3);
    let mut packed = std::collections::BTreeSet::new();
    for name in ["a", "b", "c"] {
        // MatchNodeSelector is not among the predicates.
        let mut selecting: Value = serde_json::from_str(&pod(name, "default-scheduler")).unwrap();
        selecting["spec"]["nodeSelector"] = json!({"no": "where"});
        kubectl.run_with("apply -f -", &selecting.to_string());
        packed.insert(node_of(&kubectl, name));
    }
    assert_eq!(packed.len(), 1, "{packed:?}");
}

#[test]
fn files_with_mistakes_stop_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let wrong = format!("{head}profiles: [{{plugins: {{filter: {{enabled: [{{name: NodeNam}}]}}}}}}]\n");
    let table = [
        (
            "--scheduler-config",
            wrong.as_str(),
            "profiles[0].plugins.filter.enabled[0].name: Invalid value: \"NodeNam\": unknown plugin",
        ),
        (
            "--policy-config-file",
            "kind: Policy\napiVersion: v1\npredicates: [{name: X}]\n",
            "predicates[0].name: Invalid value: \"X\": unknown predicate",
        ),
        ("--policy-config-file", head, "not a Policy"),
    ];
    for (flag, text, expected) in table {
        let state = tempfile::tempdir().unwrap();
        // A server that starts all the same would run for ever.
        let output = Command::new("timeout")
            .arg("60")
            .arg(program("coracle"))
            .args(["server", "--bind", "127.0.0.1:0", "--data-dir"])
            .arg(state.path())
            .arg(flag)
            .arg(file(&dir, text))
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && said.contains(flag) && said.contains(expected), "{said}");
    }
}
