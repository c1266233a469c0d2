//! Whether an object that was written is ready, by its state in the API.

use coracle_fields::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use coracle_fields::batch::v1::Job;
use coracle_fields::core::v1::{
    ContainerStatus, Node, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use coracle_fields::{List, Schema as _, View};
use jiff::Timestamp;
use serde_json::Value;

use super::restarts::restarted;

/// How far an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Ready, completed, gone, or of a kind that is never more than written.
    Done,
    /// Nothing is wrong so far.
    Waiting,
    /// It waits for something that may not happen, with the reason.
    Stuck(String),
    /// It is ready, but was restarted a moment ago, as it happens in a crash loop.
    Restarted(String),
    /// It will not be ready any more, with the reason.
    Failed(String),
}

/// What a trace says about the nodes that a Service is programmed on.
#[derive(Debug, Clone, Default)]
pub(super) struct Programming<'a> {
    /// Nodes that programmed rules.
    pub(super) programmed: Vec<&'a str>,
    /// Nodes that are ready; none if that is not known.
    pub(super) ready: Vec<&'a str>,
}

/// How far an object is; `None` if it does not exist any more.
pub(super) fn progress(resource: &str, object: Option<&Value>, programming: &Programming<'_>) -> Progress {
    let Some(object) = object else { return Progress::Done };
    match resource {
        "pods" => pod(Pod::of(object), Timestamp::now()),
        "deployments.apps" => deployment(Deployment::of(object)),
        "replicasets.apps" => {
            let set = ReplicaSet::of(object);
            let (status, wanted) = (set.status(), set.spec().replicas().or(1));
            let observed = status.observed_generation().or(0) >= set.metadata().generation().or(0);
            done_if(observed && status.available_replicas().or(0) >= wanted)
        }
        "replicationcontrollers" => {
            let controller = ReplicationController::of(object);
            let (status, wanted) = (controller.status(), controller.spec().replicas().or(1));
            let observed = status.observed_generation().or(0) >= controller.metadata().generation().or(0);
            done_if(observed && status.available_replicas().or(0) >= wanted)
        }
        "statefulsets.apps" => {
            let set = StatefulSet::of(object);
            let (status, wanted) = (set.status(), set.spec().replicas().or(1));
            let observed = status.observed_generation().or(0) >= set.metadata().generation().or(0);
            let updated = set.spec().update_strategy().type_() == "OnDelete"
                || status.updated_replicas().or(0) >= wanted;
            done_if(observed && updated && status.ready_replicas().or(0) >= wanted)
        }
        "daemonsets.apps" => {
            let set = DaemonSet::of(object);
            let (status, wanted) = (set.status(), set.status().desired_number_scheduled().or(0));
            let observed = status.observed_generation().or(0) >= set.metadata().generation().or(0);
            let updated = set.spec().update_strategy().type_() == "OnDelete"
                || status.updated_number_scheduled().or(0) >= wanted;
            done_if(observed && updated && status.number_available().or(0) >= wanted)
        }
        "jobs.batch" => job(Job::of(object)),
        "persistentvolumeclaims" => match PersistentVolumeClaim::of(object).status().phase().text() {
            "Lost" => Progress::Failed("the volume is lost".to_owned()),
            "Pending" => Progress::Stuck("no volume is bound to the claim".to_owned()),
            phase => done_if(phase == "Bound"),
        },
        "services" => service(Service::of(object), programming),
        _ => Progress::Done,
    }
}

/// Whether a node is ready.
pub(super) fn is_ready_node(node: &Value) -> bool {
    let mut conditions = Node::of(node).status().conditions().items();
    conditions.any(|condition| condition.type_() == "Ready" && condition.status() == "True")
}

fn done_if(done: bool) -> Progress {
    if done { Progress::Done } else { Progress::Waiting }
}

/// How far a pod is.
pub(super) fn pod(pod: View<'_, Pod>, now: Timestamp) -> Progress {
    let status = pod.status();
    match status.phase().text() {
        "Succeeded" => return Progress::Done,
        "Failed" => {
            let reason = [status.message().text(), status.reason().text(), "its containers failed"];
            return Progress::Failed(first(&reason));
        }
        _ => {}
    }
    for condition in status.conditions().items() {
        if condition.type_() == "Ready" && condition.status() == "True" {
            return restarted(pod, now).map_or(Progress::Done, Progress::Restarted);
        }
        if condition.type_() == "PodScheduled" && condition.reason() == "Unschedulable" {
            return Progress::Stuck(first(&[condition.message().text(), "unschedulable"]));
        }
    }
    let waits = waiting(status.init_container_statuses()).or_else(|| waiting(status.container_statuses()));
    waits.map_or(Progress::Waiting, Progress::Stuck)
}

/// Why a container waits, if that is an error.
fn waiting(statuses: View<'_, List<ContainerStatus>>) -> Option<String> {
    statuses.items().find_map(|status| {
        let waiting = status.state().waiting();
        let (reason, message) = (waiting.reason().text(), waiting.message().text());
        let is_error = !matches!(reason, "" | "ContainerCreating" | "PodInitializing");
        let text = if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") };
        is_error.then(|| format!("container {}: {text}", status.name().text()))
    })
}

fn deployment(deployment: View<'_, Deployment>) -> Progress {
    let (spec, status) = (deployment.spec(), deployment.status());
    let wanted = spec.replicas().or(1);
    let observed = status.observed_generation().or(0) >= deployment.metadata().generation().or(0);
    if !observed {
        return Progress::Waiting;
    }
    let updated = status.updated_replicas().or(0);
    if updated >= wanted && status.replicas().or(0) <= updated && status.available_replicas().or(0) >= wanted
    {
        return Progress::Done;
    }
    if spec.paused().flag() {
        return Progress::Stuck("the rollout is paused".to_owned());
    }
    for condition in status.conditions().items() {
        let is_stalled = condition.type_() == "Progressing" && condition.status() == "False";
        if is_stalled || condition.type_() == "ReplicaFailure" && condition.status() == "True" {
            return Progress::Stuck(first(&[condition.message().text(), condition.reason().text()]));
        }
    }
    Progress::Waiting
}

fn job(job: View<'_, Job>) -> Progress {
    for condition in job.status().conditions().items() {
        if condition.status() != "True" {
            continue;
        }
        match condition.type_().text() {
            "Complete" | "Suspended" => return Progress::Done,
            "Failed" => {
                return Progress::Failed(first(&[condition.message().text(), condition.reason().text()]));
            }
            _ => {}
        }
    }
    Progress::Waiting
}

fn service(service: View<'_, Service>, programming: &Programming<'_>) -> Progress {
    let spec = service.spec();
    let has_rules = spec.type_() != "ExternalName" && spec.cluster_ip() != "None";
    let missing = programming.ready.iter().any(|node| !programming.programmed.contains(node));
    done_if(!has_rules || !missing)
}

/// The first text that says something.
fn first(texts: &[&str]) -> String {
    texts.iter().find(|text| !text.is_empty()).copied().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(resource: &str, object: Value) -> Progress {
        progress(resource, Some(&object), &Programming::default())
    }

    #[test]
    fn what_is_gone_or_only_written_is_done() {
        assert_eq!(progress("pods", None, &Programming::default()), Progress::Done);
        assert_eq!(of("configmaps", json!({})), Progress::Done);
        assert_eq!(of("widgets.example.com", json!({"status": {"phase": "Pending"}})), Progress::Done);
    }

    #[test]
    fn pods() {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(of("pods", ready), Progress::Done);
        assert_eq!(of("pods", json!({"status": {"phase": "Succeeded"}})), Progress::Done);
        assert_eq!(of("pods", json!({"status": {"phase": "Pending"}})), Progress::Waiting);
        let failed = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        assert_eq!(of("pods", failed), Progress::Failed("Evicted".to_owned()));
        let pending = json!({"status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]}});
        assert_eq!(of("pods", pending), Progress::Stuck("0/3 nodes are available".to_owned()));
        let creating = json!({"status": {"containerStatuses": [
            {"name": "web", "state": {"waiting": {"reason": "ContainerCreating"}}}]}});
        assert_eq!(of("pods", creating), Progress::Waiting);
        let crashing = json!({"status": {"containerStatuses": [
            {"name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
        assert_eq!(of("pods", crashing), Progress::Stuck("container web: CrashLoopBackOff".to_owned()));
    }

    #[test]
    fn workloads() {
        let deployment = |observed: i64, updated: i64, available: i64| {
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": {"observedGeneration": observed,
                "replicas": 3, "updatedReplicas": updated, "availableReplicas": available}})
        };
        assert_eq!(of("deployments.apps", deployment(2, 3, 3)), Progress::Done);
        assert_eq!(of("deployments.apps", deployment(1, 3, 3)), Progress::Waiting);
        assert_eq!(of("deployments.apps", deployment(2, 2, 3)), Progress::Waiting);
        let stalled = json!({"status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "no quota"}]}});
        assert_eq!(of("deployments.apps", stalled), Progress::Stuck("no quota".to_owned()));
        let set = json!({"spec": {"replicas": 0}, "status": {"replicas": 0}});
        assert_eq!(of("replicasets.apps", set), Progress::Done);
        let daemons = json!({"status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}});
        assert_eq!(of("daemonsets.apps", daemons), Progress::Waiting);
        let job = |condition: &str| json!({"status": {"conditions": [{"type": condition, "status": "True", "reason": "R"}]}});
        assert_eq!(of("jobs.batch", job("Complete")), Progress::Done);
        assert_eq!(of("jobs.batch", job("Failed")), Progress::Failed("R".to_owned()));
        assert_eq!(of("jobs.batch", json!({})), Progress::Waiting);
    }

    #[test]
    fn services_wait_for_every_ready_node() {
        let service = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.9"}});
        let nodes = |programmed| Programming { programmed, ready: vec!["n1", "n2"] };
        assert_eq!(progress("services", Some(&service), &nodes(vec!["n1"])), Progress::Waiting);
        assert_eq!(progress("services", Some(&service), &nodes(vec!["n1", "n2"])), Progress::Done);
        let headless = json!({"spec": {"clusterIP": "None"}});
        assert_eq!(progress("services", Some(&headless), &nodes(vec![])), Progress::Done);
        assert_eq!(of("services", service), Progress::Done, "nodes are not known");
    }

    #[test]
    fn claims() {
        assert_eq!(of("persistentvolumeclaims", json!({"status": {"phase": "Bound"}})), Progress::Done);
        let pending = of("persistentvolumeclaims", json!({"status": {"phase": "Pending"}}));
        assert_eq!(pending, Progress::Stuck("no volume is bound to the claim".to_owned()));
    }
}
