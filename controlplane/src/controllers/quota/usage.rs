//! What objects use of a quota. No clock, no tasks.

use coracle_proto::quantity::{Format, Quantity};
use serde_json::Value;

fn parse(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// What a pod's containers ask for (`requests`) or are held to (`limits`) of a resource.
pub fn pod_resource(pod: &Value, section: &str, resource: &str) -> Quantity {
    let spec = &pod["spec"];
    let of = |container: &Value| {
        let own = parse(&container["resources"][section][resource]);
        // A limit without a request is the request.
        own.or_else(|| {
            (section == "requests").then(|| parse(&container["resources"]["limits"][resource])).flatten()
        })
        .unwrap_or_else(Quantity::zero)
    };
    let list = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
    let mut total = Quantity::zero();
    for container in list("containers") {
        total.add(&of(&container));
    }
    // Init containers run one after the other, beside the sidecars that were started before them.
    let mut sidecars = Quantity::zero();
    let mut peak = Quantity::zero();
    for container in list("initContainers") {
        let mut now = of(&container);
        if container["restartPolicy"] == "Always" {
            sidecars.add(&now);
            now = sidecars.clone();
        } else {
            now.add(&sidecars);
        }
        peak = peak.max(now);
    }
    total.add(&sidecars);
    let mut total = total.max(peak);
    if let Some(overhead) = parse(&spec["overhead"][resource]) {
        total.add(&overhead);
    }
    total
}

/// Whether a pod falls under a scope.
pub fn in_scope(pod: &Value, scope: &str) -> bool {
    let asks = |section: &str| {
        let fields = ["containers", "initContainers"];
        fields
            .iter()
            .flat_map(|f| pod["spec"][*f].as_array().into_iter().flatten())
            .any(|c| ["cpu", "memory"].iter().any(|r| !c["resources"][section][*r].is_null()))
    };
    let best_effort = !asks("requests") && !asks("limits");
    match scope {
        "Terminating" => pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|s| s >= 0),
        "NotTerminating" => pod["spec"]["activeDeadlineSeconds"].is_null(),
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => !pod["spec"]["priorityClassName"].as_str().unwrap_or("").is_empty(),
        "CrossNamespacePodAffinity" => ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
            let affinity = pod["spec"]["affinity"][*kind].to_string();
            affinity.contains("\"namespaces\"") || affinity.contains("\"namespaceSelector\"")
        }),
        _ => false,
    }
}

/// Whether a pod falls under a quota's scopes and scope selector.
pub fn covered(quota: &Value, pod: &Value) -> bool {
    let scopes = quota["spec"]["scopes"].as_array().into_iter().flatten();
    let expressions = quota["spec"]["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let expression = |e: &Value| {
        let scope = e["scopeName"].as_str().unwrap_or_default();
        let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
        let listed = e["values"].as_array().is_some_and(|v| v.iter().any(|x| x == class));
        match e["operator"].as_str().unwrap_or_default() {
            "In" => listed,
            "NotIn" => !listed,
            "DoesNotExist" => !in_scope(pod, scope),
            _ => in_scope(pod, scope),
        }
    };
    scopes.filter_map(Value::as_str).all(|s| in_scope(pod, s)) && expressions.into_iter().all(expression)
}

/// How much of a quota's resource one object uses; `plural` and `group` name its kind.
pub fn usage(quota: &Value, resource: &str, (group, plural): (&str, &str), object: &Value) -> Quantity {
    let one = || Quantity::new(1, Format::DecimalSi);
    let counted = resource.strip_prefix("count/");
    let qualified = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    if counted.is_some_and(|c| c == qualified) && plural != "pods" {
        return one();
    }
    match (group, plural) {
        ("", "pods") => pod_usage(quota, resource, object),
        ("", "services") => {
            let kind = object["spec"]["type"].as_str().unwrap_or("ClusterIP");
            let ports = object["spec"]["ports"].as_array().map_or(0, Vec::len);
            match resource {
                "services" => one(),
                "services.loadbalancers" if kind == "LoadBalancer" => one(),
                "services.nodeports" if kind == "NodePort" => Quantity::new(ports as i64, Format::DecimalSi),
                "services.nodeports" if kind == "LoadBalancer" => {
                    let given = object["spec"]["ports"].as_array().into_iter().flatten();
                    let given = given.filter(|p| p["nodePort"].as_i64().unwrap_or(0) > 0).count();
                    Quantity::new(given as i64, Format::DecimalSi)
                }
                _ => Quantity::zero(),
            }
        }
        ("", "persistentvolumeclaims") => {
            let class = object["spec"]["storageClassName"].as_str().unwrap_or_default();
            let own =
                resource.strip_prefix(class).and_then(|r| r.strip_prefix(".storageclass.storage.k8s.io/"));
            match own.unwrap_or(resource) {
                "persistentvolumeclaims" => one(),
                "requests.storage" => {
                    parse(&object["spec"]["resources"]["requests"]["storage"]).unwrap_or_else(Quantity::zero)
                }
                _ => Quantity::zero(),
            }
        }
        ("", plural) if resource == plural => one(),
        _ => Quantity::zero(),
    }
}

fn pod_usage(quota: &Value, resource: &str, pod: &Value) -> Quantity {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if resource == "count/pods" {
        return if covered(quota, pod) { Quantity::new(1, Format::DecimalSi) } else { Quantity::zero() };
    }
    if ended || !covered(quota, pod) {
        return Quantity::zero();
    }
    match resource.split_once('.') {
        None if resource == "pods" => Quantity::new(1, Format::DecimalSi),
        None if matches!(resource, "cpu" | "memory" | "ephemeral-storage") => {
            pod_resource(pod, "requests", resource)
        }
        Some(("requests", "storage")) => Quantity::zero(),
        Some((section @ ("requests" | "limits"), name)) => pod_resource(pod, section, name),
        _ => Quantity::zero(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_count_by_what_they_ask_for() {
        let pod = json!({"spec": {"containers": [
                {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m"}}},
                {"resources": {"limits": {"cpu": "1"}}}],
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
                {"resources": {"requests": {"cpu": "2"}}}]}});
        let quota = json!({"spec": {}});
        let used = |resource: &str| usage(&quota, resource, ("", "pods"), &pod).to_string();
        assert_eq!(used("requests.cpu"), "2050m", "the init container beside the sidecar is the peak");
        assert_eq!(used("limits.cpu"), "1200m");
        assert_eq!(used("memory"), "64Mi");
        assert_eq!(used("pods"), "1");
        assert_eq!(used("services"), "0");
        let done = json!({"status": {"phase": "Succeeded"}});
        assert_eq!(usage(&quota, "pods", ("", "pods"), &done).to_string(), "0");
        let best_effort = json!({"spec": {"scopes": ["BestEffort"]}});
        assert_eq!(usage(&best_effort, "pods", ("", "pods"), &pod).to_string(), "0");
        assert_eq!(usage(&best_effort, "pods", ("", "pods"), &json!({})).to_string(), "1");
    }

    #[test]
    fn other_kinds() {
        let quota = json!({});
        let balancer = json!({"spec": {"type": "LoadBalancer", "ports": [{"nodePort": 30000}, {}]}});
        let of = |resource: &str, kind, object: &Value| usage(&quota, resource, kind, object).to_string();
        assert_eq!(of("services.nodeports", ("", "services"), &balancer), "1");
        assert_eq!(of("services.loadbalancers", ("", "services"), &balancer), "1");
        let claim =
            json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "3Gi"}}}});
        let kind = ("", "persistentvolumeclaims");
        assert_eq!(of("fast.storageclass.storage.k8s.io/requests.storage", kind, &claim), "3Gi");
        assert_eq!(of("slow.storageclass.storage.k8s.io/requests.storage", kind, &claim), "0");
        assert_eq!(of("count/deployments.apps", ("apps", "deployments"), &json!({})), "1");
        assert_eq!(of("configmaps", ("", "configmaps"), &json!({})), "1");
    }
}
