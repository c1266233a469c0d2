//! ResourceQuota: no more than a namespace may have. What a request adds is charged to the quotas' status before it is
//! stored, by compare-and-swap, so that two servers on one store do not give the same share away twice.

// What a request does to quotas: pure.
pub mod check;
// Who is counting, and whose share is not stored yet.
pub mod ledger;

pub use ledger::Ledger;

use super::config::{Configuration, ConfigurationError};
use super::{Attributes, Claim, Operation, Plugin};
use crate::api::Api;
use async_trait::async_trait;
use check::{Limited, Request};
use coracle_kinds::registry::usage::{self, Amounts};
use coracle_proto::status::ApiError;
use ledger::Charge;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::OwnedRwLockReadGuard;

/// The plugin's settings.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Settings {
    limited_resources: Vec<Limited>,
}

/// The plugin.
pub struct ResourceQuota {
    ledger: Arc<Ledger>,
    limited: Arc<Vec<Limited>>,
}

impl ResourceQuota {
    /// The plugin with its settings.
    pub fn new(ledger: Arc<Ledger>, configuration: &Configuration) -> Result<Self, ConfigurationError> {
        let settings: Settings = configuration.of("ResourceQuota")?;
        Ok(Self { ledger, limited: Arc::new(settings.limited_resources) })
    }
}

#[async_trait]
impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        if !handles(at, object) {
            return Ok(());
        }
        if at.cached("", "resourcequotas", Some(at.namespace)).is_empty() && self.limited.is_empty() {
            return Ok(());
        }
        let kind = (at.kind.group.clone(), at.kind.plural.clone());
        let named = (kind.0.as_str(), kind.1.as_str());
        let request = Request {
            added: usage::usage(named, object),
            had: at.old.map(|old| usage::usage(named, old)),
            object: object.clone(),
            old: at.old.cloned(),
            kind,
            dry_run: at.dry_run,
        };
        let place = self.ledger.namespace(at.namespace);
        // While the controller counts, nothing is added; while something is added, it does not count.
        let flight = place.flight.clone().read_owned().await;
        let charges = Box::pin(place.charge(at.api, at.namespace, request, self.limited.clone())).await;
        let charges = charges.map_err(|refusal| refusal.into_error(at))?;
        if !charges.is_empty() {
            at.claims.push(Box::new(Share { charges, namespace: at.namespace.to_owned(), _flight: flight }));
        }
        Ok(())
    }
}

/// What was charged for one object.
struct Share {
    charges: Vec<Charge>,
    namespace: String,
    _flight: OwnedRwLockReadGuard<()>,
}

#[async_trait]
impl Claim for Share {
    async fn settle(self: Box<Self>, api: &Api, stored: bool) {
        if !stored {
            ledger::give_back(api, &self.namespace, &self.charges).await;
        }
    }
}

/// Whether a request can change what is used.
fn handles(at: &Attributes<'_>, object: &Value) -> bool {
    let (create, update) = (at.operation == Operation::Create, at.operation == Operation::Update);
    if at.namespace.is_empty() || !at.kind.stored || at.kind.plural == "events" {
        return false;
    }
    match (at.kind.group.as_str(), at.kind.plural.as_str(), at.subresource) {
        ("", "pods", "resize") => update,
        ("", "pods", "") => {
            let changed = |old: &Value| usage::terminating(old) != usage::terminating(object);
            create || (update && at.old.is_some_and(changed))
        }
        ("", "services" | "persistentvolumeclaims", "") => create || update,
        (_, _, "") => create,
        _ => false,
    }
}

/// Amounts as messages have them: `cpu=1,memory=64Mi`.
fn print(amounts: &Amounts) -> String {
    let parts: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    parts.join(",")
}
