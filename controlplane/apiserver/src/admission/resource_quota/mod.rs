//! ResourceQuota: limits the resources of a namespace. The usage that a request adds is charged to the quotas' status
//! by compare-and-swap before the object is stored, so two servers on one store cannot exceed a quota.

// How a request changes quota usage: pure.
pub mod check;
// Charges, and those whose object is not stored yet.
pub mod charges;

pub use charges::PendingCharges;

use super::config::{Configuration, ConfigurationError};
use super::{Attributes, Operation, Phase, Plugin, PluginApi, Reservation};
use async_trait::async_trait;
use charges::Charge;
use check::{Limited, Request};
use coracle_kinds::registry::usage;
use coracle_proto::status::ApiError;
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
    quota_charges: Arc<PendingCharges>,
    limited: Arc<Vec<Limited>>,
}

impl ResourceQuota {
    /// The plugin with its settings.
    pub fn new(
        quota_charges: Arc<PendingCharges>,
        configuration: &Configuration,
    ) -> Result<Self, ConfigurationError> {
        let settings: Settings = configuration.of("ResourceQuota")?;
        Ok(Self { quota_charges, limited: Arc::new(settings.limited_resources) })
    }
}

#[async_trait]
impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && at.writes() && !at.namespace.is_empty() && at.kind.stored
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        if !handles(at, object) {
            return Ok(());
        }
        if at.cached("", "resourcequotas", Some(at.namespace)).is_empty() && self.limited.is_empty() {
            return Ok(());
        }
        let kind = (at.kind.stored_group().to_owned(), at.kind.plural.clone());
        let named = (kind.0.as_str(), kind.1.as_str());
        let request = Request {
            added: usage::usage(named, object),
            had: at.old.map(|old| usage::usage(named, old)),
            object: object.clone(),
            old: at.old.cloned(),
            kind,
            dry_run: at.dry_run,
        };
        let place = self.quota_charges.namespace(at.namespace);
        // While the controller counts, nothing is added; while something is added, it does not count.
        let in_flight = place.in_flight.clone().read_owned().await;
        let charges = Box::pin(place.charge(at.api, at.namespace, request, self.limited.clone())).await;
        let charges = charges.map_err(|refusal| refusal.into_error(at))?;
        if !charges.is_empty() {
            at.reservations.push(Box::new(ChargedObject {
                charges,
                namespace: at.namespace.to_owned(),
                _in_flight: in_flight,
            }));
        }
        Ok(())
    }
}

/// What was charged for one object.
struct ChargedObject {
    charges: Vec<Charge>,
    namespace: String,
    _in_flight: OwnedRwLockReadGuard<()>,
}

#[async_trait]
impl Reservation for ChargedObject {
    async fn finish(self: Box<Self>, api: &dyn PluginApi, stored: bool) {
        if !stored {
            charges::release(api, &self.namespace, &self.charges).await;
        }
    }
}

/// Whether a request can change what is used.
fn handles(at: &Attributes<'_>, object: &Value) -> bool {
    let (new, update) = (at.is_new(), at.operation == Operation::Update);
    if at.namespace.is_empty() || !at.kind.stored || at.kind.plural == "events" {
        return false;
    }
    match (at.kind.group.as_str(), at.kind.plural.as_str(), at.subresource) {
        ("", "pods", "resize") => update,
        ("", "pods", "") => {
            let changed = |old: &Value| usage::terminating(old) != usage::terminating(object);
            new || (update && at.old.is_some_and(changed))
        }
        ("", "services" | "persistentvolumeclaims", "") => new || update,
        (_, _, "") => new,
        _ => false,
    }
}
