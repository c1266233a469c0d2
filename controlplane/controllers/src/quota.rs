//! ResourceQuotas: how much of them is used. Admission charges what comes; here everything is counted anew when something
//! went or shrank, when a quota changes, and now and then.

use async_trait::async_trait;
use coracle_client::Client;
use coracle_client::quota_charges::QuotaCharges;
use coracle_fields::core::v1::{ResourceQuota, ResourceQuotaStatus};
use coracle_fields::{Made, Schema as _};
use coracle_informer::all_kinds::{ObjectHandler, kinds};
use coracle_informer::informer::{Change, Name};
use coracle_informer::queue::Queue;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::time;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::registry::usage::{self, Amounts};
use coracle_kinds::watch::cache::Cache;
use coracle_proto::quantity::Quantity;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const NAME: &str = "resourcequota-controller";
/// How often everything is counted although nothing happened.
const RESYNC_SECONDS: i64 = 300;
/// How long a quota must stand still before less is written to it, when other servers may be charging it: longer than an
/// object takes from its charge to the store.
const QUIET_SECONDS: i64 = 3;

struct Quotas {
    client: Client,
    quotas: Resource,
    charges: Option<Arc<dyn QuotaCharges>>,
    /// Whether other servers charge the same quotas.
    shared: bool,
    /// Since when a quota is at its revision.
    seen: Mutex<HashMap<Name, (u64, Timestamp)>>,
}

/// Queues the quotas of a namespace in which something went, ended or changed in size. What comes is charged by admission.
struct Content {
    quotas: Arc<Cache>,
    queue: Arc<Queue<Name>>,
}

impl ObjectHandler for Content {
    fn on_change(&self, kind: &Arc<Kind>, change: Change<'_>) {
        let (came, went) = (change.old.is_none(), change.new.is_none());
        let sizes_change = kind.group.is_empty()
            && matches!(kind.plural.as_str(), "pods" | "services" | "persistentvolumeclaims");
        let Some(object) = change.object().filter(|_| went || (sizes_change && !came)) else { return };
        if object.meta.namespace.is_empty() {
            return;
        }
        let quotas = self.quotas.list(Some(&object.meta.namespace));
        if !quotas.is_empty() && (went || differs(kind, &change)) {
            quotas.iter().for_each(|quota| self.queue.add(Name::of(quota)));
        }
    }

    fn on_resync(&self, _: &Arc<Kind>, _: &Cache) {
        self.quotas.list(None).iter().for_each(|q| self.queue.add(Name::of(q)));
    }

    fn on_kind_removed(&self, _: &Arc<Kind>) {}
}

/// Whether an object uses something else than before.
fn differs(kind: &Kind, change: &Change<'_>) -> bool {
    let (Some(old), Some(new)) = (change.old, change.new) else { return true };
    let of =
        |object: &coracle_kinds::object::Object| usage::usage((&kind.group, &kind.plural), &object.value());
    of(old) != of(new)
}

/// Starts the controller; returns what listens to every object for it.
pub fn start(
    setup: &mut Setup<'_>,
    charges: Option<Arc<dyn QuotaCharges>>,
    shared: bool,
) -> Arc<dyn ObjectHandler> {
    let client = setup.client(NAME);
    let quotas = setup.resource(NAME, "", "resourcequotas");
    let queue = setup.enqueue_on_change(&quotas).queue.clone();
    let content = Content { quotas: quotas.cache.clone(), queue: queue.clone() };
    setup.run(Quotas { client, quotas, charges, shared, seen: Mutex::default() }, &queue, 2);
    Arc::new(content)
}

#[async_trait]
impl Controller for Quotas {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        if self.quotas.get(name).is_none() {
            self.seen.lock().remove(name);
            if let Some(charges) =
                self.charges.as_ref().filter(|_| self.quotas.list(&name.namespace).is_empty())
            {
                charges.forget(&name.namespace);
            }
            return Ok(Requeue::No);
        }
        // Nothing may be charged and not stored while it is counted.
        let _still = match &self.charges {
            Some(charges) => Some(charges.lock(&name.namespace).await),
            None => None,
        };
        let quota = self.quotas.fresh(name).await?;
        let value = quota.value();
        let used = self.used(&value, &name.namespace);
        if self.shared
            && lowers(&ResourceQuota::of(&value).status().used().to_value(), &used)
            && let Some(due) = self.quiet_at(name, quota.revision, now)
        {
            return Ok(Requeue::At(due));
        }
        let used: BTreeMap<String, String> =
            used.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect();
        let mut status = Made::<ResourceQuotaStatus>::default();
        status.edit().hard().put(Value::Object(ResourceQuota::of(&value).spec().hard().to_entries()));
        status.edit().used().set(used);
        self.quotas.set_status(&quota, status).await?;
        Ok(Requeue::At(time::after(now, RESYNC_SECONDS)))
    }
}

impl Quotas {
    /// What all objects of the namespace use of those of the quota's resources that a kind is counted by.
    fn used(&self, quota: &Value, namespace: &str) -> Amounts {
        let hard = ResourceQuota::of(quota).spec().hard().to_entries();
        let mut total = Amounts::default();
        for kind in kinds(&self.client).values().filter(|kind| kind.namespaced()) {
            let named = (kind.group.as_str(), kind.plural.as_str());
            let counted: Vec<&String> =
                hard.keys().filter(|resource| usage::concerns(named, resource)).collect();
            if counted.is_empty() {
                continue;
            }
            for resource in counted {
                total.entry(resource.clone()).or_insert_with(Quantity::zero);
            }
            let Some(cache) = self.client.find_whole_cache(kind) else { continue };
            for object in cache.list(Some(namespace)) {
                let value = object.value();
                if !usage::covered(quota, named, &value) {
                    continue;
                }
                let mut used = usage::usage(named, &value);
                used.retain(|name, _| hard.contains_key(name));
                usage::add(&mut total, &used);
            }
        }
        total
    }

    /// When the quota will have stood still long enough; `None` when it has.
    fn quiet_at(&self, name: &Name, revision: u64, now: Timestamp) -> Option<Timestamp> {
        let mut seen = self.seen.lock();
        let entry = seen.entry(name.clone()).or_insert((revision, now));
        if entry.0 != revision {
            *entry = (revision, now);
        }
        Some(time::after(entry.1, QUIET_SECONDS)).filter(|due| *due > now)
    }
}

/// Whether less is used than the status says.
fn lowers(status: &Value, used: &Amounts) -> bool {
    usage::amounts(status).iter().any(|(name, said)| used.get(name).is_some_and(|now| now < said))
}
