//! Pods that are resized: until their node has done it, what they ask for, what the node gave them and what they have
//! counts, whichever is more.

use super::resources::Resources;
use super::wire::{Condition, Container, PodSpec, PodStatus, Quantities, Requests};
use std::collections::HashMap;

/// What the node of a pod reports of its resources.
pub struct Reported<'a> {
    /// What containers have, and what they were given.
    containers: HashMap<&'a str, [&'a Quantities; 2]>,
    /// The same of the pod as a whole.
    whole: Option<[&'a Quantities; 2]>,
    /// The node can never do what is asked for: that does not count.
    is_infeasible: bool,
}

impl<'a> Reported<'a> {
    /// From a status.
    pub fn of(status: &'a PodStatus) -> Self {
        let all = status.container_statuses.iter().chain(&status.init_container_statuses);
        let containers = all.filter_map(|status| {
            let has = &status.resources.as_ref()?.requests;
            Some((status.name.as_str(), [has, &status.allocated_resources]))
        });
        let has = status.resources.as_ref();
        let pending = pending(status);
        Self {
            containers: containers.collect(),
            whole: has.map(|has| [&has.requests, &status.allocated_resources]),
            is_infeasible: pending.is_some_and(|condition| condition.reason == "Infeasible"),
        }
    }

    /// Of a container, or of a sidecar.
    pub fn container(&self, container: &'a Container) -> Sizes<'a> {
        self.with(&container.resources.requests, self.containers.get(container.name.as_str()).copied())
    }

    /// Of the pod as a whole.
    pub fn whole(&self, asked: &'a Requests) -> Sizes<'a> {
        self.with(&asked.requests, self.whole)
    }

    fn with(&self, asked: &'a Quantities, reported: Option<[&'a Quantities; 2]>) -> Sizes<'a> {
        let [has, given] = reported.map_or([None, None], |both| both.map(Some));
        let asked = if has.is_some() && self.is_infeasible { None } else { Some(asked) };
        Sizes([asked, has, given])
    }
}

/// Lists of which the largest amounts count.
pub struct Sizes<'a>([Option<&'a Quantities>; 3]);

impl<'a> Sizes<'a> {
    /// What is asked for, whatever is reported.
    pub fn asked(list: &'a Quantities) -> Self {
        Self([Some(list), None, None])
    }

    /// The largest amounts.
    pub fn amounts(&self) -> Resources {
        let mut lists = self.0.iter().flatten();
        let mut most = lists.next().map_or_else(Resources::default, |list| Resources::parse(list));
        lists.for_each(|list| most.max(&Resources::parse(list)));
        most
    }

    /// Whether one of them has the resource.
    pub fn has(&self, resource: &str) -> bool {
        self.0.iter().flatten().any(|list| list.contains_key(resource))
    }
}

fn pending(status: &PodStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == "PodResizePending")
}

/// Whether the status may change what the pod counts for, without a change of its spec.
pub fn is_under_way(spec: &PodSpec, status: &PodStatus) -> bool {
    let reported = Reported::of(status);
    let differs = |sizes: Sizes<'_>| {
        let [asked, has, given] = sizes.0.map(|list| list.map(Resources::parse));
        [has, given].into_iter().flatten().any(|list| asked.as_ref() != Some(&list))
    };
    pending(status).is_some()
        || spec.containers.iter().chain(&spec.init_containers).any(|one| differs(reported.container(one)))
        || spec.resources.as_ref().is_some_and(|whole| {
            let most = reported.whole(whole).amounts();
            let asked = Resources::parse(&whole.requests);
            let has = |name: &str| whole.requests.contains_key(name);
            (has("cpu") && most.cpu != asked.cpu) || (has("memory") && most.memory != asked.memory)
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::requests::{comparable_requests, pod_requests};
    use super::super::wire;
    use super::*;
    use serde_json::{Value, json};

    fn cpu(amount: &str) -> Value {
        json!({"requests": {"cpu": amount}})
    }

    fn reported(name: &str, has: &str, given: &str) -> Value {
        json!({"name": name, "resources": cpu(has), "allocatedResources": {"cpu": given}})
    }

    #[test]
    fn the_most_of_spec_given_and_actual_counts() {
        let pending =
            |reason: &str| json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
        let one = |asked: &str, has: &str, given: &str, conditions: Value| {
            json!({"spec": {"containers": [{"name": "c", "resources": cpu(asked)}]},
                "status": {"containerStatuses": [reported("c", has, given)], "conditions": conditions}})
        };
        let sidecar = json!({"spec": {"containers": [{"name": "c", "resources": cpu("1")}],
                "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": cpu("1")}, {"name": "i", "resources": cpu("1")}]},
            "status": {"initContainerStatuses": [reported("s", "3", "1"), reported("i", "9", "9")]}});
        let whole = |has: &str, conditions: Value| {
            json!({"spec": {"resources": cpu("2"), "containers": [{"name": "c", "resources": cpu("1")}]},
                "status": {"resources": cpu(has), "allocatedResources": {"cpu": has}, "conditions": conditions}})
        };
        for (pod, want, goes_on) in [
            (one("1", "1", "1", json!([])), 1000, false),
            (one("2", "1", "1", json!([])), 2000, true),
            (one("1", "2", "1", json!([])), 2000, true),
            (one("1", "1", "2", json!([])), 2000, true),
            (one("9", "1", "2", pending("Deferred")), 9000, true),
            (one("9", "1", "2", pending("Infeasible")), 2000, true),
            (sidecar, 4000, true),
            (whole("2", json!([])), 2000, false),
            (whole("3", json!([])), 3000, true),
            (whole("1", pending("Infeasible")), 1000, true),
        ] {
            let read: wire::Pod = serde_json::from_value(pod.clone()).unwrap();
            let got = pod_requests(&read.spec, &read.status);
            assert_eq!((got.cpu, is_under_way(&read.spec, &read.status)), (want, goes_on), "{pod}");
            assert_eq!(comparable_requests(&read.spec, &read.status).0, want, "{pod}");
        }
    }
}
