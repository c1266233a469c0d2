//! Field rules of Pods and of pod templates.

use super::field_ref::{FieldRef, walk};
use super::meta;
use super::names::is_ip;
use crate::tree::Tree;
use coracle_proto::names::{
    dns1123_label, dns1123_subdomain, dns1123_subdomain_with_underscore, qualified_name, user_id,
};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};

mod containers;
mod env;
mod mounts;
mod probes;
pub mod qos;
pub mod resources;
pub mod scheduling;
mod security;
mod os;
mod status;
mod updates;
pub mod volumes;

pub(super) use probes::port as port_or_name;
pub use status::status_update;
pub use updates::{ephemeral_update, resize, update};

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What the rules of a container need to know of its pod.
pub(super) struct Pod<'a> {
    /// Seconds that a pod has to end.
    grace: Option<i64>,
    restart_policy: &'a str,
    host_users: bool,
    os: &'a str,
    volumes: HashMap<&'a str, &'a Value>,
    claims: BTreeSet<&'a str>,
}

impl<'a> Pod<'a> {
    fn of(spec: &FieldRef<'a>) -> Self {
        let value = spec.value;
        Pod {
            grace: value.int("terminationGracePeriodSeconds"),
            restart_policy: value.text("restartPolicy"),
            host_users: value.at("hostUsers").as_bool().unwrap_or(true),
            os: value.text("os.name"),
            volumes: value.items("volumes").iter().map(|volume| (volume.text("name"), volume)).collect(),
            claims: value.items("resourceClaims").iter().map(|claim| claim.text("name")).collect(),
        }
    }
}

/// Whether the spec is a pod's own or a template's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// A Pod.
    Pod,
    /// A template inside a workload.
    Template,
}

/// A Pod, new or changed.
pub fn pod(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        annotations(&root.at("metadata.annotations"), &spec);
        pod_spec(&spec, root.value.text("metadata.name"), Of::Pod);
        if spec.at("serviceAccountName").text().is_empty() {
            for volume in spec.each("volumes") {
                for source in volume.each("projected.sources") {
                    if source.at("serviceAccountToken").is_set() {
                        source
                            .at("serviceAccountToken")
                            .forbidden("must not be specified when serviceAccountName is not set");
                    }
                }
            }
        }
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            for container in spec.each(list) {
                containers::image_without_spaces(&container);
            }
        }
    });
}

/// What holds only for new Pods.
pub fn create(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        if !spec.at("ephemeralContainers").is_empty() {
            spec.at("ephemeralContainers").forbidden("cannot be set on create");
        }
        if !spec.at("nodeName").is_empty() && !spec.at("schedulingGates").is_empty() {
            spec.at("nodeName").forbidden("cannot be set until all schedulingGates have been cleared");
        }
    });
}

/// A template inside a workload: its labels, annotations and pods.
pub(super) fn template(template: &FieldRef<'_>) {
    // Upstream reports these without the `metadata` in between.
    let metadata = |key: &str| template.at(key).with(template.value.at("metadata").at(key));
    meta::labels(&metadata("labels"));
    meta::annotations(&metadata("annotations"));
    annotations(&metadata("annotations"), &template.at("spec"));
    pod_spec(&template.at("spec"), "", Of::Template);
    if !template.at("spec.ephemeralContainers").is_empty() {
        template.at("spec.ephemeralContainers").forbidden("ephemeral containers not allowed in pod template");
    }
}

/// A PodTemplate object.
pub fn pod_template(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| template(&root.at("template")));
}

fn annotations(annotations: &FieldRef<'_>, spec: &FieldRef<'_>) {
    let mirror = annotations.key(MIRROR);
    if mirror.is_set() && spec.at("nodeName").is_empty() {
        mirror.invalid("must set spec.nodeName if mirror pod annotation is set");
    }
    let cost = annotations.key(DELETION_COST);
    if cost.is_set() && cost.text().parse::<i32>().map(|n| n.to_string()).as_deref() != Ok(cost.text()) {
        cost.invalid("must be a 32bit integer");
    }
}

pub(super) fn pod_spec(spec: &FieldRef<'_>, pod_name: &str, of: Of) {
    if !spec.at("terminationGracePeriodSeconds").is_set() {
        spec.at("terminationGracePeriodSeconds").required("");
    }
    let pod = Pod::of(spec);
    volumes::volumes(&spec.at("volumes"), pod_name);
    claims(&spec.at("resourceClaims"));
    containers::containers(spec, &pod);
    containers::init_containers(spec, &pod);
    containers::ephemeral_containers(spec, &pod);
    resources::pod_level(spec, &pod.claims);
    host_ports(spec, of);
    spec.at("restartPolicy").required_one_of(&["Always", "OnFailure", "Never"]);
    spec.at("dnsPolicy").required_one_of(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    meta::labels(&spec.at("nodeSelector"));
    security::pod_context(&spec.at("securityContext"), spec);
    scheduling::affinity(&spec.at("affinity"));
    dns(spec);
    for gate in spec.each("readinessGates") {
        gate.at("conditionType").follows(qualified_name);
    }
    scheduling::gates(&spec.at("schedulingGates"));
    scheduling::spread(&spec.at("topologySpreadConstraints"));
    host_users(spec);
    names(spec);
    scheduling::tolerations(&spec.at("tolerations"));
    for alias in spec.each("hostAliases") {
        is_ip(&alias.at("ip"));
        alias.each("hostnames").for_each(|name| name.follows(dns1123_subdomain));
    }
    if spec.at("preemptionPolicy").is_set() {
        spec.at("preemptionPolicy").required_one_of(&["PreemptLowerPriority", "Never"]);
    }
    resources::overhead(&spec.at("overhead"));
    os::check(spec);
}

fn names(spec: &FieldRef<'_>) {
    for (field, rule) in [
        ("serviceAccountName", dns1123_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", dns1123_subdomain),
        ("hostname", dns1123_label),
        ("subdomain", dns1123_label),
        ("priorityClassName", dns1123_subdomain),
        ("runtimeClassName", dns1123_subdomain),
    ] {
        if !spec.at(field).is_empty() {
            spec.at(field).follows(rule);
        }
    }
    let deadline = spec.at("activeDeadlineSeconds");
    deadline.in_range(1, i64::from(i32::MAX));
    let host = spec.at("hostnameOverride");
    if host.is_set() {
        if spec.value.flag("setHostnameAsFQDN") {
            host.forbidden("may not be specified when setHostnameAsFQDN is true");
        }
        if spec.value.flag("hostNetwork") {
            host.forbidden("may not be specified when hostNetwork is true");
        }
        if host.text().len() > 64 {
            host.too_long(64);
        }
        host.follows(dns1123_subdomain);
    }
}

fn host_users(spec: &FieldRef<'_>) {
    if spec.value.at("hostUsers").as_bool().unwrap_or(true) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.value.flag(field) {
            spec.at(shown).forbidden("when `hostUsers` is false");
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.each(list) {
            // Ids on a block device are not those of a mount: they cannot be mapped.
            if !container.value.items("volumeDevices").is_empty() {
                container.at("volumeDevices").forbidden("when `hostUsers` is false");
            }
        }
    }
}

/// With host networking, a port on the host is the port of the container.
fn host_ports(spec: &FieldRef<'_>, of: Of) {
    if !spec.value.flag("hostNetwork") {
        return;
    }
    for container in spec.each("containers") {
        for port in container.each("ports") {
            let (host, own) = (
                port.value.int("hostPort").unwrap_or_default(),
                port.value.int("containerPort").unwrap_or_default(),
            );
            if (of == Of::Pod || host != 0) && host != own {
                port.at("hostPort").invalid_as(host, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn dns(spec: &FieldRef<'_>) {
    let config = spec.at("dnsConfig");
    let servers = config.at("nameservers");
    if spec.value.text("dnsPolicy") == "None" {
        if !config.is_set() {
            return config.required("must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            return servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if servers.len() > 3 {
        servers.invalid("must not have more than 3 nameservers");
    }
    servers.items().for_each(|server| {
        is_ip(&server);
    });
    let searches = config.at("searches");
    if searches.len() > 32 {
        searches.invalid("must not have more than 32 search paths");
    }
    let length: usize = searches.items().map(|search| search.text().len() + 1).sum();
    if length > 2049 {
        searches.invalid("must not have more than 2048 characters (including spaces) in the search list");
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        for message in dns1123_subdomain_with_underscore(name) {
            search.invalid_as(name, message);
        }
    }
    for option in config.each("options") {
        if option.value.text("name").is_empty() {
            option.required("must not be empty");
        }
    }
}

fn claims(claims: &FieldRef<'_>) {
    let mut seen = HashSet::new();
    for claim in claims.items() {
        let name = claim.at("name");
        if name.text().is_empty() {
            name.required("");
        } else if !seen.insert(name.text()) {
            name.duplicate();
        } else {
            name.follows(dns1123_label);
        }
        match (claim.at("resourceClaimName").is_set(), claim.at("resourceClaimTemplateName").is_set()) {
            (true, true) => claim.invalid(
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => {
                claim.invalid("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`");
            }
            _ => {}
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if claim.at(field).is_set() {
                claim.at(field).follows(dns1123_subdomain);
            }
        }
    }
}

/// A user or group id, when there is one.
fn id(field: &FieldRef<'_>) {
    if let Some(number) = field.int() {
        field.all_good(user_id(number));
    }
}

#[cfg(test)]
mod tests;
