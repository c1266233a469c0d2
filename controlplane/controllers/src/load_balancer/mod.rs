//! Addresses of LoadBalancer Services: those of the nodes, which forward to all Services. A port of an address belongs to one
//! Service; others that want it wait.

// Who has which port of which address.
mod port_allocations;

use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_fields::discovery::v1::EndpointSlice;
use coracle_fields::{Made, View, fields, make};
use coracle_informer::conditions::{self, Condition};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use parking_lot::Mutex;
use port_allocations::{Port, PortAllocations};
use std::collections::BTreeSet;
use std::sync::Arc;

const NAME: &str = "service-controller";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Nodes with this label balance nothing.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

fields! {
    struct Node: v1::Node {
        status: Status,
    }

    struct Status: v1::NodeStatus {
        addresses: Vec<Address>,
        conditions: Vec<Condition>,
    }

    struct Address: v1::NodeAddress {
        type_: String,
        address: String,
    }
}

/// What a node that is well offers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Offer {
    node: String,
    external: Vec<String>,
    internal: Vec<String>,
}

impl Offer {
    fn of(node: &Object) -> Option<Self> {
        let Node { status } = node.typed().unwrap_or_default();
        if !conditions::is_true(&status.conditions, "Ready") || node.meta.labels.contains_key(EXCLUDED) {
            return None;
        }
        let of_kind = |kind: &str| {
            let all = status.addresses.iter().filter(|address| address.type_ == kind);
            all.map(|address| address.address.clone()).collect()
        };
        Some(Self {
            node: node.meta.name.clone(),
            external: of_kind("ExternalIP"),
            internal: of_kind("InternalIP"),
        })
    }

    /// Its addresses of some families; all for none.
    fn addresses(&self, families: &[&str]) -> Vec<String> {
        let reached = |ip: &&String| {
            let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
            families.is_empty() || families.contains(&family)
        };
        let external: Vec<String> = self.external.iter().filter(reached).cloned().collect();
        match external.is_empty() {
            true => self.internal.iter().filter(reached).cloned().collect(),
            false => external,
        }
    }
}

struct Balancer {
    services: Resource,
    nodes: Resource,
    slices: Resource,
    /// None until what services have from earlier is noted.
    port_allocations: Mutex<Option<PortAllocations>>,
    queue: Arc<coracle_informer::queue::Queue<Name>>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let services = setup.resource(NAME, "", "services");
    let nodes = setup.resource(NAME, "", "nodes");
    let slices = setup.resource(NAME, "discovery.k8s.io", "endpointslices");
    let mut handlers = setup.enqueue_on_change(&services);
    let all = services.cache.clone();
    handlers.on_change(&nodes.kind, &nodes.cache, move |change, add| {
        let offer = |node: &Arc<Object>| Offer::of(node);
        if change.old.and_then(offer) != change.new.and_then(offer) {
            let balanced = all
                .list(None)
                .into_iter()
                .filter(|service| is_balanced(service.doc().view::<v1::Service>().spec()));
            balanced.for_each(|s| add(Name::of(&s)));
        }
    });
    let all = services.cache.clone();
    handlers.on_change(&slices.kind, &slices.cache, move |change, add| {
        let Some(slice) = change.object() else { return };
        let service = slice.meta.labels.get(SERVICE_NAME);
        let service = service.and_then(|name| all.get(&slice.meta.namespace, name));
        if let Some(service) = service.filter(|s| is_local(s.doc().view::<v1::Service>().spec())) {
            add(Name::of(&service));
        }
    });
    let queue = handlers.queue.clone();
    // One worker, so that no port is allocated twice.
    let balancer =
        Balancer { services, nodes, slices, port_allocations: Mutex::default(), queue: queue.clone() };
    setup.run(balancer, &queue, 1);
}

/// Whether this controller handles the Service: type LoadBalancer without a `loadBalancerClass`.
fn is_balanced(spec: View<'_, v1::ServiceSpec>) -> bool {
    spec.type_() == "LoadBalancer" && !spec.load_balancer_class().is_set()
}

fn is_local(spec: View<'_, v1::ServiceSpec>) -> bool {
    is_balanced(spec) && spec.external_traffic_policy() == "Local"
}

fn ports(spec: View<'_, v1::ServiceSpec>) -> Vec<Port> {
    let port = |port: View<'_, v1::ServicePort>| {
        let number = u64::try_from(port.port().int()?).ok()?;
        Some((port.protocol().or("TCP").to_owned(), number))
    };
    spec.ports().items().filter_map(port).collect()
}

/// The addresses a service has by its status.
fn held(service: View<'_, v1::Service>) -> BTreeSet<String> {
    let all = service.status().load_balancer().ingress().items();
    all.filter_map(|ingress| ingress.ip().get()).map(str::to_owned).collect()
}

/// The addresses a service wants: those of the nodes that are well; of nodes with endpoints only when connections must
/// stay there.
fn wanted(
    spec: View<'_, v1::ServiceSpec>,
    offers: &[Offer],
    endpoint_nodes: &dyn Fn() -> BTreeSet<String>,
) -> BTreeSet<String> {
    if !is_balanced(spec) {
        return BTreeSet::new();
    }
    let families: Vec<&str> = spec.ip_families().texts().collect();
    let endpoint_nodes = is_local(spec).then(endpoint_nodes);
    let near = offers.iter().filter(|offer| {
        endpoint_nodes.as_ref().is_none_or(|endpoint_nodes| endpoint_nodes.contains(&offer.node))
    });
    near.flat_map(|offer| offer.addresses(&families)).collect()
}

/// The nodes where endpoints of a slice are ready.
fn ready_on(slice: View<'_, EndpointSlice>) -> impl Iterator<Item = String> {
    let endpoints = slice.endpoints().items();
    let ready = endpoints.filter(|endpoint| endpoint.conditions().ready().get() != Some(false));
    ready.filter_map(|endpoint| endpoint.node_name().get()).map(str::to_owned)
}

impl Balancer {
    /// The nodes where a service has endpoints.
    fn endpoint_nodes(&self, name: &Name) -> BTreeSet<String> {
        let slices = self.slices.list(&name.namespace).into_iter();
        let own = slices.filter(|slice| slice.meta.labels.get(SERVICE_NAME) == Some(&name.name));
        own.flat_map(|slice| {
            let doc = slice.doc();
            ready_on(doc.view()).collect::<Vec<_>>()
        })
        .collect()
    }

    fn allocate(
        &self,
        name: &Name,
        wanted: &BTreeSet<String>,
        ports: &[Port],
    ) -> port_allocations::Allocation {
        let mut port_allocations = self.port_allocations.lock();
        let port_allocations = port_allocations.get_or_insert_with(|| {
            let mut port_allocations = PortAllocations::default();
            for service in self.oldest_first(self.services.all()) {
                let doc = service.doc();
                let read = doc.view::<v1::Service>();
                if is_balanced(read.spec()) {
                    let ports = self::ports(read.spec());
                    port_allocations.allocate(&Name::of(&service), &held(read), &ports);
                }
            }
            port_allocations
        });
        let allocation = port_allocations.allocate(name, wanted, ports);
        let unblocked = allocation.unblocked.iter().filter_map(|waiter| self.services.get(waiter));
        self.oldest_first(unblocked.collect()).iter().for_each(|waiter| self.queue.add(Name::of(waiter)));
        allocation
    }

    fn oldest_first(&self, mut services: Vec<Arc<Object>>) -> Vec<Arc<Object>> {
        services.sort_by_cached_key(|service| {
            let doc = service.doc();
            let created = doc.view::<v1::Service>().metadata().creation_timestamp().get();
            (created.map(str::to_owned), Name::of(service))
        });
        services
    }
}

#[async_trait]
impl Controller for Balancer {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let Some(service) = self.services.get(name) else {
            self.allocate(name, &BTreeSet::new(), &[]);
            return Ok(Requeue::No);
        };
        // Until it is gone it has what it had.
        if service.meta.deletion_timestamp.is_some() {
            return Ok(Requeue::No);
        }
        let doc = service.doc();
        let read = doc.view::<v1::Service>();
        let spec = read.spec();
        let offers: Vec<Offer> = match is_balanced(spec) {
            true => self.nodes.all().iter().filter_map(|node| Offer::of(node)).collect(),
            false => Vec::new(),
        };
        let wanted = wanted(spec, &offers, &|| self.endpoint_nodes(name));
        let allocation = self.allocate(name, &wanted, &ports(spec));
        if let Some(why) = &allocation.news {
            let message = format!("Error syncing load balancer: {why}");
            self.services.warn(&service, "SyncLoadBalancerFailed", message);
        }
        if spec.type_() == "LoadBalancer" && !is_balanced(spec) {
            return Ok(Requeue::No);
        }
        let given = allocation.given.iter();
        let list: Vec<Made<v1::LoadBalancerIngress>> =
            given.map(|ip| make!(part v1::LoadBalancerIngress { ip, ip_mode: "VIP" })).collect();
        let balancer = make!(part v1::LoadBalancerStatus { ingress: (!list.is_empty()).then_some(list) });
        let balancer = balancer.into_value();
        if coracle_informer::template::same(&read.status().load_balancer().to_value(), &balancer) {
            return Ok(Requeue::No);
        }
        let mut status = Made::<v1::ServiceStatus>::new(read.status().to_value());
        status.edit().load_balancer().put(balancer);
        self.services.set_status(&service, status).await?;
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::test_cluster::Cluster;
    use coracle_fields::Schema as _;
    use coracle_kinds::object::testing::object;
    use serde_json::{Value, json};

    fn node(name: &str, ready: &str, ips: &[(&str, &str)]) -> Arc<Object> {
        let addresses: Vec<Value> =
            ips.iter().map(|(kind, ip)| json!({"type": kind, "address": ip})).collect();
        object(json!({"metadata": {"name": name}, "status": {"addresses": addresses,
            "conditions": [{"type": "Ready", "status": ready}]}}))
    }

    /// A Service of two waits while another has its port, is told why, and inherits.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_second_service_of_a_port_waits_for_the_first_to_go() {
        let cluster = Cluster::without_nodes().await;
        cluster.node("n1", json!({})).await;
        let kind = cluster.client.kind("", "nodes");
        let address = |node: &mut Value| {
            node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "192.0.2.1"}]);
        };
        cluster.client.modify(&kind, "", "n1", "status", address).await.unwrap();
        let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        let ip = |c: &Cluster, name: &str| {
            let service = c.get("services", &Name::new("default", name));
            service["status"]["loadBalancer"]["ingress"][0]["ip"].clone()
        };
        for name in ["first", "second"] {
            cluster.create("", "services", "default", service(name)).await;
            cluster.until("the first has it", |c| ip(c, "first") == "192.0.2.1").await;
        }
        let told = |c: &Cluster| {
            c.list("events", "default").iter().any(|event| {
                event["reason"] == "SyncLoadBalancerFailed"
                    && event["involvedObject"]["name"] == "second"
                    && event["message"].as_str().is_some_and(|m| m.contains("service default/first"))
            })
        };
        cluster.until("the second is told why", told).await;
        assert!(ip(&cluster, "second").is_null());
        cluster.delete("services", &Name::new("default", "first"), "Background").await;
        cluster.until("the second has it", |c| ip(c, "second") == "192.0.2.1").await;
    }

    #[test]
    fn nodes_that_are_well_are_the_balancer() {
        let nodes = [
            node(
                "n1",
                "True",
                &[("InternalIP", "192.0.2.1"), ("InternalIP", "2001:db8::1"), ("Hostname", "n")],
            ),
            node("n2", "True", &[("InternalIP", "192.0.2.2"), ("ExternalIP", "198.51.100.2")]),
            node("n3", "Unknown", &[("InternalIP", "192.0.2.3")]),
            object(json!({"metadata": {"name": "n4", "labels": {EXCLUDED: ""}}, "status": {
                "addresses": [{"type": "InternalIP", "address": "192.0.2.4"}],
                "conditions": [{"type": "Ready", "status": "True"}]}})),
        ];
        let offers: Vec<Offer> = nodes.iter().filter_map(|node| Offer::of(node)).collect();
        let slice = json!({"endpoints": [{"nodeName": "n1"}, {"nodeName": "n2", "conditions": {"ready": false}},
            {"nodeName": "n3", "conditions": {"ready": true}}]});
        let endpoint_nodes = || ready_on(EndpointSlice::of(&slice)).collect();
        for (spec, want) in [
            (json!({"type": "LoadBalancer"}), vec!["192.0.2.1", "198.51.100.2", "2001:db8::1"]),
            (json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"]}), vec!["192.0.2.1", "198.51.100.2"]),
            (json!({"type": "LoadBalancer", "ipFamilies": ["IPv6"]}), vec!["2001:db8::1"]),
            (
                json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"], "externalTrafficPolicy": "Local"}),
                vec!["192.0.2.1"],
            ),
            (json!({"type": "LoadBalancer", "loadBalancerClass": "x"}), vec![]),
            (json!({"type": "ClusterIP"}), vec![]),
        ] {
            let read = v1::ServiceSpec::of(&spec);
            let given: Vec<String> = wanted(read, &offers, &endpoint_nodes).into_iter().collect();
            assert_eq!(given, want, "{spec}");
        }
    }
}
