//! ServiceCIDRs: ready to supply addresses, and kept as long as Services have addresses that no other range contains.

use crate::nodes::ranges::Range;
use async_trait::async_trait;
use coracle_fields::make;
use coracle_fields::networking::v1::ServiceCIDR;
use coracle_informer::conditions::{self, Condition};
use coracle_informer::identity::{Account, Identity};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::time;
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::Cache;
use jiff::Timestamp;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;

const NAME: &str = "service-cidrs-controller";
/// The source of its Events, and its name in `managedFields` of the status.
const EVENTS: &str = "service-cidr-controller";
const IDENTITY: Identity = Identity::of(NAME).with_events(EVENTS);
/// Kubernetes makes the default one in its API server.
const RESTORER: Identity = Identity::without_account(Account::Server, "kubernetes-service-cidr-controller");
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Addresses with this label are those of Services.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// How long a range without addresses is kept, in seconds: until every server has seen that it goes, and takes none of it.
const DELETION_GRACE: i64 = 10;

/// The ServiceCIDR that every cluster has.
const DEFAULT: &str = "kubernetes";

struct ServiceCidrs {
    /// What the default one has; it is not made again when there is nothing.
    default: Vec<String>,
    ranges: Resource,
    /// The same, to make the default one again.
    restored: Resource,
    addresses: Resource,
}

/// Starts the controller. `default` are the ranges of the ServiceCIDR that is made again when it was deleted.
pub fn start(setup: &mut Setup<'_>, default: &[String]) {
    let ranges = setup.resource(IDENTITY, "networking.k8s.io", "servicecidrs");
    let restored = setup.resource(RESTORER, "networking.k8s.io", "servicecidrs");
    let addresses = setup.resource(IDENTITY, "networking.k8s.io", "ipaddresses");
    let mut handlers = setup.enqueue_on_change(&ranges);
    let all = ranges.cache.clone();
    // Another range may contain the addresses from now on.
    handlers.on_change(&ranges.kind, &ranges.cache, move |_, add| deleted(&all, add));
    let all = ranges.cache.clone();
    handlers.on_change(&addresses.kind, &addresses.cache, move |change, add| {
        if change.new.is_none() {
            deleted(&all, add);
        }
    });
    let queue = handlers.queue.clone();
    setup.run(ServiceCidrs { default: default.to_vec(), ranges, restored, addresses }, &queue, 1);
}

/// Ranges that wait for the end of addresses.
fn deleted(ranges: &Cache, add: &mut dyn FnMut(Name)) {
    let all = ranges.list(None);
    all.iter().filter(|r| r.meta.deletion_timestamp.is_some()).for_each(|range| add(Name::of(range)));
}

/// The ranges of a ServiceCIDR.
fn ranges_of(object: &Object) -> Vec<Range> {
    let doc = object.doc();
    doc.view::<ServiceCIDR>().spec().cidrs().texts().filter_map(|text| text.parse().ok()).collect()
}

/// Whether a ServiceCIDR can go: each of its addresses that a Service has is in another ServiceCIDR that stays, or that was
/// deleted later: of several that are deleted together, the last one waits for the addresses.
fn may_go(object: &Object, all: &[Arc<Object>], addresses: &[Arc<Object>]) -> bool {
    let deleted = |range: &Object| {
        let at = time::parse(range.meta.deletion_timestamp.as_deref()).unwrap_or(Timestamp::MAX);
        (at, range.meta.name.clone())
    };
    let own = deleted(object);
    let stays = |other: &&Arc<Object>| deleted(other) > own;
    let others: Vec<Range> = all.iter().filter(stays).flat_map(|other| ranges_of(other)).collect();
    let own = ranges_of(object);
    if own.iter().all(|range| others.iter().any(|other| other.contains(range))) {
        return true;
    }
    let of_services =
        addresses.iter().filter(|a| a.meta.labels.get(MANAGED_BY.0).is_some_and(|by| by == MANAGED_BY.1));
    let mut used = of_services.filter_map(|a| Some(Range::of_address(a.meta.name.parse::<IpAddr>().ok()?)));
    let within = |ranges: &[Range], address: &Range| ranges.iter().any(|range| range.contains(address));
    !used.any(|address| within(&own, &address) && !within(&others, &address))
}

#[async_trait]
impl Controller for ServiceCidrs {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(range) = self.ranges.get(name) else { return self.restore(name).await };
        let held = range.meta.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        let Some(deleted) = &range.meta.deletion_timestamp else {
            if !held {
                let mut body = range.copy::<ServiceCIDR>();
                body.edit().metadata().finalizers().push(FINALIZER);
                self.ranges.update(body).await?;
                return Ok(Requeue::No);
            }
            let ready = Condition::new("Ready", true, "", "Kubernetes Service CIDR is ready", now);
            self.tell(&range, ready).await?;
            return Ok(Requeue::No);
        };
        if !held {
            return Ok(Requeue::No);
        }
        if !may_go(&range, &self.ranges.all(), &self.addresses.all()) {
            let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
            self.tell(&range, Condition::new("Ready", false, "Terminating", message, now)).await?;
            return Ok(Requeue::No);
        }
        let goes = time::parse(Some(deleted)).map_or(now, |at| time::after(at, DELETION_GRACE));
        if now < goes {
            return Ok(Requeue::At(goes));
        }
        let kept: Vec<&String> = range.meta.finalizers.iter().filter(|f| *f != FINALIZER).collect();
        let mut body = range.copy::<ServiceCIDR>();
        body.edit().metadata().finalizers().put(json!(kept));
        self.ranges.update(body).await?;
        Ok(Requeue::No)
    }
}

impl ServiceCidrs {
    /// Makes the default one again: without it Services get no addresses.
    async fn restore(&self, name: &Name) -> Result<Requeue, Failure> {
        if name.name == DEFAULT && !self.default.is_empty() {
            let range = make!(ServiceCIDR { metadata: { name: DEFAULT }, spec: { cidrs: &self.default } });
            match self.restored.create("", range).await {
                Ok(_) => tracing::info!(ranges = ?self.default, "the default ServiceCIDR is made again"),
                Err(error) if error.is_already_exists() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Requeue::No)
    }

    async fn tell(&self, range: &Arc<Object>, condition: Condition) -> Result<(), Failure> {
        let mut list: Vec<Condition> =
            range.doc().view::<ServiceCIDR>().status().conditions().read().unwrap_or_default();
        let kind = condition.kind.clone();
        if conditions::put(&mut list, condition) {
            list.retain(|condition| condition.kind == kind);
            let config = make!(ServiceCIDR {
                metadata: { name: &range.meta.name, uid: &range.meta.uid },
                status: { conditions: list },
            });
            self.ranges.apply(EVENTS, &Name::of(range), "status", config).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::test_cluster::Cluster;
    use coracle_kinds::object::testing::object;
    use serde_json::Value;

    #[test]
    fn a_range_goes_when_no_address_is_left_without_range() {
        let cidr = |name: &str, cidrs: &[&str]| {
            object(json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}}))
        };
        let address =
            |ip: &str| object(json!({"metadata": {"name": ip, "labels": {MANAGED_BY.0: MANAGED_BY.1}}}));
        let stranger = object(json!({"metadata": {"name": "10.1.0.7"}}));
        let small =
            object(json!({"metadata": {"name": "small", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"cidrs": ["10.1.0.0/24", "fd00::/112"]}}));
        let large = cidr("large", &["10.1.0.0/16"]);
        let twin = cidr("twin", &["fd00::/112"]);
        let gone = |name: &str, at: &str| {
            object(
                json!({"metadata": {"name": name, "deletionTimestamp": at}, "spec": {"cidrs": ["10.1.0.0/24"]}}),
            )
        };
        let (first, later) = (gone("z", "2026-01-01T00:00:00Z"), gone("a", "2026-01-01T00:00:01Z"));
        let together = gone("b", "2026-01-01T00:00:01Z");
        let all = [first.clone(), later.clone(), together.clone()];
        let of_service = [address("10.1.0.7")];
        let goes = |range: &Object| may_go(range, &all, &of_service);
        assert_eq!([goes(&first), goes(&later), goes(&together)], [true, true, false], "the last one stays");
        for (all, addresses, want) in [
            (vec![&small], vec![], true),
            (vec![&small], vec![address("10.1.0.7")], false),
            (vec![&small], vec![address("fd00::7")], false),
            (vec![&small], vec![address("10.2.0.7"), stranger], true),
            (vec![&small, &large], vec![address("10.1.0.7")], true),
            (vec![&small, &large], vec![address("fd00::7")], false),
            (vec![&small, &large, &twin], vec![address("10.1.0.7"), address("fd00::7")], true),
        ] {
            let all: Vec<Arc<Object>> = all.into_iter().cloned().collect();
            assert_eq!(may_go(&small, &all, &addresses), want, "{} {}", all.len(), addresses.len());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_service_cidr_supplies_addresses_and_stays_while_they_are_used() {
        let cluster = Cluster::start().await;
        let body = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.77.0.0/24"]}});
        cluster.create("networking.k8s.io", "servicecidrs", "", body).await;
        let name = Name::new("", "more");
        let ready = |c: &Cluster| {
            let range = c.get("networking.k8s.io/servicecidrs", &name);
            range["status"]["conditions"][0].clone()
        };
        cluster.until("ready", |c| ready(c)["status"] == "True").await;
        let service = |ip: Value| json!({"metadata": {"name": "web"}, "spec": {"clusterIP": ip, "ports": [{"port": 80}]}});
        cluster.create("", "services", "default", service(json!("10.77.0.5"))).await;
        cluster.delete("networking.k8s.io/servicecidrs", &name, "Background").await;
        cluster.until("in use", |c| ready(c)["reason"] == "Terminating").await;
        let services = cluster.client.kind("", "services");
        let refused = cluster.client.create(&services, "default", service(json!("10.77.0.6"))).await;
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("does not match the current range"), "{why}");
        cluster.delete("services", &Name::new("default", "web"), "Background").await;
        cluster.until("gone", |c| c.get("networking.k8s.io/servicecidrs", &name).is_null()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_default_range_comes_back() {
        let cluster = Cluster::start().await;
        let client = cluster.client.clone();
        let factory = move |identity: Identity| identity.client(&client);
        let mut setup = Setup::new(&factory, Arc::default(), Default::default());
        let controller = ServiceCidrs {
            default: vec!["10.43.0.0/16".into()],
            ranges: setup.resource(IDENTITY, "networking.k8s.io", "servicecidrs"),
            restored: setup.resource(RESTORER, "networking.k8s.io", "servicecidrs"),
            addresses: setup.resource(IDENTITY, "networking.k8s.io", "ipaddresses"),
        };
        let there = |c: &Cluster, name: &str| c.get("networking.k8s.io/servicecidrs", &Name::new("", name));
        for name in ["other", DEFAULT, DEFAULT] {
            controller.restore(&Name::new("", name)).await.unwrap();
        }
        assert_eq!(there(&cluster, DEFAULT)["spec"]["cidrs"], json!(["10.43.0.0/16"]));
        assert!(there(&cluster, "other").is_null());
    }
}
