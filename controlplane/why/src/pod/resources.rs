//! Requests of pods, and what nodes have left.

use super::amounts::Amounts;
use super::has_ended;
use super::resize::Reported;
use super::verdict::Verdict;
use crate::trouble::Trouble;
use coracle_fields::View;
use coracle_fields::core::v1::{Container, Node, Pod};
use coracle_proto::quantity::Quantity;
use std::collections::BTreeMap;

fn of_container(container: View<'_, Container>) -> Amounts {
    let mut amounts = Amounts::read(container.resources().limits());
    amounts.0.extend(Amounts::read(container.resources().requests()).0);
    amounts
}

/// What a pod requests: all containers at once, or one init container with the sidecars before it, whichever is more. While it is
/// resized, what it has counts as well.
pub fn requests(pod: View<'_, Pod>) -> Amounts {
    let (mut sidecars, mut most) = (Amounts::default(), Amounts::default());
    let reported = Reported::of(pod);
    for container in pod.spec().init_containers().items() {
        let own = of_container(container);
        if container.restart_policy() == "Always" {
            sidecars.add(&reported.container(container.name().text(), own));
            most.at_least(&sidecars);
        } else {
            let mut during = sidecars.clone();
            during.add(&own);
            most.at_least(&during);
        }
    }
    let mut all = sidecars;
    for container in pod.spec().containers().items() {
        all.add(&reported.container(container.name().text(), of_container(container)));
    }
    all.at_least(&most);
    let asked = Amounts::read(pod.spec().resources().requests());
    let whole = reported.whole(asked.clone()).0.into_iter();
    all.0.extend(whole.filter(|(name, _)| asked.0.contains_key(name)));
    all.add(&Amounts::read(pod.spec().overhead()));
    all
}

/// What the pods on each node request, and how many there are.
pub fn usage<'a>(pods: &[View<'a, Pod>]) -> BTreeMap<&'a str, (Amounts, i64)> {
    let mut usage: BTreeMap<&str, (Amounts, i64)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !has_ended(**pod)) {
        let node = pod.spec().node_name().text();
        if !node.is_empty() {
            let (amounts, count) = usage.entry(node).or_default();
            amounts.add(&requests(*pod));
            *count += 1;
        }
    }
    usage
}

fn trouble_of(resource: &str) -> Trouble {
    match resource {
        "cpu" => Trouble::InsufficientCpu,
        "memory" => Trouble::InsufficientMemory,
        "ephemeral-storage" => Trouble::InsufficientStorage,
        _ => Trouble::InsufficientResource,
    }
}

/// An amount for people: bytes in the largest unit of which there is at least one.
fn shown(resource: &str, amount: &Quantity) -> String {
    const UNITS: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let bytes = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    let mut value = amount.value() as f64;
    if !bytes || value < 1024.0 {
        return amount.to_string();
    }
    let mut unit = "";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    let digits = format!("{value:.1}");
    format!("{}{unit}", digits.trim_end_matches(".0"))
}

/// What a node lacks for a pod.
pub fn lacks(wanted: &Amounts, node: View<'_, Node>, used: Option<&(Amounts, i64)>) -> Vec<Verdict> {
    let allocatable = Amounts::read(node.status().allocatable());
    let mut verdicts = Vec::new();
    for (name, amount) in wanted.0.iter().filter(|(_, amount)| !amount.is_zero()) {
        let all = allocatable.get(name);
        let mut free = all.clone();
        if let Some((used, _)) = used {
            free.sub(&used.get(name));
        }
        if free < *amount {
            let [free, all, amount] = [&free, &all, amount].map(|amount| shown(name, amount));
            let text = format!("has {free} of {all} {name} free, the pod wants {amount}");
            verdicts.push(Verdict::new(trouble_of(name), text));
        }
    }
    let (most, count) = (allocatable.get("pods").value(), used.map_or(0, |(_, count)| *count));
    if most > 0 && count >= most {
        verdicts.push(Verdict::new(Trouble::InsufficientPods, format!("has {count} of {most} pods")));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::{Value, json};

    #[test]
    fn of_a_resized_pod_the_most_counts() {
        let cpu = |pod: Value| requests(Pod::of(&pod)).get("cpu").to_string();
        let pod = |asked: &str, status: Value| {
            let container = json!({"name": "c", "resources": {"requests": {"cpu": asked}}});
            json!({"spec": {"containers": [container]}, "status": status})
        };
        let has = |has: &str, given: &str| json!([{"name": "c", "resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": given}}]);
        assert_eq!(cpu(pod("1", json!({}))), "1");
        assert_eq!(cpu(pod("1", json!({"containerStatuses": has("2", "1")}))), "2", "it is made smaller");
        assert_eq!(cpu(pod("3", json!({"containerStatuses": has("1", "2")}))), "3", "it is made larger");
        let never = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        let infeasible = json!({"containerStatuses": has("1", "1"), "conditions": never});
        assert_eq!(cpu(pod("9", infeasible)), "1");
        let whole = json!({"spec": {"resources": {"requests": {"cpu": "1"}}, "containers": []},
            "status": {"resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}});
        assert_eq!(cpu(whole.clone()), "4");
        assert!(requests(Pod::of(&whole)).get("memory").is_zero());
    }

    #[test]
    fn amounts_have_human_units() {
        for (resource, amount, text) in [
            ("memory", "24581696Ki", "23.4Gi"),
            ("memory", "900Gi", "900Gi"),
            ("memory", "512", "512"),
            ("ephemeral-storage", "107374182400", "100Gi"),
            ("cpu", "1500m", "1500m"),
        ] {
            assert_eq!(shown(resource, &amount.parse().unwrap()), text);
        }
    }
}
