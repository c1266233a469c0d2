//! Rollouts of 50 replicas on hollow nodes while the server is killed: they end where they should, and on the way there are
//! never more pods than `maxSurge` allows nor fewer than `maxUnavailable` does. And rollouts that a policy stops.

use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::server::Server;
use coracle_tests::{eventually, program};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const REPLICAS: usize = 50;
const SURGE: usize = 10;
const UNAVAILABLE: usize = 5;

/// Nodes without containers, gone when dropped.
pub struct Hollow(Child);

impl Hollow {
    /// As many nodes, each with room for as many pods.
    pub fn start(server: &Server, nodes: usize, room: usize) -> Self {
        let child = Command::new(program("coracle"))
            .args(["hollow", "--nodes", &nodes.to_string(), "--pods", &room.to_string()])
            .args(["--start-delay", "50", "--kubeconfig"])
            .arg(server.kubeconfig())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Hollow {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How often the server is killed: 50 times where `CORACLE_ROUNDS` says so, a few times otherwise.
fn rounds() -> usize {
    std::env::var("CORACLE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}

fn deployment(image: &str) -> String {
    format!(
        r#"{{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {{"name": "web"}}, "spec": {{
        "replicas": {REPLICAS}, "revisionHistoryLimit": 2, "selector": {{"matchLabels": {{"app": "web"}}}},
        "strategy": {{"rollingUpdate": {{"maxSurge": {SURGE}, "maxUnavailable": {UNAVAILABLE}}}}},
        "template": {{"metadata": {{"labels": {{"app": "web"}}}}, "spec": {{"terminationGracePeriodSeconds": 0,
            "containers": [{{"name": "c", "image": "{image}"}}]}}}}}}}}"#
    )
}

fn get(kubectl: &Kubectl, what: &str) -> Option<Vec<Value>> {
    let output = kubectl.try_with(&format!("get {what} -o json --request-timeout=10s"), "");
    let list: Value = serde_json::from_str(&output.out).ok().filter(|_| output.ok)?;
    list["items"].as_array().cloned()
}

fn image(object: &Value) -> &str {
    object["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// What must hold at any moment.
fn check(pods: &[Value], sets: &[Value]) {
    let living: Vec<&Value> = pods.iter().filter(|p| p["metadata"]["deletionTimestamp"].is_null()).collect();
    assert!(living.len() <= REPLICAS + SURGE, "{} pods", living.len());
    let available = living.iter().filter(|pod| ready(pod)).count();
    assert!(available >= REPLICAS - UNAVAILABLE, "only {available} of {} are available", living.len());
    for pod in pods {
        let owner = pod["metadata"]["ownerReferences"].as_array().filter(|owners| owners.len() == 1);
        let owner = owner.unwrap_or_else(|| panic!("a pod without one owner: {}", pod["metadata"]));
        let known = sets.iter().any(|set| set["metadata"]["uid"] == owner[0]["uid"]);
        assert!(known, "the owner of {} is gone", pod["metadata"]["name"]);
    }
}

#[test]
fn a_killed_server_finishes_its_rollout() {
    let mut server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    let _hollow = Hollow::start(&server, 5, 110);
    eventually("the default account is there", Duration::from_secs(60), || {
        kubectl.try_with("get serviceaccount default", "").ok
    });
    kubectl.run_with("apply -f -", &deployment("v0"));
    let all_ready = |image_wanted: &str| {
        get(&kubectl, "pods").is_some_and(|pods| {
            pods.len() == REPLICAS && pods.iter().all(|pod| ready(pod) && image(pod) == image_wanted)
        })
    };
    eventually("the first pods are ready", Duration::from_secs(180), || all_ready("v0"));
    for round in 1..=rounds() {
        let version = format!("v{round}");
        kubectl.run_with("apply -f -", &deployment(&version));
        // Somewhere in the middle.
        std::thread::sleep(Duration::from_millis(100 + (round as u64 * 137) % 900));
        server.kill();
        server.restart();
        let begun = Instant::now();
        while !all_ready(&version) {
            assert!(
                begun.elapsed() < Duration::from_secs(240),
                "round {round} does not end:\n{}",
                server.log()
            );
            // Owners may come and go between two lists.
            let before = get(&kubectl, "replicasets");
            if let (Some(pods), Some(mut sets)) = (get(&kubectl, "pods"), before) {
                sets.extend(get(&kubectl, "replicasets").unwrap_or_default());
                check(&pods, &sets);
            }
        }
        let sets = get(&kubectl, "replicasets").unwrap_or_default();
        let full = sets.iter().filter(|set| set["spec"]["replicas"] == REPLICAS).count();
        assert_eq!(full, 1, "round {round}: one set has all pods");
        eventually("old sets are gone", Duration::from_secs(60), || {
            get(&kubectl, "replicasets").is_some_and(|sets| sets.len() <= 3)
        });
    }
}

/// A policy and its binding that refuse updates of a resource of the group `apps`.
fn refusing(resource: &str) -> String {
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [resource]});
    let version = "admissionregistration.k8s.io/v1";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "fixed"}, "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]}},
        {"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "fixed"}, "spec": {
            "policyName": "fixed", "validationActions": ["Deny"]}},
    ]})
    .to_string()
}

#[test]
fn policies_for_updates_do_not_see_revisions_and_are_named_by_why() {
    let server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    let _hollow = Hollow::start(&server, 1, 110);
    eventually("the default account is there", Duration::from_secs(60), || {
        kubectl.try_with("get serviceaccount default", "").ok
    });
    kubectl.run_with("apply -f -", &refusing("deployments"));
    kubectl.run("create deployment web --image=busybox --replicas=2");
    kubectl.run("rollout status deployment/web --timeout=120s");
    let revision =
        r"get deployment web -o jsonpath={.metadata.annotations.deployment\.kubernetes\.io/revision}";
    assert_eq!(kubectl.run(revision), "1");
    let refused = kubectl.try_with("set image deployment/web busybox=busybox:2", "");
    assert!(!refused.ok && refused.err.contains("fixed"), "{refused:?}");

    kubectl.run_with("apply -f -", &refusing("replicasets"));
    let mut replicas = 2;
    eventually("the policy is named", Duration::from_secs(60), || {
        // Until the policy is in force, ReplicaSets follow.
        replicas += 1;
        kubectl.run(&format!("scale deployment/web --replicas={replicas}"));
        let mut why = Command::new(program("coracle"));
        why.args(["why", "deployment/web", "-o", "json", "--kubeconfig"]).arg(server.kubeconfig());
        let said = String::from_utf8_lossy(&why.output().unwrap().stdout).into_owned();
        said.contains("the last request of deployment-controller to update replicasets.apps web-")
            && said.contains("by the admission policy fixed")
    });
}
