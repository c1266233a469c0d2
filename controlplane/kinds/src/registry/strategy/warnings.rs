//! Warnings for the `Warning` header.

use super::deprecations::{address, range};
use super::templates::template;
use coracle_fields::batch::v1::CronJob;
use coracle_fields::core::v1::{Endpoints, Pod, PodTemplate, ReplicationController, Service};
use coracle_fields::discovery::v1::EndpointSlice;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{List, Schema, Text, View};
use coracle_proto::names::dns1123_label;
use serde_json::Value;

/// A new Pod; changes of pods come from controllers, who read no warnings.
pub fn pod(pod: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let pod = Pod::of(pod);
    let mut warnings = Vec::new();
    let wrong = dns1123_label(pod.metadata().name().text());
    if !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
    // A pod has the fields of a template.
    warnings.extend(template("", pod.erased().as_type()));
    warnings
}

/// A workload whose template is at `spec.template`, when the template is new or changed.
pub fn workload(object: &Value, old: Option<&Value>) -> Vec<String> {
    let spec = |object| ReplicationController::of(object).spec();
    let new = spec(object).template();
    if !new.is_set() || old.is_some_and(|old| spec(old).as_value() == spec(object).as_value()) {
        return Vec::new();
    }
    template("spec.template.", new)
}

/// A Deployment or ReplicaSet, whose name becomes part of pod names.
pub fn named_workload(object: &Value, old: Option<&Value>) -> Vec<String> {
    job(object, old)
}

/// A PodTemplate.
pub fn pod_template(object: &Value, old: Option<&Value>) -> Vec<String> {
    let new = PodTemplate::of(object).template();
    if old.is_some_and(|old| PodTemplate::of(old).template().as_value() == new.as_value()) {
        return Vec::new();
    }
    template("template.", new)
}

/// A Job, whose name becomes part of pod names.
pub fn job(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = new_name(object, old);
    warnings.extend(workload(object, old));
    warnings
}

/// The name of a new object that becomes part of pod names.
fn new_name(object: &Value, old: Option<&Value>) -> Vec<String> {
    let wrong = dns1123_label(PartialObjectMetadata::of(object).metadata().name().text());
    if old.is_some() || wrong.is_empty() { Vec::new() } else { vec![names_in_hostnames(&wrong)] }
}

fn names_in_hostnames(wrong: &[String]) -> String {
    format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
        wrong.join(" ")
    )
}

/// A CronJob.
pub fn cron_job(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = new_name(object, old);
    let spec = |object| CronJob::of(object).spec();
    if old.is_none_or(|old| spec(old).as_value() != spec(object).as_value()) {
        let pods = spec(object).job_template().spec().template();
        warnings.extend(template("spec.jobTemplate.spec.template.", pods));
        if spec(object).schedule().text().contains("TZ") {
            warnings.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".into());
        }
    }
    warnings
}

/// The texts of a list of a Service's spec, with their paths.
fn texts<'a>(field: &'static str, list: View<'a, List<Text>>) -> impl Iterator<Item = (String, &'a str)> {
    list.texts().enumerate().map(move |(i, text)| (format!("spec.{field}[{i}]"), text))
}

/// A Service.
pub fn service(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let service = Service::of(object);
    let spec = service.spec();
    let old_hints = "service.kubernetes.io/topology-aware-hints";
    if service.metadata().annotations().key(old_hints).is_set() {
        warnings.push(format!(
            "annotation {old_hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    if !matches!(spec.cluster_ip().text(), "" | "None") {
        let addresses = texts("clusterIPs", spec.cluster_ips());
        warnings.extend(addresses.filter_map(|(path, text)| address(&path, text)));
    }
    let mut ignored = |unused: bool, text: &str| {
        if unused {
            warnings.push(text.into());
        }
    };
    let has_external = !spec.external_ips().is_empty();
    let (headless, named) =
        (spec.type_() == "ClusterIP" && spec.cluster_ip() == "None", spec.type_() == "ExternalName");
    if headless {
        ignored(
            !spec.load_balancer_ip().text().is_empty(),
            "spec.loadBalancerIP is ignored for headless services",
        );
        ignored(has_external, "spec.externalIPs is ignored for headless services");
        ignored(spec.session_affinity() != "None", "spec.SessionAffinity is ignored for headless services");
    }
    let addresses = texts("externalIPs", spec.external_ips());
    warnings.extend(addresses.filter_map(|(path, text)| address(&path, text)));
    if has_external && !headless && !named {
        warnings
            .push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    warnings.extend(address("spec.loadBalancerIP", spec.load_balancer_ip().text()));
    let ranges = texts("loadBalancerSourceRanges", spec.load_balancer_source_ranges());
    warnings.extend(ranges.flat_map(|(path, text)| range(&path, text)));
    let mut ignored = |unused: bool, text: &str| {
        if unused {
            warnings.push(text.into());
        }
    };
    ignored(named && has_external, "spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    ignored(
        !named && !spec.external_name().text().is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
    );
    ignored(
        spec.traffic_distribution() == "PreferClose",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    );
    warnings
}

/// Endpoints.
pub fn endpoints(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, subset) in Endpoints::of(object).subsets().items().enumerate() {
        for (list, addresses) in
            [("addresses", subset.addresses()), ("notReadyAddresses", subset.not_ready_addresses())]
        {
            let texts = addresses.items().enumerate();
            warnings.extend(
                texts.filter_map(|(j, item)| {
                    address(&format!("subsets[{i}].{list}[{j}].ip"), item.ip().text())
                }),
            );
        }
    }
    warnings
}

/// An EndpointSlice.
pub fn endpoint_slice(object: &Value, _old: Option<&Value>) -> Vec<String> {
    if EndpointSlice::of(object).address_type() == "FQDN" {
        return vec!["spec.addressType: FQDN endpoints are deprecated".into()];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_pod_is_warned_of() {
        let pod_object = json!({"metadata": {"name": "a.b", "annotations": {"security.alpha.kubernetes.io/sysctls": ""}}, "spec": {
            "volumes": [{"name": "v", "gitRepo": {}}],
            "containers": [{"name": "a", "resources": {"limits": {"memory": "500m"}},
                "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}],
                "ports": [{"containerPort": 80, "protocol": "TCP", "name": "w"}, {"containerPort": 80, "protocol": "TCP", "name": "w"}]}]}});
        let texts = pod(&pod_object, None);
        assert!(texts[0].starts_with("metadata.name: this is used in the Pod's hostname"));
        assert_eq!(
            texts[1..],
            [
                "metadata.annotations[security.alpha.kubernetes.io/sysctls]: non-functional in v1.11+; use the \"sysctls\" field instead",
                "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
                "spec.containers[0].resources.limits[memory]: fractional byte value \"500m\" is invalid, must be an integer",
                "spec.containers[0].env[1]: hides previous definition of \"X\", which may be dropped when using apply",
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
                "spec.containers[0].ports[1]: duplicate port name \"w\" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]",
            ]
        );
        assert!(pod(&pod_object, Some(&pod_object)).is_empty());
    }

    #[test]
    fn files_of_a_volume_that_overlap_and_sources_without_any() {
        let items = |paths: &[&str]| -> Value {
            paths.iter().map(|path| json!({"key": "k", "path": path})).collect()
        };
        for (mut volume, expected) in [
            (json!({"secret": {"secretName": "s", "items": items(&["a", "b/c"])}}), vec![]),
            (
                json!({"configMap": {"name": "m", "items": items(&["a/", "b", "a/b"])}}),
                vec![r#"volume "v" (ConfigMap "m"): overlapping paths: "a/b" with "a""#],
            ),
            (
                json!({"projected": {"sources": [{"configMap": {"name": "m", "items": items(&["x"])}},
                    {"secret": {"name": "s"}}, {"secret": {"name": "s", "items": items(&["y", "x/z"])}},
                    {"serviceAccountToken": {"path": "y"}}]}}),
                vec![
                    r#"volume "v" (Projected): overlapping paths: "x/z" (Secret "s") with "x" (ConfigMap "m")"#,
                    r#"volume "v" (Projected): overlapping paths: "y" (ServiceAccountToken) with "y" (Secret "s")"#,
                ],
            ),
            // What is left of trust bundles and certificates while their features are off.
            (
                json!({"projected": {"sources": [{}, {"downwardAPI": {}}]}}),
                vec![r#"volume "v" (Projected) has no sources provided"#],
            ),
        ] {
            volume["name"] = json!("v");
            let object = json!({"metadata": {"name": "p"}, "spec": {"volumes": [volume], "containers": [{"name": "c"}]}});
            assert_eq!(pod(&object, None), expected, "{object}");
        }
    }
}
