//! Services: selector, ports, and the pods behind them.

use crate::api_servers;
use crate::dns_names;
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::pod::{has_ended, is_ready};
use crate::select::{nearest, selects, text_of};
use crate::trouble::{Severity, Trouble};
use crate::world::{Listed, World};
use coracle_fields::apps::v1::{DaemonSet, Deployment, StatefulSet};
use coracle_fields::core::v1::{ContainerPort, Pod, PodTemplateSpec, Service, ServicePort};
use coracle_fields::discovery::v1::{Endpoint, EndpointSlice};
use coracle_fields::{Kind, View};
use coracle_proto::selector::LabelSelector;
use coracle_proto::time::parse_time;

/// Seconds that a load balancer may take.
const PATIENCE: i64 = 120;
/// Pods whose causes are shown.
const SHOWN: usize = 5;
/// Label of EndpointSlices with the name of their Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Seconds that a pod may take to become ready, beside the initial delays of its probes, before its Service is worth a line.
const STARTING: i64 = 10;

/// Why a Service does not answer.
pub fn explain(world: &World, service: View<'_, Service>, trail: &[ObjectRef]) -> Vec<Finding> {
    let spec = service.spec();
    if spec.type_() == "ExternalName" {
        return external_name(world, service).into_iter().collect();
    }
    let mut findings = match spec.selector().entries().next() {
        None => without_selector(world, service).into_iter().collect(),
        Some(_) => with_selector(world, service, trail),
    };
    findings.extend(load_balancer(world, service));
    findings
}

fn begun(service: View<'_, Service>, trouble: Trouble, cause: impl Into<String>) -> Finding {
    Finding::new(ObjectRef::to(service), trouble, cause)
}

/// The pods that a Service selects, none without a selector; nothing when they are not known.
pub fn selected<'a>(world: &'a World, service: View<'_, Service>) -> Option<Vec<View<'a, Pod>>> {
    // As a selector of labels, an empty one would select all.
    if service.spec().selector().entries().next().is_none() {
        return Some(Vec::new());
    }
    let selector = LabelSelector::from_map(&service.spec().selector().as_value());
    let pods = world.list::<Pod>(Some(service.metadata().namespace().text()));
    let matching =
        pods.items.into_iter().filter(|pod| !has_ended(*pod) && selects(&selector, pod.metadata()));
    let matching: Vec<_> = matching.collect();
    (pods.complete || !matching.is_empty()).then_some(matching)
}

fn external_name(world: &World, service: View<'_, Service>) -> Option<Finding> {
    let name = service.spec().external_name().text();
    let inside = [".svc", ".svc.cluster.local", ".svc.cluster.local."];
    if !inside.iter().any(|end| name.ends_with(*end)) {
        return None;
    }
    let (cause, _) = dns_names::unknown(world, service.metadata().namespace().text(), name)?;
    let finding =
        begun(service, Trouble::ServiceExternalName, format!("spec.externalName does not exist: {cause}"))
            .since(service.metadata().creation_timestamp().text())
            .evidence("field spec.externalName", name)
            .remedy("correct spec.externalName");
    Some(finding)
}

/// The EndpointSlices of a Service.
pub fn slices<'a>(world: &'a World, service: View<'_, Service>) -> Listed<'a, EndpointSlice> {
    let meta = service.metadata();
    let mut slices = world.list::<EndpointSlice>(Some(meta.namespace().text()));
    slices.items.retain(|slice| slice.metadata().labels().key(SERVICE_NAME) == meta.name().text());
    slices
}

/// Whether an endpoint gets connections: one that does not say is ready.
pub fn is_ready_endpoint(endpoint: View<'_, Endpoint>) -> bool {
    endpoint.conditions().ready().get().unwrap_or(true)
}

/// Whether a Service is that of the cluster's DNS without pods. Some clusters answer DNS on every node; the Service only
/// reserves the address.
pub fn is_node_dns(service: View<'_, Service>) -> bool {
    let meta = service.metadata();
    let has_selector = service.spec().selector().entries().next().is_some();
    !has_selector && meta.labels().key("k8s-app") == "kube-dns" && meta.namespace() == "kube-system"
}

fn without_selector(world: &World, service: View<'_, Service>) -> Option<Finding> {
    let slices = slices(world, service);
    let endpoints: Vec<_> = slices.items.iter().flat_map(|slice| slice.endpoints().items()).collect();
    if !endpoints.is_empty() {
        return endpoints_not_ready(service, &endpoints);
    }
    if is_node_dns(service) || !slices.complete {
        return None;
    }
    if api_servers::is_theirs(service)
        && let Some(finding) = api_servers::unpublished(world, service)
    {
        return Some(finding);
    }
    let cause = "the Service has no selector, and there are no EndpointSlices for it";
    let finding = begun(service, Trouble::ServiceWithoutEndpoints, cause)
        .since(service.metadata().creation_timestamp().text())
        .evidence("field spec.selector", "none")
        .remedy("set spec.selector to the labels of the pods, or create an EndpointSlice with the label kubernetes.io/service-name");
    Some(finding)
}

/// Endpoints that somebody has written, of which none is ready.
fn endpoints_not_ready(service: View<'_, Service>, endpoints: &[View<'_, Endpoint>]) -> Option<Finding> {
    if endpoints.iter().any(|endpoint| is_ready_endpoint(*endpoint)) {
        return None;
    }
    let addresses = endpoints.iter().flat_map(|endpoint| endpoint.addresses().texts());
    let addresses: Vec<&str> = addresses.take(SHOWN).collect();
    let cause = "the Service has no selector, and none of the endpoints in its EndpointSlices is ready";
    let finding = begun(service, Trouble::ServiceNotReady, cause)
        .evidence("endpoints that are not ready", addresses.join(", "))
        .remedy("start what is at these addresses; whoever writes the EndpointSlices sets conditions.ready");
    Some(finding)
}

fn with_selector(world: &World, service: View<'_, Service>, trail: &[ObjectRef]) -> Vec<Finding> {
    let Some(pods) = selected(world, service) else { return Vec::new() };
    if pods.is_empty() {
        return nothing_selected(world, service, trail);
    }
    let ports: Vec<Finding> =
        service.spec().ports().items().filter_map(|port| unknown_port(service, port, &pods)).collect();
    let serious = ports.iter().any(|finding| finding.trouble == Trouble::ServiceTargetPortName);
    if serious || pods.iter().any(|pod| is_ready(*pod)) || service.spec().publish_not_ready_addresses().flag()
    {
        return ports;
    }
    let mut findings: Vec<Finding> =
        pods.iter().take(SHOWN).flat_map(|pod| follow(world, trail, ObjectRef::to(*pod))).collect();
    if findings.is_empty() {
        let names: Vec<&str> = pods.iter().take(SHOWN).map(|pod| pod.metadata().name().text()).collect();
        let starting = pods.iter().all(|pod| is_starting(world, *pod));
        let cause = match (starting, pods.len()) {
            (true, 1) => "the pod of the Service is starting".to_owned(),
            (true, number) => format!("the {number} pods of the Service are starting"),
            (false, 1) => "the only pod of the Service is not ready".to_owned(),
            (false, number) => format!("none of the {number} pods of the Service is ready"),
        };
        let mut finding = begun(service, Trouble::ServiceNotReady, cause)
            .since(&unanswered_since(world, service))
            .evidence("pods", names.join(", "))
            .remedy("wait until the pods are ready; their readiness probes decide");
        if starting {
            finding.severity = Severity::Notice;
        }
        findings.push(finding);
    }
    findings
}

/// Whether a pod is so young that it cannot be expected to be ready, and nothing in it has failed.
fn is_starting(world: &World, pod: View<'_, Pod>) -> bool {
    let delays = pod.spec().containers().items().map(|container| {
        let probes = [container.readiness_probe(), container.startup_probe()];
        probes.map(|probe| probe.initial_delay_seconds().or(0)).into_iter().sum::<i64>()
    });
    let patience = STARTING.saturating_add(delays.max().unwrap_or(0));
    let restarted = pod.status().container_statuses().items().any(|status| status.restart_count().or(0) > 0);
    let created = pod.metadata().creation_timestamp().text();
    !restarted && world.age(created).is_some_and(|age| age < patience)
}

/// Since when a Service has no endpoints: its EndpointSlices were written last when the last one left. Empty when that is not known.
fn unanswered_since(world: &World, service: View<'_, Service>) -> String {
    let meta = service.metadata();
    let slices = slices(world, service);
    let own: Vec<_> = slices.items.iter().map(|slice| slice.metadata()).collect();
    let written = own.iter().flat_map(|slice| {
        let fields = slice.managed_fields().items().map(|entry| entry.time().text());
        fields.chain([slice.annotations().key("endpoints.kubernetes.io/last-change-trigger-time").text()])
    });
    if let Some((_, last)) = written.filter_map(|time| Some((parse_time(time)?, time))).max() {
        return last.to_owned();
    }
    // Slices that were never changed are as old as the trouble.
    let unchanged = own.iter().all(|slice| slice.generation().or(1) <= 1);
    let since = if slices.complete && unchanged { meta.creation_timestamp().text() } else { "" };
    since.to_owned()
}

/// The labels of pods that a selector could have meant, one line for each set.
fn labels_of(pods: &[View<'_, Pod>]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for meta in pods.iter().map(|pod| pod.metadata()) {
        let text = text_of(meta.labels());
        if !text.is_empty()
            && !texts.iter().any(|known| known.ends_with(&format!(": {text}")))
            && texts.len() < SHOWN
        {
            texts.push(format!("pod {}: {text}", meta.name().text()));
        }
    }
    texts.join("\n")
}

/// No pod has the labels: because there should be none, because none can be made, or because the labels are wrong.
fn nothing_selected(world: &World, service: View<'_, Service>, trail: &[ObjectRef]) -> Vec<Finding> {
    let namespace = service.metadata().namespace().text();
    let selector = LabelSelector::from_map(&service.spec().selector().as_value());
    let mut owners = owners::<Deployment>(world, namespace, &selector, |owner| owner.spec().template());
    owners.extend(self::owners::<StatefulSet>(world, namespace, &selector, |owner| owner.spec().template()));
    owners.extend(self::owners::<DaemonSet>(world, namespace, &selector, |owner| owner.spec().template()));
    if !owners.is_empty() {
        // Where nothing is wrong with the workload, its pods are being created.
        return owners.into_iter().flat_map(|owner| follow(world, trail, owner)).collect();
    }
    let wanted = service.spec().selector();
    let all = world.list::<Pod>(Some(namespace)).items;
    let all: Vec<View<'_, Pod>> = all.into_iter().filter(|pod| !has_ended(*pod)).collect();
    let close = nearest(wanted, all.iter().map(|pod| pod.metadata()));
    let hint =
        close.map_or_else(String::new, |(pod, difference)| format!("; the closest, pod {pod}, {difference}"));
    let cause = format!("the selector {} matches no pod in namespace {namespace}{hint}", text_of(wanted));
    let object = ObjectRef::to(service);
    let remedy =
        format!("correct spec.selector, or the labels of the pods: kubectl edit {}", object.arguments());
    let finding = begun(service, Trouble::ServiceSelector, cause)
        .since(&unanswered_since(world, service))
        .evidence("field spec.selector", text_of(wanted))
        .evidence("labels of the pods", labels_of(&all))
        .remedy(remedy);
    vec![finding]
}

/// Workloads whose pods a selector would select.
fn owners<K: Kind>(
    world: &World,
    namespace: &str,
    selector: &LabelSelector,
    template: fn(View<'_, K>) -> View<'_, PodTemplateSpec>,
) -> Vec<ObjectRef> {
    let all = world.list::<K>(Some(namespace)).items.into_iter();
    all.filter(|owner| selects(selector, template(*owner).metadata())).map(ObjectRef::to).collect()
}

fn container_ports<'a>(pods: &[View<'a, Pod>]) -> Vec<View<'a, ContainerPort>> {
    let containers = pods
        .iter()
        .flat_map(|pod| pod.spec().containers().items().chain(pod.spec().init_containers().items()));
    containers.flat_map(|container| container.ports().items()).collect()
}

/// A `targetPort` that the pods do not have.
pub fn unknown_port(
    service: View<'_, Service>,
    port: View<'_, ServicePort>,
    pods: &[View<'_, Pod>],
) -> Option<Finding> {
    let ports = container_ports(pods);
    let protocol = port.protocol().or("TCP");
    let (number, name) = (port.target_port().int().or(port.port().int()), port.target_port().text());
    let mut declared: Vec<String> = ports
        .iter()
        .map(|port| {
            let number = port.container_port().or(0);
            port.name().filled().map_or_else(|| number.to_string(), |name| format!("{number} ({name})"))
        })
        .collect();
    declared.dedup();
    let declared = declared.join(", ");
    let shown = port.port().or(0);
    if !name.is_empty() {
        let known = ports.iter().any(|port| port.name() == name && port.protocol().or("TCP") == protocol);
        let hint = coracle_cli::closest::suggestion(name, ports.iter().map(|port| port.name().text()));
        let cause = format!("port {shown} leads to the target port {name}, which no selected pod has{hint}");
        let finding =
            begun(service, Trouble::ServiceTargetPortName, cause).evidence("ports of the pods", declared);
        return (!known)
            .then(|| finding.remedy("correct spec.ports[].targetPort, or name a port of the container so"));
    }
    let number = number?;
    let known = ports.is_empty() || ports.iter().any(|port| port.container_port() == number);
    let cause = format!(
        "port {shown} leads to port {number}, which the selected pods do not declare: they declare {declared}"
    );
    (!known).then(|| {
        begun(service, Trouble::ServiceTargetPort, cause)
            .evidence("ports of the pods", declared)
            .remedy("if nothing listens on that port, correct spec.ports[].targetPort")
    })
}

fn load_balancer(world: &World, service: View<'_, Service>) -> Option<Finding> {
    let created = service.metadata().creation_timestamp().text();
    let pending =
        service.spec().type_() == "LoadBalancer" && service.status().load_balancer().ingress().is_empty();
    if !pending || !world.older(created, PATIENCE) {
        return None;
    }
    let all = world.events(&ObjectRef::to(service));
    let event = events::last(&all, &["SyncLoadBalancerFailed", "UnAvailableLoadBalancer"], |_| true);
    let cause = match event {
        Some(_) => "the load balancer of the Service cannot be made",
        None => "nobody makes a load balancer for the Service: the cluster has no controller for it",
    };
    let finding = begun(service, Trouble::LoadBalancerPending, cause)
        .since(created)
        .evidence("field status.loadBalancer.ingress", "none")
        .with(event.map(events::evidence))
        .remedy("install a load balancer controller, or use spec.type NodePort");
    Some(finding)
}
