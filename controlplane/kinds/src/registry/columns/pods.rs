//! Columns of Pods and PodTemplates.

use super::{age, format, name, since, text, text_or, wide};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::{Value, json};

/// Pods.
pub fn pod() -> Vec<Column> {
    vec![
        name(),
        text("Ready", |pod| {
            let seen = Seen::of(pod);
            json!(format!("{}/{}", seen.ready, seen.total))
        }),
        text("Status", |pod| json!(Seen::of(pod).reason)),
        text("Restarts", |pod| json!(Seen::of(pod).restarts())),
        age(),
        wide("IP", |pod| json!(pod.items("status.podIPs").first().map_or("<none>", |ip| ip.text("ip")))),
        wide("Node", |pod| text_or(pod, "spec.nodeName", "<none>")),
        wide("Nominated Node", |pod| text_or(pod, "status.nominatedNodeName", "<none>")),
        wide("Readiness Gates", readiness_gates),
    ]
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = pod.items("spec.readinessGates");
    if gates.is_empty() {
        return json!("<none>");
    }
    let open = gates.iter().filter(|gate| format::is_true(pod, gate.text("conditionType"))).count();
    json!(format!("{open}/{}", gates.len()))
}

/// What a reader wants to know of a pod's containers.
struct Seen {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: String,
}

impl Seen {
    fn of(pod: &Value) -> Self {
        let sidecar = |name: &str| {
            let containers = pod.items("spec.initContainers").iter();
            containers.filter(|c| c.text("restartPolicy") == "Always").any(|c| c.text("name") == name)
        };
        let sidecars =
            pod.items("spec.initContainers").iter().filter(|c| c.text("restartPolicy") == "Always").count();
        let mut seen = Seen {
            ready: 0,
            total: pod.items("spec.containers").len() + sidecars,
            reason: first(&[pod.text("status.reason"), pod.text("status.phase")]),
            restarts: 0,
            last_restart: String::new(),
        };
        if format::condition(pod, "PodScheduled").is_some_and(|c| c.text("reason") == "SchedulingGated") {
            seen.reason = "SchedulingGated".into();
        }
        let mut init = seen.empty();
        let mut sidecars = seen.empty();
        let mut initializing = false;
        for (index, status) in pod.items("status.initContainerStatuses").iter().enumerate() {
            init.count_restarts(status);
            let is_sidecar = sidecar(status.text("name"));
            if is_sidecar {
                sidecars.count_restarts(status);
            }
            let terminated = status.at("state.terminated");
            if !terminated.is_null() && terminated.int("exitCode").unwrap_or_default() == 0 {
                continue;
            }
            if is_sidecar && status.flag("started") {
                seen.ready += usize::from(status.flag("ready"));
                continue;
            }
            let waiting = status.text("state.waiting.reason");
            seen.reason = if !terminated.is_null() {
                format!("Init:{}", ended(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", pod.items("spec.initContainers").len())
            };
            initializing = true;
            break;
        }
        (seen.restarts, seen.last_restart) = (init.restarts, init.last_restart);
        if !initializing || format::is_true(pod, "Initialized") {
            (seen.restarts, seen.last_restart) = (sidecars.restarts, sidecars.last_restart);
            seen.main_containers(pod);
        }
        seen.leaving(pod);
        seen
    }

    fn empty(&self) -> Seen {
        Seen { ready: 0, total: 0, reason: String::new(), restarts: 0, last_restart: String::new() }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts += status.int("restartCount").unwrap_or_default();
        let finished = status.text("lastState.terminated.finishedAt");
        if finished > self.last_restart.as_str() {
            self.last_restart = finished.to_owned();
        }
    }

    fn main_containers(&mut self, pod: &Value) {
        let (mut running, mut failure) = (false, String::new());
        for status in pod.items("status.containerStatuses").iter().rev() {
            self.count_restarts(status);
            let terminated = status.at("state.terminated");
            let waiting = status.text("state.waiting.reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if !terminated.is_null() {
                self.reason = ended(terminated);
                if terminated.int("exitCode").unwrap_or_default() != 0 {
                    failure = self.reason.clone();
                }
            } else if status.flag("ready") && status.has("state.running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && format::is_true(pod, "Ready") {
                self.reason = "Running".into();
            } else if !failure.is_empty() {
                self.reason = failure;
            } else if running {
                self.reason = "NotReady".into();
            }
        }
    }

    fn leaving(&mut self, pod: &Value) {
        if !pod.has("metadata.deletionTimestamp") {
            return;
        }
        if pod.text("status.reason") == "NodeLost" {
            self.reason = "Unknown".into();
        } else if !matches!(pod.text("status.phase"), "Succeeded" | "Failed") {
            self.reason = "Terminating".into();
        }
    }

    fn restarts(&self) -> String {
        if self.restarts == 0 || self.last_restart.is_empty() {
            return self.restarts.to_string();
        }
        format!("{} ({} ago)", self.restarts, since(&json!(self.last_restart)))
    }
}

fn first(texts: &[&str]) -> String {
    texts.iter().find(|text| !text.is_empty()).map_or_else(String::new, |text| (*text).to_owned())
}

/// Why a container ended.
fn ended(terminated: &Value) -> String {
    match (terminated.text("reason"), terminated.int("signal").unwrap_or_default()) {
        ("", 0) => format!("ExitCode:{}", terminated.int("exitCode").unwrap_or_default()),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// PodTemplates.
pub fn pod_template() -> Vec<Column> {
    vec![
        name(),
        text("Containers", |object| json!(format::container_names(object.at("template")))),
        text("Images", |object| json!(format::container_images(object.at("template")))),
        text("Pod Labels", |object| json!(format::labels(object.at("template.metadata.labels")))),
    ]
}
