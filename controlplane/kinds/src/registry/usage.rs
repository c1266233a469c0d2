//! Usage of objects for ResourceQuotas, for admission and for the quota controller. No clock, no tasks.

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
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.clone(), quantity(amount)?))).collect()
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
    let spec = &pod["spec"];
    let list = |field: &str| spec[field].as_array().into_iter().flatten();
    let of = |container: &Value| amounts(&container["resources"][section]);
    let mut total = Amounts::new();
    list("containers").for_each(|container| add(&mut total, &of(container)));
    // Init containers run one after the other, beside the sidecars that were started before them.
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in list("initContainers") {
        let mut now = of(container);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &now);
            add(&mut sidecars, &now);
            now = sidecars.clone();
        } else {
            add(&mut now, &sidecars);
        }
        raise(&mut peak, &now);
    }
    raise(&mut total, &peak);
    let own = amounts(&spec["resources"][section]);
    total.extend(own.into_iter().filter(|(name, _)| pod_level(name)));
    total
}

fn pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn best_effort(pod: &Value) -> bool {
    let asks = |container: &Value| {
        let sections = ["requests", "limits"];
        let wanted = |s: &str| ["cpu", "memory"].iter().any(|r| !container["resources"][s][*r].is_null());
        sections.into_iter().any(wanted)
    };
    let fields = ["containers", "initContainers"];
    !asks(&pod["spec"])
        && !fields.iter().flat_map(|f| pod["spec"][*f].as_array().into_iter().flatten()).any(asks)
}

/// Whether a pod falls under a scope.
pub fn in_scope(pod: &Value, scope: &str) -> bool {
    match scope {
        "Terminating" => terminating(pod),
        "NotTerminating" => !terminating(pod),
        "BestEffort" => best_effort(pod),
        "NotBestEffort" => !best_effort(pod),
        "PriorityClass" => !pod["spec"]["priorityClassName"].as_str().unwrap_or("").is_empty(),
        "CrossNamespacePodAffinity" => ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
            let affinity = pod["spec"]["affinity"][*kind].to_string();
            affinity.contains("\"namespaces\":[\"") || affinity.contains("\"namespaceSelector\":{")
        }),
        _ => false,
    }
}

/// Whether a pod ends by itself.
pub fn terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

/// Whether a pod satisfies one expression of a scope selector.
pub fn selected(expression: &Value, pod: &Value) -> bool {
    let scope = expression["scopeName"].as_str().unwrap_or_default();
    let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
    let listed = expression["values"].as_array().is_some_and(|v| v.iter().any(|x| x == class));
    match expression["operator"].as_str().unwrap_or_default() {
        "In" => listed,
        "NotIn" => !listed,
        "DoesNotExist" => !in_scope(pod, scope),
        _ => in_scope(pod, scope),
    }
}

/// Whether an object falls under a quota's scopes and scope selector; only pods can fall under any.
pub fn covered(quota: &Value, (group, plural): (&str, &str), object: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let scopes = list(&quota["spec"]["scopes"]);
    let expressions = list(&quota["spec"]["scopeSelector"]["matchExpressions"]);
    if scopes.is_empty() && expressions.is_empty() {
        return true;
    }
    (group, plural) == ("", "pods")
        && scopes.iter().filter_map(Value::as_str).all(|scope| in_scope(object, scope))
        && expressions.iter().all(|expression| selected(expression, object))
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
        ("", "pods") => pod_usage(object, &mut used),
        ("", "services") => {
            let kind = object["spec"]["type"].as_str().unwrap_or("ClusterIP");
            let ports = object["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
            let given = ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) > 0).count();
            let node_ports = match kind {
                "LoadBalancer" if object["spec"]["allocateLoadBalancerNodePorts"] == false => given,
                "NodePort" | "LoadBalancer" => ports.len(),
                _ => 0,
            };
            used.insert("services".into(), number(1));
            used.insert("services.nodeports".into(), number(node_ports));
            used.insert("services.loadbalancers".into(), number(usize::from(kind == "LoadBalancer")));
        }
        ("", "persistentvolumeclaims") => {
            let asked = quantity(&object["spec"]["resources"]["requests"]["storage"]);
            let given = quantity(&object["status"]["allocatedResources"]["storage"]);
            let storage = asked.map(|asked| given.map_or(asked.clone(), |given| asked.max(given)));
            let mut both = vec![("persistentvolumeclaims", number(1))];
            both.extend(storage.map(|storage| ("requests.storage", storage)));
            let class = object["spec"]["storageClassName"].as_str().filter(|class| !class.is_empty());
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

fn pod_usage(pod: &Value, used: &mut Amounts) {
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return;
    }
    used.insert("pods".into(), Quantity::new(1, Format::DecimalSi));
    let (mut requests, mut limits) = (pod_amounts(pod, "requests"), pod_amounts(pod, "limits"));
    let overhead = amounts(&pod["spec"]["overhead"]);
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
mod tests {
    use super::*;
    use serde_json::json;

    fn used(kind: (&str, &str), object: &Value, resource: &str) -> String {
        usage(kind, object).get(resource).map_or_else(|| "-".to_owned(), ToString::to_string)
    }

    #[test]
    fn pods_count_by_what_they_ask_for() {
        let pod = json!({"spec": {"containers": [
                {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m"}}},
                {"resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}, "limits": {"cpu": "1"}}}],
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
                {"resources": {"requests": {"cpu": "2"}}}],
            "overhead": {"cpu": "10m"}}});
        let of = |resource: &str| used(("", "pods"), &pod, resource);
        assert_eq!(of("requests.cpu"), "2060m", "the init container beside the sidecar is the peak");
        assert_eq!(of("limits.cpu"), "1210m");
        assert_eq!(of("memory"), "64Mi");
        assert_eq!(of("requests.example.com/gpu"), "2");
        assert_eq!(of("pods"), "1");
        assert_eq!(of("services"), "-");
        let done = json!({"status": {"phase": "Succeeded"}});
        assert_eq!(used(("", "pods"), &done, "pods"), "-");
        assert_eq!(used(("", "pods"), &done, "count/pods"), "1");
        let best_effort = json!({"spec": {"scopes": ["BestEffort"]}});
        assert!(!covered(&best_effort, ("", "pods"), &pod));
        assert!(covered(&best_effort, ("", "pods"), &json!({})));
        assert!(!covered(&best_effort, ("", "services"), &json!({})), "scopes are about pods");
    }

    #[test]
    fn scope_selectors_look_at_the_class() {
        let quota = |operator: &str, values: Value| {
            json!({"spec": {"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": operator, "values": values}]}}})
        };
        let pod = |class: &str| json!({"spec": {"priorityClassName": class}});
        for (quota, class, expected) in [
            (quota("In", json!(["high"])), "high", true),
            (quota("In", json!(["high"])), "low", false),
            (quota("NotIn", json!(["high"])), "low", true),
            (quota("Exists", json!([])), "", false),
            (quota("DoesNotExist", json!([])), "", true),
        ] {
            assert_eq!(covered(&quota, ("", "pods"), &pod(class)), expected, "{quota} {class}");
        }
    }

    #[test]
    fn other_kinds() {
        let mut balancer = json!({"spec": {"type": "LoadBalancer", "ports": [{"nodePort": 30000}, {}]}});
        let service = ("", "services");
        assert_eq!(used(service, &balancer, "services.nodeports"), "2");
        assert_eq!(used(service, &balancer, "services.loadbalancers"), "1");
        balancer["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
        assert_eq!(used(service, &balancer, "services.nodeports"), "1");
        let claim =
            json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "3Gi"}}}});
        let kind = ("", "persistentvolumeclaims");
        assert_eq!(used(kind, &claim, "fast.storageclass.storage.k8s.io/requests.storage"), "3Gi");
        assert_eq!(used(kind, &claim, "slow.storageclass.storage.k8s.io/requests.storage"), "-");
        assert_eq!(used(("apps", "deployments"), &json!({}), "count/deployments.apps"), "1");
        assert_eq!(used(("", "configmaps"), &json!({}), "configmaps"), "1");
    }

    #[test]
    fn resources_belong_to_kinds() {
        let claims = ("", "persistentvolumeclaims");
        for (kind, resource, expected) in [
            (("", "pods"), "requests.storage", false),
            (("", "pods"), "requests.cpu", true),
            (("", "pods"), "limits.memory", true),
            (("", "pods"), "count/pods", true),
            (claims, "requests.storage", true),
            (claims, "fast.storageclass.storage.k8s.io/persistentvolumeclaims", true),
            (("", "services"), "services.nodeports", true),
            (("", "services"), "pods", false),
            (("apps", "deployments"), "count/deployments.apps", true),
            (("", "secrets"), "secrets", true),
            (("", "endpoints"), "endpoints", false),
        ] {
            assert_eq!(concerns(kind, resource), expected, "{kind:?} {resource}");
        }
    }
}
