//! Usage of objects for ResourceQuotas, for admission and for the quota controller. No clock, no tasks.

// Scopes and scope selectors.
mod scopes;
// What counts for a pod that is resized.
mod resize;

pub use scopes::{covered, in_scope, selected, terminating};

use resize::Reported;

use coracle_fields::core::v1::{PersistentVolumeClaim, Pod, ResourceRequirements, Service};
use coracle_fields::{Amount, At, Map, Reader, Schema, View, storage_class};
use coracle_proto::quantity::{Format, Quantity};
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Kinds that may be counted by their bare name.
const BARE_NAMES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
const CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";

/// An amount as JSON has it.
pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Amounts as JSON has them.
pub fn amounts(value: &Value) -> Amounts {
    listed(At::new(Reader::Tree(value)))
}

fn amount(place: View<'_, Amount>) -> Option<Quantity> {
    quantity(&place.as_value())
}

fn listed(map: View<'_, Map<Amount>>) -> Amounts {
    map.entries().filter_map(|(name, place)| Some((name.to_owned(), amount(place)?))).collect()
}

/// Adds `more` to `sum`.
pub fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        sum.entry(name.clone()).or_insert_with(Quantity::zero).add(amount);
    }
}

fn raise(least: &mut Amounts, to: &Amounts) {
    for (name, amount) in to {
        let entry = least.entry(name.clone()).or_insert_with(Quantity::zero);
        if *entry < *amount {
            *entry = amount.clone();
        }
    }
}

/// What a pod asks for (`requests`) or is held to (`limits`), without its overhead.
pub fn pod_amounts(pod: &Value, section: &str) -> Amounts {
    let section = |resources: View<'_, ResourceRequirements>| match section {
        "limits" => listed(resources.limits()),
        _ => listed(resources.requests()),
    };
    amounts_of(Pod::of(pod), section, |_, asked| asked)
}

/// What containers need together, where `counted` says what a container or sidecar of a name counts for.
fn amounts_of(
    pod: View<'_, Pod>,
    of: impl Fn(View<'_, ResourceRequirements>) -> Amounts,
    counted: impl Fn(&str, Amounts) -> Amounts,
) -> Amounts {
    let spec = pod.spec();
    let mut total = Amounts::new();
    for container in spec.containers().items() {
        add(&mut total, &counted(container.name().text(), of(container.resources())));
    }
    // Init containers run one after the other, beside the sidecars that were started before them.
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers().items() {
        let mut now = of(container.resources());
        if container.restart_policy() == "Always" {
            now = counted(container.name().text(), now);
            add(&mut total, &now);
            add(&mut sidecars, &now);
            now = sidecars.clone();
        } else {
            add(&mut now, &sidecars);
        }
        raise(&mut peak, &now);
    }
    raise(&mut total, &peak);
    total.extend(of(spec.resources()).into_iter().filter(|(name, _)| pod_level(name)));
    total
}

fn pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// What a quota calls the number of objects of a kind.
fn count_name((group, plural): (&str, &str)) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

/// Whether objects of a kind can use a resource of a quota.
pub fn concerns(kind: (&str, &str), resource: &str) -> bool {
    if resource.starts_with("count/") {
        return resource == count_name(kind);
    }
    match kind {
        ("", "pods") => {
            let bare = matches!(resource, "pods" | "cpu" | "memory" | "ephemeral-storage");
            let asked = resource.strip_prefix("requests.").is_some_and(|name| name != "storage");
            bare || asked || resource.starts_with("limits.") || resource.starts_with("hugepages-")
        }
        ("", "services") => {
            matches!(resource, "services" | "services.nodeports" | "services.loadbalancers")
        }
        ("", "persistentvolumeclaims") => {
            let own = resource.split_once(CLASS_SUFFIX).map_or(resource, |(_, own)| own);
            matches!(own, "persistentvolumeclaims" | "requests.storage")
        }
        ("", plural) => BARE_NAMES.contains(&plural) && resource == plural,
        _ => false,
    }
}

/// Everything that one object uses.
pub fn usage(kind: (&str, &str), object: &Value) -> Amounts {
    let number = |n: usize| Quantity::new(n as i64, Format::DecimalSi);
    let mut used = Amounts::from([(count_name(kind), number(1))]);
    match kind {
        ("", "pods") => pod_usage(Pod::of(object), &mut used),
        ("", "services") => {
            let spec = Service::of(object).spec();
            let (kind, ports) = (spec.type_().or("ClusterIP"), spec.ports());
            let given = ports.items().filter(|port| port.node_port().or(0) > 0).count();
            let node_ports = match kind {
                "LoadBalancer" if spec.allocate_load_balancer_node_ports().get() == Some(false) => given,
                "NodePort" | "LoadBalancer" => ports.len(),
                _ => 0,
            };
            used.insert("services".into(), number(1));
            used.insert("services.nodeports".into(), number(node_ports));
            used.insert("services.loadbalancers".into(), number(usize::from(kind == "LoadBalancer")));
        }
        ("", "persistentvolumeclaims") => {
            let claim = PersistentVolumeClaim::of(object);
            let asked = amount(claim.spec().resources().requests().key("storage"));
            let given = amount(claim.status().allocated_resources().key("storage"));
            let storage = asked.map(|asked| given.map_or(asked.clone(), |given| asked.max(given)));
            let mut both = vec![("persistentvolumeclaims", number(1))];
            both.extend(storage.map(|storage| ("requests.storage", storage)));
            let class = storage_class::of_claim(claim).filter(|class| !class.is_empty());
            for (name, amount) in both {
                if let Some(class) = class {
                    used.insert(format!("{class}{CLASS_SUFFIX}{name}"), amount.clone());
                }
                used.insert(name.into(), amount);
            }
        }
        ("", plural) if BARE_NAMES.contains(&plural) => {
            used.insert(plural.into(), number(1));
        }
        _ => {}
    }
    used
}

fn pod_usage(pod: View<'_, Pod>, used: &mut Amounts) {
    if matches!(pod.status().phase().text(), "Succeeded" | "Failed") {
        return;
    }
    used.insert("pods".into(), Quantity::new(1, Format::DecimalSi));
    let reported = Reported::of(pod);
    let mut requests = amounts_of(
        pod,
        |resources| listed(resources.requests()),
        |name, asked| reported.requests(name, asked),
    );
    let mut limits =
        amounts_of(pod, |resources| listed(resources.limits()), |name, asked| reported.limits(name, asked));
    let overhead = listed(pod.spec().overhead());
    add(&mut requests, &overhead);
    for (name, amount) in &overhead {
        if let Some(limit) = limits.get_mut(name) {
            limit.add(amount);
        }
    }
    used.extend(compute(&requests, &limits));
}

/// The names under which a quota holds what is asked for.
pub fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::new();
    for (name, amount) in requests {
        if !name.contains('/') {
            used.insert(name.clone(), amount.clone());
        }
        used.insert(format!("requests.{name}"), amount.clone());
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), amount.clone());
        }
    }
    used
}

#[cfg(test)]
mod tests;
