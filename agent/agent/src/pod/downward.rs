//! Downward API: fields and resources of a pod as text, for environment variables and volumes. Pure.

use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceFieldSelector};
use std::collections::BTreeMap;

use super::amount::{millis, units};
use super::{resources, spec};

/// Values that are not in the Pod object.
pub struct Downward<'a> {
    /// The pod's addresses.
    pub pod_ips: &'a [String],
    /// The node's addresses.
    pub host_ips: &'a [String],
    /// What the node offers: cpu in thousandths, the rest in units. Stands in for limits that neither container nor pod has.
    pub allocatable: &'a BTreeMap<String, i64>,
}

/// Where a value goes.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// An environment variable of the named container.
    Variable(&'a str),
    /// A file of a volume.
    File,
}

/// Why a field has no value.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DownwardError {
    /// Not a field of the downward API.
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    /// Not a resource of the downward API.
    #[error("unsupported container resource : {0}")]
    Resource(String),
    /// The named container is not in the pod.
    #[error("container {0} not found")]
    Container(String),
}

/// The value of a `fieldPath`.
pub fn field(pod: &Pod, path: &str, facts: &Downward<'_>) -> Result<String, DownwardError> {
    if let Some((path, subscript)) = subscript(path) {
        let map = match path {
            "metadata.labels" => &pod.metadata.labels,
            "metadata.annotations" => &pod.metadata.annotations,
            _ => return Err(DownwardError::Field(path.to_owned())),
        };
        return Ok(map.as_ref().and_then(|map| map.get(subscript)).cloned().unwrap_or_default());
    }
    let spec = spec::spec(pod);
    Ok(match path {
        "metadata.name" => spec::name(pod).to_owned(),
        "metadata.namespace" => spec::namespace(pod).to_owned(),
        "metadata.uid" => spec::uid(pod).to_owned(),
        "metadata.labels" => format_map(pod.metadata.labels.as_ref()),
        "metadata.annotations" => format_map(pod.metadata.annotations.as_ref()),
        "spec.nodeName" => spec.node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" => facts.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" => facts.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => facts.pod_ips.join(","),
        other => return Err(DownwardError::Field(other.to_owned())),
    })
}

/// Whether the field needs the pod's address, known only after its sandbox was made.
pub fn needs_ip(path: &str) -> bool {
    matches!(path, "status.podIP" | "status.podIPs")
}

/// The value of a `resourceFieldRef`, rounded up to its divisor.
pub fn resource(
    pod: &Pod,
    place: Place<'_>,
    selector: &ResourceFieldSelector,
    facts: &Downward<'_>,
) -> Result<String, DownwardError> {
    let spec = spec::spec(pod);
    let own = match place {
        Place::Variable(container) => container,
        Place::File => "",
    };
    let name = selector.container_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(own);
    let (_, container) =
        spec::container(&spec, name).ok_or_else(|| DownwardError::Container(name.to_owned()))?;
    let unsupported = || DownwardError::Resource(selector.resource.clone());
    let (list, key) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let own = container.resources.clone().unwrap_or_default();
    let is_limit = list == "limits";
    let list = match list {
        "limits" => own.limits,
        "requests" => own.requests,
        _ => return Err(unsupported()),
    };
    // Huge pages cannot be used without a limit: nothing stands in for it.
    let has_substitute = matches!(key, "cpu" | "memory" | "ephemeral-storage");
    if !has_substitute && !key.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let own = list.as_ref().and_then(|list| list.get(key)).map_or(0, |quantity| spec::amount(key, quantity));
    let amount = match own {
        0 if is_limit && has_substitute => substitute(&spec, key, place, facts),
        own => own,
    };
    let divisor = selector.divisor.as_ref().filter(|divisor| millis(divisor) > 0);
    let divisor = match (key, divisor) {
        ("cpu", Some(divisor)) => millis(divisor),
        ("cpu", None) => 1000,
        (_, Some(divisor)) => units(divisor),
        (_, None) => 1,
    };
    Ok((amount.div_euclid(divisor) + i64::from(amount.rem_euclid(divisor) != 0)).to_string())
}

/// What a container without a limit may use: what the pod may as a whole, else what the node offers. Files have what the node
/// offers in both cases, as those of kubelets.
fn substitute(spec: &PodSpec, key: &str, place: Place<'_>, facts: &Downward<'_>) -> i64 {
    let of_pod = match (place, key) {
        (Place::Variable(_), "cpu" | "memory") => resources::limit_of_pod(spec, key),
        // Pods as a whole have no limits of local storage.
        _ => 0,
    };
    if of_pod == 0 { facts.allocatable.get(key).copied().unwrap_or(0) } else { of_pod }
}

/// `metadata.labels['key']` as path and key.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (path, rest) = path.split_once("['")?;
    Some((path, rest.strip_suffix("']")?))
}

/// A map as lines of `key="value"`, sorted.
fn format_map(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", quote(value))).collect();
    lines.join("\n")
}

/// Quotes as Go's `%q` does.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_and_resources() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": "x\"y\n"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "65Mi"}}}]},
        }))
        .unwrap();
        let allocatable = BTreeMap::from([("cpu".to_owned(), 4000), ("hugepages-2Mi".to_owned(), 8 << 20)]);
        let facts = Downward { pod_ips: &[], host_ips: &[], allocatable: &allocatable };
        assert_eq!(field(&pod, "metadata.labels", &facts).unwrap(), "a=\"x\\\"y\\n\"\nb=\"2\"");
        assert_eq!(field(&pod, "metadata.annotations['none']", &facts).unwrap(), "");
        assert!(field(&pod, "spec.restartPolicy", &facts).is_err());
        for (resource_name, divisor, want) in [
            ("requests.cpu", "0", "1"),
            ("requests.cpu", "1m", "250"),
            ("requests.memory", "1Mi", "64"),
            ("limits.memory", "64Mi", "2"),
            ("limits.cpu", "1", "4"),
            ("requests.ephemeral-storage", "1", "0"),
            ("limits.hugepages-2Mi", "1", "0"),
        ] {
            let selector: ResourceFieldSelector =
                serde_json::from_value(json!({"resource": resource_name, "divisor": divisor})).unwrap();
            assert_eq!(
                resource(&pod, Place::Variable("c"), &selector, &facts).unwrap(),
                want,
                "{resource_name}/{divisor}"
            );
        }
    }

    #[test]
    fn the_limit_of_the_pod_comes_before_what_the_node_offers() {
        let amounts = [("cpu", 4000), ("memory", 8 << 30), ("ephemeral-storage", 9)];
        let allocatable = BTreeMap::from(amounts.map(|(key, amount)| (key.to_owned(), amount)));
        let facts = Downward { pod_ips: &[], host_ips: &[], allocatable: &allocatable };
        let whole =
            json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi", "hugepages-2Mi": "2Mi"}});
        for (of_pod, own, name, want) in [
            (&whole, json!({}), "limits.memory", "2048"),
            (&whole, json!({"memory": "1Gi"}), "limits.memory", "1024"),
            (&whole, json!({"memory": "0"}), "limits.memory", "2048"),
            (&whole, json!({}), "limits.ephemeral-storage", "1"),
            // Of these, the pod's do not count.
            (&whole, json!({}), "requests.memory", "0"),
            (&whole, json!({}), "limits.hugepages-2Mi", "0"),
            (&json!({}), json!({}), "limits.memory", "8192"),
        ] {
            let pod: Pod = serde_json::from_value(json!({"spec": {
                "resources": of_pod, "containers": [{"name": "c", "resources": {"limits": own}}],
            }}))
            .unwrap();
            let selector: ResourceFieldSelector =
                serde_json::from_value(json!({"resource": name, "divisor": "1Mi"})).unwrap();
            assert_eq!(
                resource(&pod, Place::Variable("c"), &selector, &facts).unwrap(),
                want,
                "{of_pod} {own} {name}"
            );
        }
    }

    #[test]
    fn in_files_the_node_stands_in_for_limits_that_a_container_lacks() {
        let allocatable = BTreeMap::from([("memory".to_owned(), 8 << 30)]);
        let facts = Downward { pod_ips: &[], host_ips: &[], allocatable: &allocatable };
        for (own, want) in [(json!({}), "8192"), (json!({"memory": "1Gi"}), "1024")] {
            let pod: Pod = serde_json::from_value(json!({"spec": {
                "resources": {"limits": {"memory": "2Gi"}},
                "containers": [{"name": "c", "resources": {"limits": own}}],
            }}))
            .unwrap();
            let selector = json!({"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"});
            let selector: ResourceFieldSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(resource(&pod, Place::File, &selector, &facts).unwrap(), want, "{own}");
        }
    }
}
