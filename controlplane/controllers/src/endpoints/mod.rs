//! EndpointSlices and Endpoints of Services, and mirrored EndpointSlices of custom Endpoints.

// Which pods, addresses and ports.
pub mod service;
// Distributes endpoints over zones.
pub mod topology;
// Endpoints into slices.
pub mod slices;

use super::adoption;
use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_fields::discovery::v1::{Endpoint, EndpointSlice};
use coracle_fields::meta::{self, OwnerReference};
use coracle_fields::{Made, View, fields, make};
use coracle_informer::identity::Identity;
use coracle_informer::informer::{Change, Name};
use coracle_informer::pod::has_address;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::selector::{Labels, Selector};
use coracle_informer::setup::Setup;
use coracle_informer::template::same;
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::Cache;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use service::{Backend, Hints, Spec};
use slices::{Group, Plan};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use topology::ZoneRatios;

const SLICES: &str = "endpointslice-controller";
const ENDPOINTS: &str = "endpoint-controller";
const MIRROR: &str = "endpointslicemirroring-controller";

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const HEADLESS: &str = "service.kubernetes.io/headless";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const ZONE: &str = "topology.kubernetes.io/zone";

/// What Events of Services tell about `topology-mode: Auto`.
const HINTS_ON: &str = "Topology Aware Hints has been enabled";
const HINTS_OFF: &str = "Topology Aware Hints has been disabled";

/// The annotation of Endpoints that leave out addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

fields! {
    struct Service: v1::Service {
        metadata: ServiceMeta,
        spec: Spec,
    }

    struct ServiceMeta: meta::ObjectMeta {
        annotations: BTreeMap<String, String>,
    }
}

/// Starts the three controllers.
pub fn start(setup: &mut Setup<'_>) {
    let parts = |setup: &mut Setup<'_>, identity: Identity| Parts {
        services: setup.resource(identity, "", "services"),
        pods: setup.resource(identity, "", "pods"),
        nodes: setup.resource(identity, "", "nodes"),
        slices: setup.resource(identity, "discovery.k8s.io", "endpointslices"),
        endpoints: setup.resource(identity, "", "endpoints"),
    };

    let p = parts(setup, Identity::of(SLICES).with_events("endpoint-slice-controller"));
    let mut handlers = setup.enqueue_on_change(&p.services);
    let services = p.services.cache.clone();
    handlers.on_change(&p.pods.kind, &p.pods.cache, move |change, add| pod_services(&services, change, add));
    handlers.on_change(&p.slices.kind, &p.slices.cache, |change, add| {
        slice_services(change, "endpointslice-controller.k8s.io", add);
    });
    let services = p.services.cache.clone();
    handlers.on_change(&p.nodes.kind, &p.nodes.cache, move |change, add| {
        let share = |node: Option<&Arc<Object>>| node.and_then(|node| topology::share(node));
        if share(change.old) != share(change.new) {
            zoned_services(&services, add);
        }
    });
    let queue = handlers.queue.clone();
    setup.run(Slices { parts: p, hinted: Mutex::default() }, &queue, 5);

    let p = parts(setup, ENDPOINTS.into());
    let mut handlers = setup.enqueue_on_change(&p.services);
    let services = p.services.cache.clone();
    handlers.on_change(&p.pods.kind, &p.pods.cache, move |change, add| pod_services(&services, change, add));
    handlers.on_change(&p.endpoints.kind, &p.endpoints.cache, |change, add| {
        if let Some(object) = change.object() {
            add(Name::of(object));
        }
    });
    let queue = handlers.queue.clone();
    setup.run(Endpoints(p), &queue, 5);

    let p = parts(setup, Identity::of(MIRROR).with_events("endpoint-slice-mirroring-controller"));
    let mut handlers = setup.enqueue_on_change(&p.endpoints);
    handlers.on_change(&p.services.kind, &p.services.cache, |change, add| {
        if let Some(object) = change.object() {
            add(Name::of(object));
        }
    });
    handlers.on_change(&p.slices.kind, &p.slices.cache, |change, add| {
        slice_services(change, "endpointslicemirroring-controller.k8s.io", add);
    });
    let queue = handlers.queue.clone();
    setup.run(Mirror(p), &queue, 2);
}

/// Queues the services whose selector fits a pod before or after. Pods without an address are behind none.
fn pod_services(services: &Cache, change: Change<'_>, add: &mut dyn FnMut(Name)) {
    let Some(pod) = change.object().filter(|_| change.both().any(|pod| has_address(pod))) else { return };
    for service in services.list(Some(&pod.meta.namespace)) {
        let Some(selector) = selector_of(&service) else { continue };
        if change.both().any(|p| selector.matches(&p.meta.labels)) {
            add(Name::of(&service));
        }
    }
}

/// Queues the services whose endpoints are distributed over zones.
fn zoned_services(services: &Cache, add: &mut dyn FnMut(Name)) {
    for service in services.list(None) {
        let is_auto = |service: Service| topology::is_auto(&service.metadata.annotations);
        if service.typed().is_ok_and(is_auto) {
            add(Name::of(&service));
        }
    }
}

/// Adds the Service of a slice that was changed.
fn slice_services(change: Change<'_>, manager: &str, add: &mut dyn FnMut(Name)) {
    for slice in change.both() {
        if let Some(service) = slice.meta.labels.get(SERVICE_NAME)
            && slice.meta.labels.get(MANAGED_BY).is_some_and(|m| m == manager)
        {
            add(Name::new(&slice.meta.namespace, service));
        }
    }
}

fn selector_of(service: &Object) -> Option<Selector> {
    let service: Service = service.typed().ok()?;
    service.spec.selector.filter(|s| !s.is_empty()).map(Selector::of)
}

struct Parts {
    services: Resource,
    pods: Resource,
    nodes: Resource,
    slices: Resource,
    endpoints: Resource,
}

impl Parts {
    fn backends(&self, namespace: &str, selector: &Labels) -> Vec<Backend> {
        let selector = Selector::of(selector.clone());
        let pods = self.pods.list(namespace);
        pods.iter().filter(|p| selector.matches(&p.meta.labels)).map(Backend::read).collect()
    }

    fn zone(&self, node: &str) -> Option<String> {
        self.nodes.get(&Name::new("", node)).and_then(|n| n.meta.labels.get(ZONE).cloned())
    }

    fn zone_ratios(&self) -> ZoneRatios {
        ZoneRatios::of(self.nodes.all().iter().filter_map(|node| topology::share(node)))
    }

    /// The slices of a service that a controller manages.
    fn managed(&self, name: &Name, manager: &str) -> Vec<Arc<Object>> {
        let of_service = |slice: &Arc<Object>| {
            let labels = &slice.meta.labels;
            labels.get(SERVICE_NAME) == Some(&name.name)
                && labels.get(MANAGED_BY).is_some_and(|m| m == manager)
        };
        self.slices.list(&name.namespace).into_iter().filter(of_service).collect()
    }

    async fn sync(
        &self,
        name: &Name,
        (manager, labels, owner): (&str, Labels, Made<OwnerReference>),
        groups: Vec<Group>,
    ) -> Result<(), ApiError> {
        let mut labels = labels;
        labels.insert(SERVICE_NAME.into(), name.name.clone());
        labels.insert(MANAGED_BY.into(), manager.into());
        let existing = self.managed(name, manager);
        let Plan { create, update, delete } = slices::plan(&existing, groups);
        for group in &create {
            let body = slices::body(&name.name, &name.namespace, &labels, owner.clone(), group);
            self.slices.create(&name.namespace, body).await?;
        }
        let updated: Vec<String> = update.iter().map(|(o, _)| o.meta.name.clone()).collect();
        for (slice, endpoints) in update {
            let mut body = slice.copy::<EndpointSlice>();
            body.edit().endpoints().put(Value::Array(endpoints));
            body.edit().metadata().labels().set(&labels);
            self.slices.update(body).await?;
        }
        for slice in &delete {
            self.slices.delete(slice).await?;
        }
        let stale = existing.iter().filter(|s| s.meta.labels != labels && !updated.contains(&s.meta.name));
        for slice in stale.filter(|s| !delete.iter().any(|d| d.meta.name == s.meta.name)) {
            let mut body = slice.copy::<EndpointSlice>();
            body.edit().metadata().labels().set(&labels);
            self.slices.update(body).await?;
        }
        Ok(())
    }
}

/// Labels of a service without those the controllers set.
fn copied(labels: &Labels) -> Labels {
    let own = [SERVICE_NAME, MANAGED_BY, HEADLESS, SKIP_MIRROR];
    labels.iter().filter(|(k, _)| !own.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn settled(result: Result<(), ApiError>) -> Result<Requeue, Failure> {
    match result {
        Err(error) if !error.is_namespace_terminating() => Err(error.into()),
        _ => Ok(Requeue::No),
    }
}

struct Slices {
    parts: Parts,
    /// Services whose endpoints are distributed by cpus: Events tell when that begins and ends.
    hinted: Mutex<HashSet<Name>>,
}

impl Slices {
    /// Tells in Events what became of the distribution by cpus, and why there is none.
    fn tell(&self, name: &Name, service: &Object, spec: &Spec, hints: &Hints) {
        let mut events = Vec::new();
        {
            let mut hinted = self.hinted.lock();
            match hints {
                Hints::Auto(families) => {
                    for (family, zones) in families {
                        match zones {
                            Ok(_) if !hinted.insert(name.clone()) => {}
                            Ok(_) => events.push((true, format!("{HINTS_ON}, addressType: {family}"))),
                            Err(why) => {
                                hinted.remove(name);
                                events.push((false, format!("{why}, addressType: {family}")));
                            }
                        }
                    }
                }
                Hints::Distribution if hinted.remove(name) => {
                    let first = spec.families().into_iter().take(1);
                    events.extend(first.map(|family| (false, format!("{HINTS_OFF}, addressType: {family}"))));
                }
                Hints::Distribution => {}
            }
        }
        for (enabled, message) in events {
            match enabled {
                true => self.parts.services.normal(service, "TopologyAwareHintsEnabled", message),
                false => self.parts.services.warn(service, "TopologyAwareHintsDisabled", message),
            }
        }
    }
}

#[async_trait]
impl Controller for Slices {
    fn name(&self) -> &'static str {
        SLICES
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let parts = &self.parts;
        let Some(service) = parts.services.get(name) else {
            self.hinted.lock().remove(name);
            return Ok(Requeue::No);
        };
        let Service { metadata, spec } = service.typed()?;
        let Some(selector) = spec.selector.clone().filter(|s| !s.is_empty()) else { return Ok(Requeue::No) };
        if spec.type_ == "ExternalName" || service.meta.deletion_timestamp.is_some() {
            return Ok(Requeue::No);
        }
        let backends = parts.backends(&name.namespace, &selector);
        let zones = |node: &str| parts.zone(node);
        let hints = match topology::is_auto(&metadata.annotations) {
            true => Hints::auto(&spec, &backends, &zones, &parts.zone_ratios()),
            false => Hints::Distribution,
        };
        let groups = service::groups(&name.name, &spec, &backends, &zones, &hints);
        self.tell(name, &service, &spec, &hints);
        let mut labels = copied(&service.meta.labels);
        if spec.headless() {
            labels.insert(HEADLESS.into(), String::new());
        }
        let owner = adoption::reference("v1", "Service", &service.meta);
        settled(parts.sync(name, ("endpointslice-controller.k8s.io", labels, owner), groups).await)
    }
}

struct Endpoints(Parts);

#[async_trait]
impl Controller for Endpoints {
    fn name(&self) -> &'static str {
        ENDPOINTS
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let current = self.0.endpoints.get(name);
        let service = self.0.services.get(name);
        let Some(service) = service.filter(|s| s.meta.deletion_timestamp.is_none()) else {
            // Those it made go with the service; those of others are not its business.
            let mine = current.filter(|e| e.meta.labels.contains_key(ENDPOINTS_MANAGED_BY));
            if let Some(endpoints) = mine {
                self.0.endpoints.delete(&endpoints).await?;
            }
            return Ok(Requeue::No);
        };
        let Service { spec, .. } = service.typed()?;
        let Some(selector) = spec.selector.clone().filter(|s| !s.is_empty()) else { return Ok(Requeue::No) };
        if spec.type_ == "ExternalName" {
            return Ok(Requeue::No);
        }
        let backends = self.0.backends(&name.namespace, &selector);
        let (subsets, truncated) = service::subsets(&name.name, &spec, &backends);
        let mut labels = copied(&service.meta.labels);
        labels.insert(ENDPOINTS_MANAGED_BY.into(), "endpoint-controller".into());
        if spec.headless() {
            labels.insert(HEADLESS.into(), String::new());
        }
        let capacity = truncated.then_some("truncated");
        let subsets = Value::Array(subsets);
        let Some(current) = current else {
            let annotations: Labels = capacity
                .map(|capacity| (OVER_CAPACITY.to_owned(), capacity.to_owned()))
                .into_iter()
                .collect();
            let mut body = make!(v1::Endpoints {
                metadata: { name: &name.name, namespace: &name.namespace, labels, annotations },
            });
            body.edit().subsets().put(subsets);
            return settled(self.0.endpoints.create(&name.namespace, body).await.map(|_| ()));
        };
        let mut body = current.copy::<v1::Endpoints>();
        let meta = body.view().metadata();
        if same(&body.view().subsets().to_value(), &subsets)
            && meta.labels().to_value() == json!(labels)
            && meta.annotations().key(OVER_CAPACITY).get() == capacity
        {
            return Ok(Requeue::No);
        }
        body.edit().subsets().put(subsets);
        body.edit().metadata().labels().set(labels);
        match capacity {
            Some(capacity) => body.edit().metadata().annotations().insert(OVER_CAPACITY, capacity),
            None => body.edit().metadata().annotations().remove(OVER_CAPACITY),
        }
        settled(self.0.endpoints.update(body).await.map(|_| ()))
    }
}

struct Mirror(Parts);

#[async_trait]
impl Controller for Mirror {
    fn name(&self) -> &'static str {
        MIRROR
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
        let service = self.0.services.get(name);
        let selectorless = service.as_ref().is_some_and(|s| selector_of(s).is_none());
        let endpoints = self.0.endpoints.get(name).filter(|e| selectorless && mirrored(e));
        let Some(endpoints) = endpoints else {
            for slice in self.0.managed(name, MANAGER) {
                self.0.slices.delete(&slice).await?;
            }
            return Ok(Requeue::No);
        };
        let owner = adoption::reference("v1", "Endpoints", &endpoints.meta);
        let groups = mirror_groups(endpoints.doc().view());
        settled(self.0.sync(name, (MANAGER, copied(&endpoints.meta.labels), owner), groups).await)
    }
}

fn mirrored(endpoints: &Object) -> bool {
    let labels = &endpoints.meta.labels;
    let doc = endpoints.doc();
    let annotations = doc.view::<v1::Endpoints>().metadata().annotations();
    let elects = annotations.key("control-plane.alpha.kubernetes.io/leader").is_set();
    endpoints.meta.deletion_timestamp.is_none()
        && labels.get(SKIP_MIRROR).is_none_or(|v| v != "true")
        && labels.get(ENDPOINTS_MANAGED_BY).is_none_or(|v| v != "endpoint-controller")
        && !elects
}

/// The groups that say in slices what subsets say.
fn mirror_groups(endpoints: View<'_, v1::Endpoints>) -> Vec<Group> {
    let mut all: Vec<Group> = Vec::new();
    for subset in endpoints.subsets().items() {
        let ports = subset.ports().to_values();
        for (addresses, ready) in [(subset.addresses(), true), (subset.not_ready_addresses(), false)] {
            for address in addresses.items() {
                let ip = address.ip().text();
                let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
                let endpoint = make!(part Endpoint {
                    addresses: [ip],
                    conditions: { ready },
                    hostname: address.hostname(),
                    node_name: address.node_name(),
                    target_ref: address.target_ref(),
                });
                let endpoint = endpoint.into_value();
                match all.iter_mut().find(|g| g.address_type == family && g.ports == ports) {
                    Some(group) => group.endpoints.push(endpoint),
                    None => all.push(Group {
                        address_type: family.into(),
                        ports: ports.clone(),
                        endpoints: vec![endpoint],
                    }),
                }
            }
        }
    }
    all
}
