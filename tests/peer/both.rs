//! The same steps on both servers.

use crate::transcript;
use coracle_tests::eventually;
use coracle_tests::kubectl::{Kubectl, Output, newest};
use coracle_tests::server::Server;
use serde_json::Value;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// For controllers: those of a stock cluster sync some kinds every 15 seconds, and lose a node after 50.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The kubeconfig of the stock cluster.
fn peer() -> Option<PathBuf> {
    std::env::var_os("CORACLE_PEER").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Tests that change what all of a cluster share (nodes, default classes) take turns.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of the servers, a namespace of the test in it, and what was seen there.
pub struct Place {
    pub kubectl: Kubectl,
    /// For other clients.
    pub kubeconfig: PathBuf,
    /// The namespace; also a prefix for names of objects without one.
    pub name: String,
    /// Whether it is the stock cluster.
    pub is_stock: bool,
    seen: RefCell<Vec<String>>,
    to_delete: RefCell<Vec<String>>,
}

/// Takes the steps on both servers, or on ours beside the transcript of a stock one; what they saw must be the same. Gives what was
/// seen on ours.
pub fn on_both(test: &str, steps: impl Fn(&Place)) -> Vec<String> {
    on_both_with(test, &[], steps)
}

/// The same with options of our server.
pub fn on_both_with(test: &str, flags: &[&str], steps: impl Fn(&Place)) -> Vec<String> {
    let server = Server::with(flags);
    let ours = run(&server.kubeconfig(), test, false, &steps);
    drop(server);
    if let Some(kubeconfig) = peer() {
        let stock = run(&kubeconfig, test, true, &steps);
        if transcript::is_recorded() {
            transcript::write(test, &stock);
        }
        assert!(ours == stock, "{test}\n{}", difference(&ours, &stock));
    } else if let Some(stock) = transcript::read(test) {
        let seen: Vec<String> = ours.iter().map(|seen| transcript::line(seen)).collect();
        assert!(seen == stock, "{test}, beside tests/peer/stock/{test}.txt\n{}", difference(&seen, &stock));
    } else {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let why =
                format!("CORACLE_PEER names no stock cluster, and there is no tests/peer/stock/{test}.txt");
            coracle_tests::skipped("peer::on_stock_cluster", &why);
        });
    }
    ours
}

fn run(kubeconfig: &Path, test: &str, is_stock: bool, steps: &impl Fn(&Place)) -> Vec<String> {
    let kubectl = newest(kubeconfig);
    // The same in all transcripts, as widths of columns and hashes of templates depend on it. A stock cluster that is used more
    // than once still deletes the last one of that name.
    let is_compared_live = peer().is_some() && !transcript::is_recorded();
    let name = format!("{test}-{}", if is_compared_live { std::process::id() } else { 10_000 });
    kubectl.run(&format!("create namespace {name}"));
    let (seen, to_delete) = (RefCell::default(), RefCell::default());
    let place = Place { kubectl, kubeconfig: kubeconfig.to_owned(), name, is_stock, seen, to_delete };
    eventually("the namespace has its account", PATIENCE, || {
        place.kubectl.try_with(&format!("get serviceaccount default -n {}", place.name), "").ok
    });
    steps(&place);
    place.seen.take()
}

/// Lines that only one of them has.
fn difference(ours: &[String], stock: &[String]) -> String {
    let mut text = String::new();
    for at in 0..ours.len().max(stock.len()) {
        let (a, b) = (ours.get(at), stock.get(at));
        if a != b {
            let _ = write!(
                text,
                "{at}\n  coracle: {}\n  stock:   {}\n",
                a.map_or("-", |a| a),
                b.map_or("-", |b| b)
            );
        }
    }
    text
}

impl Place {
    /// Writes down what was seen. The name of the place is replaced.
    pub fn saw(&self, what: &str, value: impl std::fmt::Display) {
        let line = format!("{what}: {value}").replace(&self.name, "NS");
        eprintln!("{} {line}", if self.is_stock { "stock  " } else { "coracle" });
        self.seen.borrow_mut().push(line);
    }

    /// kubectl in the namespace.
    pub fn try_run(&self, line: &str, input: &str) -> Output {
        self.kubectl.try_with(&format!("-n {} {line}", self.name), input)
    }

    /// The same, which must succeed.
    pub fn run(&self, line: &str) -> String {
        self.kubectl.run(&format!("-n {} {line}", self.name))
    }

    /// Runs a command and writes down what it printed: output, or error.
    pub fn see(&self, line: &str, input: &str) -> Output {
        let output = self.try_run(line, input);
        let said = if output.ok {
            format!("{}{}", output.err, output.out)
        } else {
            format!("failed: {}", output.err)
        };
        self.saw(line, said.trim().replace('\n', " | "));
        output
    }

    /// Creates an object.
    pub fn create(&self, object: &Value) {
        let output = self.try_run("create -f -", &object.to_string());
        assert!(output.ok, "{object}\n{}", output.err);
    }

    /// Creates an object without a namespace, which is deleted in the end.
    pub fn create_cluster(&self, resource: &str, object: &Value) {
        self.create(object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.to_delete.borrow_mut().push(format!("{resource}/{name}"));
    }

    /// Replaces the status of an object.
    pub fn set_status(&self, object: &str, status: &Value) {
        let patch = serde_json::json!({"status": status}).to_string();
        let args = ["-n", &self.name, "patch", object, "--subresource=status", "--type=merge", "-p", &patch];
        let output = self.kubectl.with_input(&args, "");
        assert!(output.ok, "{object}: {}", output.err);
    }

    /// Merges a change into an object.
    pub fn patch(&self, object: &str, change: &Value) -> Output {
        let args = ["-n", &self.name, "patch", object, "--type=merge", "-p", &change.to_string()];
        self.kubectl.with_input(&args, "")
    }

    /// A value of an object; empty when there is no such object.
    pub fn value(&self, object: &str, path: &str) -> String {
        self.try_run(&format!("get {object} -o 'jsonpath={path}'"), "").out
    }

    /// An object; null when there is none.
    pub fn get(&self, object: &str) -> Value {
        serde_json::from_str(&self.try_run(&format!("get {object} -o json"), "").out).unwrap_or_default()
    }

    /// Waits until an object has a value, or panics with what it has.
    pub fn until(&self, object: &str, path: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut found = String::new();
        let begun = std::time::Instant::now();
        while begun.elapsed() < PATIENCE {
            found = self.value(object, path);
            if wanted(&found) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("{object} {path} on {}: {found}", if self.is_stock { "stock" } else { "coracle" });
    }

    /// A Node that is ready; nobody renews its Lease.
    pub fn node(&self, name: &str, labels: &Value) {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.create_cluster("node", &object);
        self.heartbeat(name);
        self.until(&format!("node/{name}"), "{.spec.taints}", str::is_empty);
    }

    /// A Node says that it is ready.
    pub fn heartbeat(&self, name: &str) {
        let now = self.now();
        let condition = serde_json::json!({"type": "Ready", "status": "True", "reason": "KubeletReady",
            "lastHeartbeatTime": now, "lastTransitionTime": now});
        let room = serde_json::json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
        self.set_status(
            &format!("node/{name}"),
            &serde_json::json!({"conditions": [condition], "capacity": room, "allocatable": room}),
        );
    }

    /// The time, as the API writes it.
    pub fn now(&self) -> String {
        let date = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]).output().unwrap();
        String::from_utf8(date.stdout).unwrap().trim().to_owned()
    }

    /// Reasons and messages of the Events about an object, each once.
    pub fn events(&self, kind: &str, name: &str) -> Vec<String> {
        let list = self.get("events");
        let mut found: Vec<String> = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|event| {
                event["involvedObject"]["kind"] == kind && event["involvedObject"]["name"] == name
            })
            .map(|event| {
                format!(
                    "{} {}: {}",
                    event["type"].as_str().unwrap_or_default(),
                    event["reason"].as_str().unwrap_or_default(),
                    event["message"].as_str().unwrap_or_default()
                )
            })
            .collect();
        found.sort();
        found.dedup();
        found
    }
}

/// Only the stock cluster outlives the test: what is in no namespace is deleted by name.
impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_stock {
            return;
        }
        for object in self.to_delete.take().iter().rev() {
            self.try_run(&format!("delete {object} --wait=false --ignore-not-found"), "");
        }
        self.kubectl.try_with(&format!("delete namespace {} --wait=false", self.name), "");
    }
}
