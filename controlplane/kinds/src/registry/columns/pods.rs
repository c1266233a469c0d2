//! Columns of Pods and PodTemplates.

use super::{Column, age, format, name, since, text, text_or, wide};
use coracle_fields::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodTemplate};
use coracle_fields::{Schema as _, View};
use serde_json::{Value, json};

/// Pods.
pub fn pod() -> Vec<Column> {
    vec![
        name(),
        text::<Pod>("Ready", |pod| {
            let seen = Seen::of(pod);
            json!(format!("{}/{}", seen.ready, seen.total))
        }),
        text::<Pod>("Status", |pod| json!(Seen::of(pod).reason)),
        text::<Pod>("Restarts", |pod| json!(Seen::of(pod).restarts())),
        age(),
        wide::<Pod>("IP", |pod| {
            json!(pod.status().pod_ips().first().map_or("<none>", |address| address.ip().text()))
        }),
        wide::<Pod>("Node", |pod| text_or(pod.spec().node_name().text(), "<none>")),
        wide::<Pod>("Nominated Node", |pod| text_or(pod.status().nominated_node_name().text(), "<none>")),
        wide::<Pod>("Readiness Gates", readiness_gates),
    ]
}

fn readiness_gates(pod: View<'_, Pod>) -> Value {
    let gates = pod.spec().readiness_gates();
    if gates.is_empty() {
        return json!("<none>");
    }
    let conditions = pod.status().conditions();
    let open = gates.items().filter(|gate| format::is_true(conditions, gate.condition_type().text())).count();
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
    fn of(pod: View<'_, Pod>) -> Self {
        let (spec, status) = (pod.spec(), pod.status());
        let sidecars = || spec.init_containers().items().filter(|c| c.restart_policy() == "Always");
        let mut seen = Seen {
            ready: 0,
            total: spec.containers().len() + sidecars().count(),
            reason: first(&[status.reason().text(), status.phase().text()]),
            restarts: 0,
            last_restart: String::new(),
        };
        let scheduled = format::condition(status.conditions(), "PodScheduled");
        if scheduled.is_some_and(|condition| condition.reason() == "SchedulingGated") {
            seen.reason = "SchedulingGated".into();
        }
        let mut init = seen.empty();
        let mut beside = seen.empty();
        let mut initializing = false;
        for (index, container) in status.init_container_statuses().items().enumerate() {
            init.count_restarts(container);
            let is_sidecar = sidecars().any(|c| c.name() == container.name().text());
            if is_sidecar {
                beside.count_restarts(container);
            }
            let terminated = container.state().terminated();
            if terminated.is_set() && terminated.exit_code().or(0) == 0 {
                continue;
            }
            if is_sidecar && container.started().flag() {
                seen.ready += usize::from(container.ready().flag());
                continue;
            }
            let waiting = container.state().waiting().reason().text();
            seen.reason = if terminated.is_set() {
                format!("Init:{}", ended(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", spec.init_containers().len())
            };
            initializing = true;
            break;
        }
        (seen.restarts, seen.last_restart) = (init.restarts, init.last_restart);
        if !initializing || format::is_true(status.conditions(), "Initialized") {
            (seen.restarts, seen.last_restart) = (beside.restarts, beside.last_restart);
            seen.main_containers(pod);
        }
        seen.leaving(pod);
        seen
    }

    fn empty(&self) -> Seen {
        Seen { ready: 0, total: 0, reason: String::new(), restarts: 0, last_restart: String::new() }
    }

    fn count_restarts(&mut self, status: View<'_, ContainerStatus>) {
        self.restarts += status.restart_count().or(0);
        let finished = status.last_state().terminated().finished_at().text();
        if finished > self.last_restart.as_str() {
            self.last_restart = finished.to_owned();
        }
    }

    fn main_containers(&mut self, pod: View<'_, Pod>) {
        let (mut running, mut failure) = (false, String::new());
        let statuses: Vec<View<'_, ContainerStatus>> = pod.status().container_statuses().items().collect();
        for status in statuses.into_iter().rev() {
            self.count_restarts(status);
            let terminated = status.state().terminated();
            let waiting = status.state().waiting().reason().text();
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if terminated.is_set() {
                self.reason = ended(terminated);
                if terminated.exit_code().or(0) != 0 {
                    failure = self.reason.clone();
                }
            } else if status.ready().flag() && status.state().running().is_set() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && format::is_true(pod.status().conditions(), "Ready") {
                self.reason = "Running".into();
            } else if !failure.is_empty() {
                self.reason = failure;
            } else if running {
                self.reason = "NotReady".into();
            }
        }
    }

    fn leaving(&mut self, pod: View<'_, Pod>) {
        if !pod.metadata().deletion_timestamp().is_set() {
            return;
        }
        if pod.status().reason() == "NodeLost" {
            self.reason = "Unknown".into();
        } else if !matches!(pod.status().phase().text(), "Succeeded" | "Failed") {
            self.reason = "Terminating".into();
        }
    }

    fn restarts(&self) -> String {
        if self.restarts == 0 || self.last_restart.is_empty() {
            return self.restarts.to_string();
        }
        format!("{} ({} ago)", self.restarts, since(&self.last_restart))
    }
}

fn first(texts: &[&str]) -> String {
    texts.iter().find(|text| !text.is_empty()).map_or_else(String::new, |text| (*text).to_owned())
}

/// Why a container ended.
fn ended(terminated: View<'_, ContainerStateTerminated>) -> String {
    match (terminated.reason().text(), terminated.signal().or(0)) {
        ("", 0) => format!("ExitCode:{}", terminated.exit_code().or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Conditions of the row of a pod that has ended.
pub fn pod_conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match Pod::of(pod).status().phase().text() {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// PodTemplates.
pub fn pod_template() -> Vec<Column> {
    vec![
        name(),
        text::<PodTemplate>("Containers", |object| json!(format::container_names(object.template()))),
        text::<PodTemplate>("Images", |object| json!(format::container_images(object.template()))),
        text::<PodTemplate>("Pod Labels", |object| {
            json!(format::labels(object.template().metadata().labels()))
        }),
    ]
}
