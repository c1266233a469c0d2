//! Every kind of workload, and what the cluster does by itself, through kubectl on two real nodes. Each part has a namespace
//! of its own and they run side by side.

mod batch;
mod deployments;
mod inputs;
mod placement;
mod sets;
mod upkeep;
mod volumes;

use coracle_tests::cluster::Cluster;
use coracle_tests::eventually;
use coracle_tests::kubectl::{Kubectl, Output};
use serde_json::Value;
use std::time::Duration;

/// Long enough for a loaded machine.
const WAIT: Duration = Duration::from_secs(120);

/// kubectl in one namespace.
struct Room {
    kubectl: Kubectl,
    name: String,
}

impl Room {
    fn new(kubectl: &Kubectl, name: &str) -> Self {
        kubectl.run(&format!("create namespace {name}"));
        let room = Self { kubectl: kubectl.clone(), name: name.to_owned() };
        room.until("get serviceaccount default -o name", "serviceaccount/default");
        room
    }

    fn run(&self, line: &str) -> String {
        self.kubectl.run(&format!("-n {} {line}", self.name))
    }

    fn apply(&self, manifest: &str) {
        self.kubectl.run_with(&format!("-n {} apply -f -", self.name), manifest);
    }

    /// What kubectl says of something that must be refused.
    fn refused(&self, manifest: &str) -> String {
        let output = self.kubectl.try_with(&format!("-n {} create -f -", self.name), manifest);
        assert!(!output.ok, "this should have been refused: {manifest}");
        output.err
    }

    fn json(&self, line: &str) -> Value {
        let text = self.run(&format!("{line} -o json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
    }

    /// Waits until a command prints just this.
    fn until(&self, line: &str, want: &str) {
        self.until_with(line, |text| text.trim() == want);
    }

    fn until_with(&self, line: &str, met: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(line, WAIT, || {
                let output = self.kubectl.try_with(&format!("-n {} {line}", self.name), "");
                last = output.out + &output.err;
                met(&last)
            });
        }));
        assert!(done.is_ok(), "{}: kubectl {line}: {last}", self.name);
    }

    /// Asks for a pod's eviction; `more` goes into the body.
    fn evict(&self, pod: &str, more: &str) -> Output {
        let namespace = &self.name;
        let body = format!(
            r#"{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"name":"{pod}","namespace":"{namespace}"}}{more}}}"#
        );
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
        self.kubectl.try_with(&format!("create --raw {path} -f -"), &body)
    }

    /// Names of the pods that are not being deleted, sorted.
    fn pods(&self) -> Vec<String> {
        let list = self.json("get pods");
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let living = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let mut names: Vec<String> =
            living.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect();
        names.sort();
        names
    }
}

/// A pod's specification that runs a shell line, as a flow mapping.
fn shell(line: &str) -> String {
    format!(
        "{{terminationGracePeriodSeconds: 0, containers: [{{name: c, image: busybox, command: [sh, -c, '{line}']}}]}}"
    )
}

type Part = fn(&Room);

pub fn on_real_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let parts: &[(&str, Part)] = &[
        ("deployments", deployments::rolled_and_undone),
        ("cascades", deployments::deleted_in_every_way),
        ("stuck", deployments::a_rollout_that_cannot_end_says_so),
        ("stateful", sets::stateful),
        ("daemons", sets::daemons),
        ("replicas", sets::replicas_are_adopted_and_released),
        ("jobs", batch::jobs),
        ("indexed", batch::indexed_jobs),
        ("cron", batch::cron),
        ("claims", volumes::claims),
        ("placement", placement::waits_for_its_node),
        ("preempt", placement::the_important_goes_first),
        ("budget", upkeep::budgets_hold_evictions_back),
        ("owners", upkeep::owners_take_theirs_along),
        ("closing", upkeep::namespaces_end),
        ("autoscaled", upkeep::load_brings_pods),
        ("inputs", inputs::refused),
        ("quota", inputs::quota),
    ];
    // A few at a time: the machine is small.
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((name, part)) =
                    parts.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let begun = std::time::Instant::now();
                    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        let room = Room::new(&kubectl, name);
                        part(&room);
                        room.kubectl.run(&format!("delete namespace {name} --wait=false --ignore-not-found"));
                    }));
                    match done {
                        Ok(()) => println!("{name}: {:.1} s", begun.elapsed().as_secs_f64()),
                        Err(_) => failures.lock().unwrap().push(*name),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{failures:?} failed, see above");
    kubectl.run("wait --for=delete namespace/stateful namespace/daemons namespace/jobs --timeout=120s");
}
