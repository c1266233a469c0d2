//! ResourceQuotas: how much of them is used.

// What objects use.
pub mod usage;

use super::everything::{Listener, kinds};
use super::informer::{Change, Name};
use super::queue::Queue;
use super::resource::Resource;
use super::runner::{Again, Controller, Failure};
use super::setup::Setup;
use crate::client::Client;
use crate::registry::kinds::Kind;
use crate::watch::cache::Cache;
use async_trait::async_trait;
use coracle_proto::quantity::Quantity;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;

const NAME: &str = "resourcequota-controller";

struct Quotas {
    client: Client,
    quotas: Resource,
}

/// Queues the quotas of a namespace in which something came, went or ended.
struct Content {
    quotas: Arc<Cache>,
    queue: Arc<Queue<Name>>,
}

impl Listener for Content {
    fn seen(&self, kind: &Arc<Kind>, change: Change<'_>) {
        let comes_or_goes = change.old.is_none() || change.new.is_none();
        let sizes_change = kind.group.is_empty()
            && matches!(kind.plural.as_str(), "pods" | "services" | "persistentvolumeclaims");
        let Some(object) = change.object().filter(|_| comes_or_goes || sizes_change) else { return };
        if !object.meta.namespace.is_empty() {
            self.quotas.list(Some(&object.meta.namespace)).iter().for_each(|q| self.queue.add(Name::of(q)));
        }
    }

    fn missed(&self, _: &Arc<Kind>, _: &Cache) {
        self.quotas.list(None).iter().for_each(|q| self.queue.add(Name::of(q)));
    }

    fn gone(&self, _: &Arc<Kind>) {}
}

/// Starts the controller; returns what listens to every object for it.
pub fn start(setup: &mut Setup<'_>) -> Arc<dyn Listener> {
    let client = setup.client(NAME);
    let quotas = setup.resource(NAME, "", "resourcequotas");
    let queue = setup.feed(&quotas).queue.clone();
    let content = Content { quotas: quotas.cache.clone(), queue: queue.clone() };
    setup.run(Quotas { client, quotas }, &queue, 2);
    Arc::new(content)
}

#[async_trait]
impl Controller for Quotas {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Again, Failure> {
        let Some(quota) = self.quotas.get(name) else { return Ok(Again::No) };
        let value = quota.value();
        let hard = value["spec"]["hard"].as_object().cloned().unwrap_or_default();
        let mut used = Map::new();
        for resource in hard.keys() {
            used.insert(resource.clone(), json!(self.used(&value, resource, &name.namespace).to_string()));
        }
        self.quotas.set_status(&quota, json!({"hard": hard, "used": used})).await?;
        Ok(Again::No)
    }
}

impl Quotas {
    fn used(&self, quota: &Value, resource: &str, namespace: &str) -> Quantity {
        let mut total = Quantity::zero();
        for kind in kinds(&self.client).values().filter(|k| k.namespaced() && concerns(k, resource)) {
            let Ok(cache) = self.client.api().cache(kind) else { continue };
            for object in cache.list(Some(namespace)) {
                total.add(&usage::usage(quota, resource, (&kind.group, &kind.plural), &object.value()));
            }
        }
        total
    }
}

/// Whether objects of a kind can use a resource.
fn concerns(kind: &Kind, resource: &str) -> bool {
    let qualified =
        if kind.group.is_empty() { kind.plural.clone() } else { format!("{}.{}", kind.plural, kind.group) };
    if let Some(counted) = resource.strip_prefix("count/") {
        return counted == qualified;
    }
    if !kind.group.is_empty() {
        return false;
    }
    let storage = resource.ends_with("requests.storage") || resource.ends_with("persistentvolumeclaims");
    match kind.plural.as_str() {
        "persistentvolumeclaims" => storage,
        "services" => resource.starts_with("services"),
        "pods" => !storage && !resource.starts_with("services"),
        plural => resource == plural,
    }
}
