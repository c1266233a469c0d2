//! Admin access to devices that others use: only claims and templates in namespaces that are labelled for it may ask for it, and
//! only claims there may get it. Always on; upstream checks the same while it validates claims.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::resource::v1::{ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate};
use coracle_fields::{Schema as _, View};
use coracle_proto::status::{ApiError, FieldError};
use serde_json::Value;

/// Its name in the chain; it cannot be turned off.
pub const NAME: &str = "DeviceAdminAccess";
/// The label of namespaces whose claims may have admin access.
const LABEL: &str = "resource.kubernetes.io/admin-access";
const GROUP: &str = "resource.k8s.io";
const CLAIMS: &str = "resourceclaims";
const TEMPLATES: &str = "resourceclaimtemplates";

/// The plugin.
pub struct DeviceAdminAccess;

/// The first request with admin access. Alternatives of a request cannot have it.
fn requested(spec: View<'_, ResourceClaimSpec>, path: &str) -> Option<String> {
    let at = spec.devices().requests().items().position(|one| one.exactly().admin_access().flag())?;
    Some(format!("{path}.devices.requests[{at}].exactly.adminAccess"))
}

/// The first allocated device of a claim with admin access.
fn granted(claim: &Value) -> Option<String> {
    let allocation = ResourceClaim::of(claim).status().allocation();
    let at = allocation.devices().results().items().position(|one| one.admin_access().flag())?;
    Some(format!("status.allocation.devices.results[{at}].adminAccess"))
}

impl DeviceAdminAccess {
    /// The field that asks for admin access in a request that is allowed only in some namespaces. Specs change only
    /// before anybody has seen them, and an allocation that has it never does.
    fn field(at: &Attributes<'_>, object: &Value) -> Option<String> {
        match (at.kind.plural.as_str(), at.subresource, at.operation) {
            (CLAIMS, "", _) if at.is_new() => requested(ResourceClaim::of(object).spec(), "spec"),
            (TEMPLATES, "", _) if at.is_new() => {
                requested(ResourceClaimTemplate::of(object).spec().spec(), "spec.spec")
            }
            (CLAIMS, "status", Operation::Update) => {
                let before = at.old.and_then(granted);
                granted(object).filter(|_| before.is_none())
            }
            _ => None,
        }
    }
}

#[async_trait]
impl Plugin for DeviceAdminAccess {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate
            && at.kind.group == GROUP
            && [CLAIMS, TEMPLATES].contains(&at.kind.plural.as_str())
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        if !self.handles(at, Phase::Validate) {
            return Ok(());
        }
        let Some(field) = Self::field(at, object) else { return Ok(()) };
        let namespace = at.find("", "namespaces", "", at.namespace).await;
        if namespace.is_some_and(|found| found.meta.labels.get(LABEL).is_some_and(|value| value == "true")) {
            return Ok(());
        }
        let why =
            format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
        let name = if at.name.is_empty() { at.called.as_str() } else { at.name };
        Err(ApiError::invalid(GROUP, &at.kind.kind, name, vec![FieldError::forbidden(field, &why)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_field_that_asks_is_named() {
        let spec = |requests: Value| json!({"spec": {"devices": {"requests": requests}}});
        let asks = |claim: &Value| requested(ResourceClaim::of(claim).spec(), "spec");
        let admin = json!({"name": "b", "exactly": {"adminAccess": true}});
        let plain = json!({"name": "a", "exactly": {"adminAccess": false}});
        let first = json!({"name": "c", "firstAvailable": [{"name": "d"}]});
        assert_eq!(asks(&spec(json!([plain, first]))), None);
        assert_eq!(
            asks(&spec(json!([plain, first, admin]))).as_deref(),
            Some("spec.devices.requests[2].exactly.adminAccess")
        );
        let results = json!([{"device": "x"}, {"device": "y", "adminAccess": true}]);
        let claim = json!({"status": {"allocation": {"devices": {"results": results}}}});
        assert_eq!(granted(&claim).as_deref(), Some("status.allocation.devices.results[1].adminAccess"));
        assert_eq!(granted(&json!({})), None);
    }
}
