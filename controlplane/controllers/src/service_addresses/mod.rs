//! Keeps Services and IPAddresses in step: every cluster IP has an IPAddress that refers to its Service, and every IPAddress of a
//! Service is one of its cluster IPs. What a person has to repair is an Event.

// What is wrong with an address.
mod plan;

use async_trait::async_trait;
use coracle_fields::core::v1::Service;
use coracle_fields::make;
use coracle_fields::networking::v1::IPAddress;
use coracle_informer::identity::{Account, Identity};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::time;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use plan::{Allocation, Flaw, Leak};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// As Events name it.
const NAME: &str = "ipallocator-repair-controller";
const IDENTITY: Identity = Identity::without_account(Account::Server, NAME);
/// The queue of IPAddresses.
const LEAKS: &str = "ipallocator-repair-controller-ipaddresses";
/// How often an Event says again, in seconds, that a Service must be made anew.
const INTERVAL: i64 = 180;

struct Repair {
    services: Resource,
    addresses: Resource,
    ranges: Resource,
}

struct Leaks {
    services: Resource,
    addresses: Resource,
}

/// Starts the controllers.
pub fn start(setup: &mut Setup<'_>) {
    let services = setup.resource(IDENTITY, "", "services");
    let addresses = setup.resource(IDENTITY, "networking.k8s.io", "ipaddresses");
    let ranges = setup.resource(IDENTITY, "networking.k8s.io", "servicecidrs");
    let mut handlers = setup.enqueue_matching(&services, |service| !plan::addresses(service).is_empty());
    // An address that is deleted or taken over is restored at once.
    handlers.on_change(&addresses.kind, &addresses.cache, |change, add| {
        let owners = [change.old, change.new].into_iter().flatten();
        owners.filter_map(|address| Allocation::of(address).owner).for_each(add);
    });
    let all = services.cache.clone();
    handlers.on_change(&ranges.kind, &ranges.cache, move |change, add| {
        let of = |range: Option<&Arc<Object>>| range.map(|range| plan::ranges(range)).unwrap_or_default();
        if of(change.old) != of(change.new) {
            all.list(None).iter().for_each(|service| add(Name::of(service)));
        }
    });
    let queue = handlers.queue.clone();
    let repair = Repair { services: services.clone(), addresses: addresses.clone(), ranges };
    setup.run(repair, &queue, 1);

    let mut handlers = setup.enqueue_on_change(&addresses);
    let queue = handlers.queue.clone();
    // What a Service no longer uses is about to be released by the server: one that died on the way does not.
    let later = queue.clone();
    handlers.on_change(&services.kind, &services.cache, move |change, _| {
        let kept = change.new.map(|service| plan::addresses(service)).unwrap_or_default();
        let old = change.old.map(|service| plan::addresses(service)).unwrap_or_default();
        for address in old.into_iter().filter(|address| !kept.contains(address)) {
            later.add_after(Name::new("", &address), Duration::from_secs(plan::GRACE.unsigned_abs()));
        }
    });
    setup.run(Leaks { services, addresses }, &queue, 1);
}

/// The object, or none when there is none.
fn found(result: Result<Arc<Object>, ApiError>) -> Result<Option<Arc<Object>>, ApiError> {
    match result {
        Err(error) if error.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

#[async_trait]
impl Controller for Repair {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(service) = self.services.get(name) else { return Ok(Requeue::No) };
        let mut stays = false;
        for text in plan::addresses(&service) {
            stays |= self.repair(&service, &text).await?;
        }
        Ok(if stays { Requeue::At(time::after(now, INTERVAL)) } else { Requeue::No })
    }
}

impl Repair {
    /// Repairs one address; `true` when something stays wrong.
    async fn repair(&self, service: &Arc<Object>, text: &str) -> Result<bool, Failure> {
        let Ok(ip) = text.parse::<IpAddr>() else {
            let message = format!("Cluster IP {text} is not a valid IP; please recreate Service");
            self.services.warn(service, "ClusterIPNotValid", message);
            return Ok(true);
        };
        let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        if !plan::is_within(&self.ranges.all(), ip) {
            let message = format!(
                "Cluster IP [{family}]: {ip} is not within any configured Service CIDR; please recreate service"
            );
            self.services.warn(service, "ClusterIPOutOfRange", message);
            return Ok(true);
        }
        let (name, key) = (Name::of(service), Name::new("", &ip.to_string()));
        let there = self.addresses.get(&key);
        if there.as_ref().is_some_and(|there| Allocation::of(there).is_of(&name, ip)) {
            return Ok(false);
        }
        // Caches of two kinds may be at different versions: the Service may have gone, or been given its address just now.
        let service = found(self.services.fresh(&name).await)?;
        let Some(service) = service.filter(|service| plan::addresses(service).iter().any(|ip| ip == text))
        else {
            return Ok(false);
        };
        let there = found(self.addresses.fresh(&key).await)?;
        let allocation = there.as_ref().map(|there| Allocation::of(there));
        let other = match allocation.as_ref().and_then(|allocation| allocation.owner.clone()) {
            Some(owner) if owner != name => found(self.services.fresh(&owner).await)?,
            _ => None,
        };
        let wrong_reference = format!(
            "the ClusterIP [{family}]: {ip} for Service {}/{} has a wrong reference; repairing",
            name.namespace, name.name
        );
        let (flaw, message) = match plan::flaw(allocation.as_ref(), &name, ip, other.as_deref()) {
            None => return Ok(false),
            Some(Flaw::Missing) => {
                ("ClusterIPNotAllocated", format!("Cluster IP [{family}]: {ip} is not allocated; repairing"))
            }
            Some(Flaw::WrongReference) => ("ClusterIPNotAllocated", wrong_reference),
            Some(Flaw::Duplicate) => {
                let message = format!(
                    "Cluster IP [{family}]:{ip} was assigned to multiple services; please recreate service"
                );
                self.services.warn(&service, "ClusterIPAlreadyAllocated", message);
                return Ok(true);
            }
            // Its IPAddress is about to be deleted.
            Some(Flaw::Leaked) => return Ok(true),
            Some(Flaw::Labels) => ("", String::new()),
        };
        if !flaw.is_empty() {
            tracing::warn!(service = %name.name, namespace = %name.namespace, reason = flaw, "{message}");
            self.services.warn(&service, flaw, message);
        }
        if let Some(there) = there {
            self.addresses.delete(&there).await?;
        }
        self.addresses.create("", allocation_of(&name, ip)).await?;
        Ok(false)
    }
}

fn allocation_of(service: &Name, ip: IpAddr) -> serde_json::Value {
    let [family, managed_by] = plan::labels(ip);
    let address = make!(IPAddress {
        metadata: { name: ip.to_string(), labels: [family, managed_by] },
        spec: {
            parent_ref: { resource: "services", namespace: &service.namespace, name: &service.name },
        },
    });
    address.into_value()
}

#[async_trait]
impl Controller for Leaks {
    fn name(&self) -> &'static str {
        LEAKS
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(address) = self.addresses.get(name) else { return Ok(Requeue::No) };
        let allocation = Allocation::of(&address);
        if !allocation.is_managed {
            return Ok(Requeue::No);
        }
        let service = match &allocation.owner {
            Some(owner) => match self.services.get(owner) {
                Some(service) if plan::uses(&service, &name.name) => return Ok(Requeue::No),
                _ => found(self.services.fresh(owner).await)?,
            },
            None => None,
        };
        let message = match plan::leak(&address, &allocation, service.as_deref(), now) {
            Leak::None => return Ok(Requeue::No),
            Leak::Unknown(until) => return Ok(Requeue::At(until)),
            Leak::Sure(reason, message) => (reason, message),
        };
        tracing::warn!(address = %name.name, reason = message.0, "{}", message.1);
        self.addresses.warn(&address, message.0, message.1);
        self.addresses.delete(&address).await?;
        Ok(Requeue::No)
    }
}

/// Whether a Service is of a type without cluster IPs.
fn is_external_name(service: &Object) -> bool {
    service.doc().view::<Service>().spec().type_() == "ExternalName"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::test_cluster::Cluster;
    use serde_json::{Value, json};

    async fn service(cluster: &Cluster, name: &str, ip: &str) {
        let body = json!({"metadata": {"name": name}, "spec": {"clusterIP": ip, "ports": [{"port": 80}]}});
        cluster.create("", "services", "default", body).await;
    }

    fn events(cluster: &Cluster, reason: &str) -> Vec<Value> {
        let all = cluster.list("events", "default");
        all.into_iter().filter(|event| event["reason"] == reason).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_address_that_is_deleted_comes_back() {
        let cluster = Cluster::start().await;
        service(&cluster, "web", "10.43.0.7").await;
        let key = Name::new("", "10.43.0.7");
        let parent =
            |c: &Cluster| c.get("networking.k8s.io/ipaddresses", &key)["spec"]["parentRef"]["name"].clone();
        cluster.until("allocated", |c| parent(c) == "web").await;
        let before = cluster.get("networking.k8s.io/ipaddresses", &key)["metadata"]["uid"].clone();
        assert!(events(&cluster, "ClusterIPNotAllocated").is_empty());
        cluster.delete("networking.k8s.io/ipaddresses", &key, "Background").await;
        let uid = |c: &Cluster| c.get("networking.k8s.io/ipaddresses", &key)["metadata"]["uid"].clone();
        cluster.until("allocated again", |c| parent(c) == "web" && uid(c) != before).await;
        cluster.until("told", |c| events(c, "ClusterIPNotAllocated").len() == 1).await;
        let event = &events(&cluster, "ClusterIPNotAllocated")[0];
        assert_eq!(event["message"], "Cluster IP [IPv4]: 10.43.0.7 is not allocated; repairing");
        assert_eq!(event["source"]["component"], NAME);
        cluster.delete("services", &Name::new("default", "web"), "Background").await;
        cluster.until("released", |c| c.get("networking.k8s.io/ipaddresses", &key).is_null()).await;
        assert_eq!(events(&cluster, "ClusterIPNotAllocated").len(), 1, "no repair of what is released");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_address_of_no_service_goes_and_those_of_others_stay() {
        let cluster = Cluster::start().await;
        let address = |ip: &str, managed: bool, resource: &str| {
            let by = if managed { "ipallocator.k8s.io" } else { "me" };
            json!({"metadata": {"name": ip, "labels": {"ipaddress.kubernetes.io/managed-by": by}},
                "spec": {"parentRef": {"resource": resource, "namespace": "default", "name": "gone"}}})
        };
        for (ip, managed, resource) in [
            ("10.96.0.8", true, "gateways"),
            ("10.96.0.9", false, "gateways"),
            ("10.96.0.10", true, "services"),
        ] {
            cluster.create("networking.k8s.io", "ipaddresses", "", address(ip, managed, resource)).await;
        }
        let there =
            |c: &Cluster, ip: &str| !c.get("networking.k8s.io/ipaddresses", &Name::new("", ip)).is_null();
        cluster.until("not of a Service", |c| !there(c, "10.96.0.8")).await;
        cluster.until("told", |c| events(c, "IPAddressNotAllocated").len() == 1).await;
        assert!(
            there(&cluster, "10.96.0.9") && there(&cluster, "10.96.0.10"),
            "a fresh one may have a Service soon"
        );
    }
}
