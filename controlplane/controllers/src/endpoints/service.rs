//! Which pods stand behind a service, under which addresses and ports. No clock, no tasks.

use super::slices::{Group, placeholder};
use super::topology::{NoHints, ZoneRatios};
use coracle_fields::core::v1;
use coracle_fields::discovery::v1::{Endpoint, EndpointPort, ForNode, ForZone};
use coracle_fields::{Made, fields, make};
use coracle_informer::conditions::{self, Condition};
use coracle_informer::selector::Labels;
use coracle_kinds::object::Object;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fields! {
    /// A service, as far as endpoints depend on it.
    #[derive(Debug, Clone)]
    pub struct Spec: v1::ServiceSpec {
        /// Selector of its pods; without it the endpoints are managed by somebody else.
        pub selector: Option<Labels>,
        /// Ports.
        pub ports: Vec<Port>,
        /// `None` for headless services.
        pub cluster_ip: String,
        /// `IPv4`, `IPv6` or both.
        pub ip_families: Vec<String>,
        /// `ExternalName` has no endpoints.
        pub type_: String,
        /// Whether pods that are not ready count.
        pub publish_not_ready_addresses: bool,
        /// Whether clients should stay in their zone or on their node.
        pub traffic_distribution: String,
    }

    /// A port of a service.
    #[derive(Debug, Clone)]
    pub struct Port: v1::ServicePort {
        name: String,
        protocol: String,
        port: i64,
        target_port: Option<Value>,
        app_protocol: Option<String>,
    }

    #[derive(Debug, Clone)]
    struct PodFields: v1::Pod {
        spec: PodSpec,
        status: PodStatus,
    }

    #[derive(Debug, Clone)]
    struct PodSpec: v1::PodSpec {
        node_name: String,
        hostname: String,
        subdomain: String,
        containers: Vec<Container>,
        init_containers: Vec<Container>,
    }

    #[derive(Debug, Clone)]
    struct Container: v1::Container {
        ports: Vec<ContainerPort>,
        restart_policy: String,
    }

    #[derive(Debug, Clone)]
    struct ContainerPort: v1::ContainerPort {
        name: String,
        protocol: String,
        container_port: i64,
    }

    #[derive(Debug, Clone)]
    struct PodStatus: v1::PodStatus {
        phase: String,
        pod_ips: Vec<Ip>,
        pod_ip: String,
        conditions: Vec<Condition>,
    }

    #[derive(Debug, Clone)]
    struct Ip: v1::PodIP {
        ip: String,
    }
}

impl Spec {
    /// Whether it has no address of its own.
    pub fn headless(&self) -> bool {
        self.cluster_ip == "None"
    }

    pub(super) fn families(&self) -> Vec<&str> {
        if self.ip_families.is_empty() {
            vec!["IPv4"]
        } else {
            self.ip_families.iter().map(String::as_str).collect()
        }
    }
}

/// A pod, as far as endpoints depend on it.
#[derive(Debug, Clone)]
pub struct Backend {
    object: Arc<Object>,
    pod: PodFields,
}

impl Backend {
    /// Reads a pod.
    pub fn read(object: &Arc<Object>) -> Self {
        Self { object: object.clone(), pod: object.typed().unwrap_or_default() }
    }

    fn ended(&self) -> bool {
        matches!(self.pod.status.phase.as_str(), "Failed" | "Succeeded")
    }

    fn terminating(&self) -> bool {
        self.object.meta.deletion_timestamp.is_some()
    }

    /// Whether it has ports of the service, or the service is a headless one without ports; and has not ended.
    fn is_endpoint(&self, service: &Spec) -> bool {
        let needs_none = service.headless() && service.ports.is_empty();
        !self.ended() && (needs_none || !self.ports(service).is_empty())
    }

    fn ready(&self, service: &Spec) -> bool {
        service.publish_not_ready_addresses || (self.serving() && !self.terminating())
    }

    fn serving(&self) -> bool {
        conditions::is_true(&self.pod.status.conditions, "Ready")
    }

    fn address(&self, family: &str) -> Option<&str> {
        let listed = self.pod.status.pod_ips.iter().map(|ip| ip.ip.as_str());
        let all = listed.chain(std::iter::once(self.pod.status.pod_ip.as_str()));
        all.filter(|ip| !ip.is_empty()).find(|ip| ip.contains(':') == (family == "IPv6"))
    }

    /// The number behind a service port; a name is looked up in the pod's containers.
    fn port(&self, port: &Port) -> Option<i64> {
        match &port.target_port {
            Some(Value::String(name)) => {
                let spec = &self.pod.spec;
                let sidecars = spec.init_containers.iter().filter(|c| c.restart_policy == "Always");
                let ports = spec.containers.iter().chain(sidecars).flat_map(|c| &c.ports);
                let protocol =
                    |p: &ContainerPort| if p.protocol.is_empty() { "TCP".into() } else { p.protocol.clone() };
                let mut named = ports.filter(|p| p.name == *name && protocol(p) == port.protocol);
                named.next().map(|p| p.container_port)
            }
            Some(Value::Number(n)) if n.as_i64() != Some(0) => n.as_i64(),
            _ => Some(port.port),
        }
    }

    fn ports(&self, service: &Spec) -> Vec<Value> {
        let each = service.ports.iter().filter_map(|p| {
            let port = make!(part EndpointPort {
                name: &p.name,
                port: self.port(p)?,
                protocol: &p.protocol,
                app_protocol: &p.app_protocol,
            });
            Some(port.into_value())
        });
        each.collect()
    }

    fn target(&self) -> Made<v1::ObjectReference> {
        let meta = &self.object.meta;
        make!(part v1::ObjectReference {
            kind: "Pod",
            name: &meta.name,
            namespace: &meta.namespace,
            uid: &meta.uid,
        })
    }

    /// The node it is bound to, if it is.
    fn node(&self) -> Option<&str> {
        Some(self.pod.spec.node_name.as_str()).filter(|node| !node.is_empty())
    }

    /// The name under which the pod is found below the service's, if it asked for one.
    fn hostname(&self, service: &str) -> Option<&str> {
        let spec = &self.pod.spec;
        (!spec.hostname.is_empty() && spec.subdomain == service).then_some(spec.hostname.as_str())
    }
}

/// Which zones and nodes endpoints are meant for.
#[derive(Debug, Clone)]
pub enum Hints {
    /// As the service's `trafficDistribution` says.
    Distribution,
    /// By the cpus of zones (`topology-mode: Auto`): for each family the zones of its ready endpoints in the order of their
    /// pods, or why there are none.
    Auto(BTreeMap<String, Result<Vec<String>, NoHints>>),
}

impl Hints {
    /// Distributes the ready endpoints of each family by the cpus of zones.
    pub fn auto(
        service: &Spec,
        pods: &[Backend],
        zones: &dyn Fn(&str) -> Option<String>,
        ratios: &ZoneRatios,
    ) -> Self {
        let of_family = |family: &str| {
            let is_endpoint = |pod: &&Backend| {
                pod.is_endpoint(service) && pod.ready(service) && pod.address(family).is_some()
            };
            let endpoints = pods.iter().filter(is_endpoint).map(|pod| zones(&pod.pod.spec.node_name));
            ratios.assign(&endpoints.collect::<Vec<_>>())
        };
        let families = service.families().into_iter();
        Self::Auto(families.map(|family| (family.to_owned(), of_family(family))).collect())
    }

    /// The zones of the ready endpoints of a family, where they are distributed by cpus.
    fn assigned(&self, family: &str) -> impl Iterator<Item = String> + use<> {
        let zones = match self {
            Self::Auto(families) => families.get(family).and_then(|zones| zones.clone().ok()),
            Self::Distribution => None,
        };
        zones.into_iter().flatten()
    }
}

/// The endpoints of a service, grouped as slices hold them. `zones` maps nodes to their zones.
pub fn groups(
    name: &str,
    service: &Spec,
    pods: &[Backend],
    zones: &dyn Fn(&str) -> Option<String>,
    hints: &Hints,
) -> Vec<Group> {
    let mut all = Vec::new();
    for family in service.families() {
        let mut assigned = hints.assigned(family);
        let mut by_ports: BTreeMap<String, Group> = BTreeMap::new();
        for pod in pods {
            let Some(address) = pod.address(family).filter(|_| pod.is_endpoint(service)) else { continue };
            let ports = pod.ports(service);
            let key = json!(ports).to_string();
            let group = by_ports.entry(key).or_insert_with(|| Group {
                address_type: family.into(),
                ports,
                endpoints: Vec::new(),
            });
            let zone = zones(&pod.pod.spec.node_name);
            let hint = match hints {
                _ if !pod.ready(service) => Hint::default(),
                Hints::Auto(_) => Hint { zone: assigned.next(), node: None },
                Hints::Distribution => Hint {
                    zone: zone.clone().filter(|_| !service.traffic_distribution.is_empty()),
                    node: pod.node().filter(|_| service.traffic_distribution == "PreferSameNode"),
                },
            };
            group.endpoints.push(endpoint(name, service, pod, address, (zone, hint)));
        }
        if by_ports.is_empty() {
            all.push(placeholder(family));
        }
        all.extend(by_ports.into_values());
    }
    all
}

/// Zone and node that an endpoint is meant for.
#[derive(Default)]
struct Hint<'a> {
    zone: Option<String>,
    node: Option<&'a str>,
}

fn endpoint(
    name: &str,
    service: &Spec,
    pod: &Backend,
    address: &str,
    (zone, hint): (Option<String>, Hint<'_>),
) -> Value {
    let (serving, terminating) = (pod.serving(), pod.terminating());
    let ready = pod.ready(service);
    let mut endpoint = make!(part Endpoint {
        addresses: [address],
        target_ref: pod.target(),
        conditions: { ready, serving, terminating },
        node_name: pod.node(),
        zone: &zone,
        hostname: pod.hostname(name),
    });
    if let Some(zone) = hint.zone {
        endpoint.edit().hints().for_zones().push(make!(part ForZone { name: zone }));
    }
    if let Some(node) = hint.node {
        endpoint.edit().hints().for_nodes().push(make!(part ForNode { name: node }));
    }
    endpoint.into_value()
}

/// How many addresses an Endpoints object holds at most.
const ENDPOINTS_CAPACITY: usize = 1000;

/// Ports, addresses that are ready, addresses that are not.
type Subset = (Vec<Value>, Vec<Value>, Vec<Value>);

/// The subsets of the older Endpoints kind, and whether some addresses were left out.
pub fn subsets(name: &str, service: &Spec, pods: &[Backend]) -> (Vec<Value>, bool) {
    let families = service.families();
    let family = families.first().copied().unwrap_or("IPv4");
    let mut by_ports: BTreeMap<String, Subset> = BTreeMap::new();
    let mut all: Vec<&Backend> = pods.iter().filter(|p| !p.ended()).collect();
    all.sort_by(|a, b| a.address(family).cmp(&b.address(family)));
    let mut count = 0;
    let mut truncated = false;
    for pod in all {
        let Some(address) = pod.address(family) else { continue };
        if pod.terminating() && !service.publish_not_ready_addresses {
            continue;
        }
        let ports = pod.ports(service);
        if ports.is_empty() && !(service.headless() && service.ports.is_empty()) {
            continue;
        }
        count += 1;
        if count > ENDPOINTS_CAPACITY {
            truncated = true;
            continue;
        }
        let entry = make!(part v1::EndpointAddress {
            ip: address,
            target_ref: pod.target(),
            node_name: pod.node(),
            hostname: pod.hostname(name),
        });
        let entry = entry.into_value();
        let (_, ready, not_ready) =
            by_ports.entry(json!(ports).to_string()).or_insert_with(|| (ports, Vec::new(), Vec::new()));
        if pod.serving() || service.publish_not_ready_addresses {
            ready.push(entry)
        } else {
            not_ready.push(entry)
        }
    }
    let subset = |(ports, ready, not_ready): Subset| {
        let filled = |list: Vec<Value>| if list.is_empty() { Value::Null } else { Value::Array(list) };
        let mut subset = Made::<v1::EndpointSubset>::default();
        subset.edit().addresses().put(filled(ready));
        subset.edit().not_ready_addresses().put(filled(not_ready));
        subset.edit().ports().put(filled(ports));
        subset.into_value()
    };
    (by_ports.into_values().map(subset).collect(), truncated)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;

    fn pod(name: &str, ip: &str, ready: &str, port: i64, deleting: bool) -> Backend {
        Backend::read(&object(json!({
            "metadata": {"name": name, "namespace": "d", "uid": name, "deletionTimestamp": deleting.then_some("now")},
            "spec": {"nodeName": "n1", "hostname": name, "subdomain": "web",
                "containers": [{"ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}]}]},
            "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                "conditions": [{"type": "Ready", "status": ready}]},
        })))
    }

    fn service(value: Value) -> Spec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn named_ports_split_groups_and_conditions_tell_the_state() {
        let web = service(json!({"ports": [{"port": 80, "protocol": "TCP", "targetPort": "http"}],
            "trafficDistribution": "PreferClose"}));
        let pods = [
            pod("a", "10.0.0.1", "True", 8080, false),
            pod("b", "10.0.0.2", "False", 9090, false),
            pod("c", "10.0.0.3", "True", 8080, true),
        ];
        let zone = |_: &str| Some("z1".to_owned());
        let all = groups("web", &web, &pods, &zone, &Hints::Distribution);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].ports, [json!({"name": "", "port": 8080, "protocol": "TCP"})]);
        assert_eq!(
            all[0].endpoints[0],
            json!({"addresses": ["10.0.0.1"], "nodeName": "n1", "zone": "z1", "hostname": "a",
                "hints": {"forZones": [{"name": "z1"}]},
                "targetRef": {"kind": "Pod", "name": "a", "namespace": "d", "uid": "a"},
                "conditions": {"ready": true, "serving": true, "terminating": false}})
        );
        assert_eq!(
            all[0].endpoints[1]["conditions"],
            json!({"ready": false, "serving": true, "terminating": true})
        );
        assert_eq!(all[1].endpoints[0]["conditions"]["ready"], false);
        let (subsets, _) = subsets("web", &web, &pods);
        assert_eq!(subsets[0]["addresses"].as_array().unwrap().len(), 1, "terminating pods are left out");
        assert_eq!(subsets[1]["notReadyAddresses"][0]["ip"], "10.0.0.2");
    }

    #[test]
    fn families_and_missing_addresses() {
        let dual =
            service(json!({"ports": [{"port": 80, "protocol": "TCP"}], "ipFamilies": ["IPv4", "IPv6"]}));
        let all =
            groups("web", &dual, &[pod("a", "10.0.0.1", "True", 1, false)], &|_| None, &Hints::Distribution);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].endpoints.len(), all[1].endpoints.len()), (1, 0));
        assert_eq!(all[1].address_type, "IPv6");
    }

    #[test]
    fn a_headless_service_without_ports_lists_its_pods() {
        let headless = service(json!({"clusterIP": "None", "publishNotReadyAddresses": true}));
        let all = groups(
            "web",
            &headless,
            &[pod("a", "10.0.0.1", "False", 1, false)],
            &|_| None,
            &Hints::Distribution,
        );
        assert_eq!(all[0].endpoints[0]["conditions"]["ready"], true);
        assert!(all[0].ports.is_empty());
    }
}
