//! Field rules of Pods and of pod templates.

use super::field_ref::{Field, reported_at, walk_as};
use super::field_rules::{NumberRules as _, TextRules as _};
use super::meta;
use super::names::is_ip;
use coracle_fields::core::v1::{
    ContainerResizePolicy, Pod, PodResourceClaim, PodSpec, PodTemplate, PodTemplateSpec,
};
use coracle_fields::{List, Map, Schema as _, Text, View};
use coracle_proto::names::{dns1123_label, dns1123_subdomain, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;

mod containers;
mod dns;
mod env;
mod facts;
mod mounts;
mod paths;
mod probes;
mod projected;
pub mod qos;
mod resize;
mod resources;
pub mod scheduling;
mod security;
mod os;
mod status;
mod updates;
mod volumes;

use facts::{PodFacts, ephemeral};
pub(super) use paths::no_backsteps;
pub(super) use probes::port as port_or_name;
pub use resize::resize;
pub use status::status_update;
pub use updates::{ephemeral_update, update};

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

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
    walk_as::<Pod>(object, errors, |pod| {
        let spec = pod.spec();
        annotations(&pod.metadata().annotations(), &spec);
        pod_spec(&spec, pod.view().metadata().name().text(), Of::Pod);
        if spec.view().service_account_name() == "" {
            for volume in spec.volumes().items() {
                for source in volume.projected().sources().items() {
                    let token = source.service_account_token();
                    if token.is_set() {
                        token.forbidden("must not be specified when serviceAccountName is not set");
                    }
                }
            }
        }
        let containers = spec.containers().items().chain(spec.init_containers().items());
        for container in containers.chain(ephemeral(&spec)) {
            containers::image_without_spaces(&container.image());
        }
    });
}

/// What holds only for new Pods.
pub fn create(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Pod>(object, errors, |pod| {
        let spec = pod.spec();
        security::new_label_policy(&spec, None);
        if !spec.ephemeral_containers().is_empty() {
            spec.ephemeral_containers().forbidden("cannot be set on create");
        }
        if !spec.node_name().is_empty() && !spec.scheduling_gates().is_empty() {
            spec.node_name().forbidden("cannot be set until all schedulingGates have been cleared");
        }
        for container in spec.init_containers().items() {
            if container.view().restart_policy() != "Always" {
                never_restarted_for_size(&container.resize_policy());
            }
        }
    });
}

/// An init container that runs once is not run again to be resized.
fn never_restarted_for_size(policies: &Field<'_, List<ContainerResizePolicy>>) {
    for policy in policies.items() {
        let restart = policy.restart_policy();
        if restart.text() == "RestartContainer" {
            restart.invalid("must not be set to 'RestartContainer' for non-sidecar initContainers");
        }
    }
}

/// A template inside a workload: its labels, annotations and pods.
pub(super) fn template(template: &Field<'_, PodTemplateSpec>) {
    // Upstream reports these without the `metadata` in between.
    let metadata = reported_at(&template.metadata(), template);
    meta::labels(&metadata.labels());
    meta::annotations(&metadata.annotations());
    let spec = template.spec();
    annotations(&metadata.annotations(), &spec);
    pod_spec(&spec, "", Of::Template);
    if !spec.ephemeral_containers().is_empty() {
        spec.ephemeral_containers().forbidden("ephemeral containers not allowed in pod template");
    }
}

/// What holds for new templates, and for templates that were otherwise before.
pub(super) fn new_template(template: &Field<'_, PodTemplateSpec>, before: Option<View<'_, PodTemplateSpec>>) {
    security::new_label_policy(&template.spec(), before.map(|before| before.spec()));
}

/// A PodTemplate object.
pub fn pod_template(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<PodTemplate>(object, errors, |object| template(&object.template()));
}

/// A PodTemplate object that is new.
pub fn new_pod_template(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<PodTemplate>(object, errors, |object| new_template(&object.template(), None));
}

/// A changed PodTemplate object.
pub fn pod_template_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = PodTemplate::of(old).template();
    walk_as::<PodTemplate>(new, errors, |object| new_template(&object.template(), Some(before)));
}

fn annotations(annotations: &Field<'_, Map<Text>>, spec: &Field<'_, PodSpec>) {
    let mirror = annotations.key(MIRROR);
    if mirror.is_set() && spec.node_name().is_empty() {
        mirror.invalid("must set spec.nodeName if mirror pod annotation is set");
    }
    let cost = annotations.key(DELETION_COST);
    if cost.is_set() && cost.text().parse::<i32>().map(|n| n.to_string()).as_deref() != Ok(cost.text()) {
        cost.invalid("must be a 32bit integer");
    }
}

pub(super) fn pod_spec(spec: &Field<'_, PodSpec>, pod_name: &str, of: Of) {
    if !spec.termination_grace_period_seconds().is_set() {
        spec.termination_grace_period_seconds().required("");
    }
    let pod = PodFacts::of(spec.view());
    volumes::volumes(&spec.volumes(), pod_name);
    claims(&spec.resource_claims());
    containers::containers(spec, &pod);
    containers::init_containers(spec, &pod);
    containers::ephemeral_containers(spec, &pod);
    resources::pod_level(spec, &pod.claims);
    host_ports(spec, of);
    spec.restart_policy().required_one_of(&["Always", "OnFailure", "Never"]);
    spec.dns_policy().required_one_of(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    meta::labels(&spec.node_selector());
    security::pod_context(&spec.security_context(), spec);
    scheduling::affinity(&spec.affinity());
    dns::check(spec);
    for gate in spec.readiness_gates().items() {
        gate.condition_type().follows(qualified_name);
    }
    scheduling::gates(&spec.scheduling_gates());
    scheduling::spread(&spec.topology_spread_constraints());
    host_users(spec);
    names(spec);
    scheduling::tolerations(&spec.tolerations());
    for alias in spec.host_aliases().items() {
        is_ip(&alias.ip());
        alias.hostnames().items().for_each(|name| name.follows(dns1123_subdomain));
    }
    if spec.preemption_policy().is_set() {
        spec.preemption_policy().required_one_of(&["PreemptLowerPriority", "Never"]);
    }
    resources::overhead(&spec.overhead());
    os::check(spec);
    env::files(spec, &pod);
}

fn names(spec: &Field<'_, PodSpec>) {
    for (field, rule) in [
        (spec.service_account_name(), dns1123_subdomain as fn(&str) -> Vec<String>),
        (spec.node_name(), dns1123_subdomain),
        (spec.hostname(), dns1123_label),
        (spec.subdomain(), dns1123_label),
        (spec.priority_class_name(), dns1123_subdomain),
    ] {
        if !field.is_empty() {
            field.follows(rule);
        }
    }
    if spec.runtime_class_name().is_set() {
        spec.runtime_class_name().follows(dns1123_subdomain);
    }
    spec.active_deadline_seconds().in_range(1, i64::from(i32::MAX));
    let host = spec.hostname_override();
    if host.is_set() {
        if spec.view().set_hostname_as_fqdn().flag() {
            host.forbidden("may not be specified when setHostnameAsFQDN is true");
        }
        if spec.view().host_network().flag() {
            host.forbidden("may not be specified when hostNetwork is true");
        }
        if host.text().len() > 64 {
            host.too_long(64);
        }
        host.follows(dns1123_subdomain);
    }
}

fn host_users(spec: &Field<'_, PodSpec>) {
    let asked = spec.view();
    if asked.host_users().get().unwrap_or(true) {
        return;
    }
    for (field, shown) in
        [(asked.host_network(), "hostNetwork"), (asked.host_pid(), "HostPID"), (asked.host_ipc(), "HostIPC")]
    {
        if field.flag() {
            spec.below(shown).forbidden("when `hostUsers` is false");
        }
    }
    let containers = spec.init_containers().items().chain(spec.containers().items());
    for container in containers.chain(ephemeral(spec)) {
        // Ids on a block device are not those of a mount: they cannot be mapped.
        if !container.view().volume_devices().is_empty() {
            container.volume_devices().forbidden("when `hostUsers` is false");
        }
    }
}

/// With host networking, a port on the host is the port of the container.
fn host_ports(spec: &Field<'_, PodSpec>, of: Of) {
    if !spec.view().host_network().flag() {
        return;
    }
    for container in spec.containers().items() {
        for port in container.ports().items() {
            let (host, own) = (port.view().host_port().or(0), port.view().container_port().or(0));
            if (of == Of::Pod || host != 0) && host != own {
                port.host_port().invalid_as(host, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn claims(claims: &Field<'_, List<PodResourceClaim>>) {
    let mut seen = HashSet::new();
    for claim in claims.items() {
        let name = claim.name();
        if name.text().is_empty() {
            name.required("");
        } else if !seen.insert(name.text()) {
            name.duplicate();
        } else {
            name.follows(dns1123_label);
        }
        let sources = [claim.resource_claim_name(), claim.resource_claim_template_name()];
        match (sources[0].is_set(), sources[1].is_set()) {
            (true, true) => claim.invalid(
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => {
                claim.invalid("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`");
            }
            _ => {}
        }
        for source in sources {
            if source.is_set() {
                source.follows(dns1123_subdomain);
            }
        }
    }
}

#[cfg(test)]
mod tests;
