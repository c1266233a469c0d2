//! Charges requests to the quotas of their namespace and tracks charges whose object is not stored yet. Concurrent
//! requests of a namespace are charged together, with one write per quota.

use super::check::{Limited, Quota, Refusal, Request, check};
use crate::admission::PluginApi;
use async_trait::async_trait;
use coracle_cli::causes;
use coracle_client::options::WriteOptions;
use coracle_client::pipeline::Target;
use coracle_client::quota_charges::QuotaCharges;
use coracle_client::user::User;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::ResourceQuota;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::registry::usage::{self, Amounts};
use coracle_proto::quantity::Quantity;
use coracle_proto::status::ApiError;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, oneshot};

/// Maximum number of attempts when another server changes a quota concurrently.
const ROUNDS: usize = 32;

/// What was charged to one quota.
#[derive(Debug, Clone)]
pub struct Charge {
    quota: String,
    amounts: Amounts,
}

type Outcome = Result<Vec<Charge>, Refusal>;

struct Pending {
    request: Request,
    limited: Arc<Vec<Limited>>,
    answer: oneshot::Sender<Outcome>,
}

/// Charges of one namespace.
#[derive(Default)]
pub struct Namespace {
    /// Read-locked from a charge until its object is stored, write-locked while usage is recounted.
    pub in_flight: Arc<RwLock<()>>,
    waiting: Mutex<Vec<Pending>>,
    turn: tokio::sync::Mutex<()>,
}

/// Charges of all namespaces with quotas.
#[derive(Default)]
pub struct PendingCharges {
    namespaces: Mutex<HashMap<String, Arc<Namespace>>>,
}

impl PendingCharges {
    /// Charges of a namespace.
    pub fn namespace(&self, name: &str) -> Arc<Namespace> {
        self.namespaces.lock().entry(name.to_owned()).or_default().clone()
    }

    /// Waits until all charged objects of this server are stored, and blocks new charges.
    pub async fn lock_idle(&self, name: &str) -> OwnedRwLockWriteGuard<()> {
        self.namespace(name).in_flight.clone().write_owned().await
    }

    /// Drops the state of a namespace without quotas.
    pub fn forget(&self, name: &str) {
        let mut all = self.namespaces.lock();
        if all.get(name).is_some_and(|namespace| Arc::strong_count(namespace) == 1) {
            all.remove(name);
        }
    }
}

#[async_trait]
impl QuotaCharges for PendingCharges {
    async fn lock(&self, namespace: &str) -> OwnedRwLockWriteGuard<()> {
        PendingCharges::lock_idle(self, namespace).await
    }

    fn forget(&self, namespace: &str) {
        PendingCharges::forget(self, namespace);
    }
}

impl Namespace {
    /// Charges a request to the quotas it falls under; nothing is charged when it is refused.
    pub(super) async fn charge(
        &self,
        api: &dyn PluginApi,
        namespace: &str,
        request: Request,
        limited: Arc<Vec<Limited>>,
    ) -> Outcome {
        let (answer, mut answered) = oneshot::channel();
        self.waiting.lock().push(Pending { request, limited, answer });
        let _turn = self.turn.lock().await;
        // Whoever had the turn before may have charged ours with theirs.
        if let Ok(outcome) = answered.try_recv() {
            return outcome;
        }
        let batch = std::mem::take(&mut *self.waiting.lock());
        charge_all(api, namespace, batch).await;
        answered.await.unwrap_or_else(|_| Err(Refusal::Failed(ApiError::internal("a quota was not charged"))))
    }
}

/// Charges all of them in as few writes as there are quotas.
async fn charge_all(api: &dyn PluginApi, namespace: &str, batch: Vec<Pending>) {
    for _ in 0..ROUNDS {
        match charge_round(api, namespace, &batch).await {
            Ok(Some(outcomes)) => {
                for (pending, outcome) in batch.into_iter().zip(outcomes) {
                    let _ = pending.answer.send(outcome);
                }
                return;
            }
            Ok(None) => {}
            Err(error) => {
                for pending in batch {
                    let _ = pending.answer.send(Err(Refusal::Failed(error.clone())));
                }
                return;
            }
        }
    }
    for pending in batch {
        let busy = ApiError::internal("resource quota evaluation timed out");
        let _ = pending.answer.send(Err(Refusal::Failed(busy)));
    }
}

/// One attempt; `None` if another server changed a quota concurrently, then nothing is charged.
async fn charge_round(
    api: &dyn PluginApi,
    namespace: &str,
    batch: &[Pending],
) -> Result<Option<Vec<Outcome>>, ApiError> {
    let objects = api.objects();
    objects.catch_up().await?;
    let kind = quotas(api)?;
    let mut running: Vec<Quota> =
        objects.cache(&kind)?.list(Some(namespace)).iter().map(|quota| Quota::new(quota.value())).collect();
    let mut totals: HashMap<usize, Amounts> = HashMap::new();
    let mut outcomes = Vec::with_capacity(batch.len());
    for pending in batch {
        let charges = match check(&running, &pending.request, &pending.limited) {
            Err(refusal) => {
                outcomes.push(Err(refusal));
                continue;
            }
            Ok(_) if pending.request.dry_run => Default::default(),
            Ok(charges) => charges,
        };
        let mut taken = Vec::new();
        for (index, amounts) in charges {
            usage::add(&mut running[index].used, &amounts);
            usage::add(totals.entry(index).or_default(), &amounts);
            taken.push(Charge { quota: running[index].name().to_owned(), amounts });
        }
        outcomes.push(Ok(taken));
    }
    let mut written = Vec::new();
    for (index, amounts) in totals {
        let quota = &running[index];
        let mut object = quota.object.clone();
        ResourceQuota::edit(&mut object).status().used().set(printed(&quota.used));
        match write(api, &kind, namespace, quota.name(), &|_| Ok(object.clone())).await {
            Ok(()) => written.push(Charge { quota: quota.name().to_owned(), amounts }),
            Err(error) if error.is_conflict() || error.is_not_found() => {
                release(api, namespace, &written).await;
                return Ok(None);
            }
            Err(error) => {
                release(api, namespace, &written).await;
                return Err(error);
            }
        }
    }
    Ok(Some(outcomes))
}

/// Releases the charges of an object that was not stored. If that fails, the quota controller corrects the usage.
pub(super) async fn release(api: &dyn PluginApi, namespace: &str, charges: &[Charge]) {
    let Ok(kind) = quotas(api) else { return };
    for charge in charges {
        let less = |current: &Value| {
            let mut new = current.clone();
            let mut used = usage::amounts(&ResourceQuota::of(current).status().used().as_value());
            for (name, amount) in &charge.amounts {
                if let Some(entry) = used.get_mut(name) {
                    entry.sub(amount);
                    if entry.signum() < 0 {
                        *entry = Quantity::zero();
                    }
                }
            }
            let mut quota = ResourceQuota::edit(&mut new);
            quota.status().used().set(printed(&used));
            quota.metadata().resource_version().clear();
            Ok(new)
        };
        match write(api, &kind, namespace, &charge.quota, &less).await {
            Err(error) if !error.is_not_found() => {
                tracing::warn!(namespace, quota = charge.quota, error = %causes::chain(&error), "releasing a quota charge failed");
            }
            _ => {}
        }
    }
}

fn quotas(api: &dyn PluginApi) -> Result<Arc<Kind>, ApiError> {
    api.objects().registry.resource("", "v1", "resourcequotas").ok_or_else(ApiError::no_such_path)
}

fn printed(amounts: &Amounts) -> BTreeMap<String, String> {
    amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect()
}

async fn write(
    api: &dyn PluginApi,
    kind: &Kind,
    namespace: &str,
    name: &str,
    change: &coracle_client::pipeline::Change<'_>,
) -> Result<(), ApiError> {
    let user = User::server();
    let options = WriteOptions { field_manager: "resourcequota-admission".into(), ..WriteOptions::default() };
    let target = Target {
        user: &user,
        kind,
        namespace,
        name,
        subresource: "status",
        options: &options,
        applied: false,
    };
    api.change(&target, change).await
}
