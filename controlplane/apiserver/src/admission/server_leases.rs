//! Identity Leases of API servers are written by API servers only: whoever could write one would put an address behind the
//! Service `default/kubernetes`. Many roles may write Leases in `kube-system` for elections of their own, so authorization
//! alone does not prevent that. Always on; upstream keeps the same facts in etcd, beside the API.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_client::identity_lease::{IDENTITY, NAMESPACE, SERVER};
use coracle_client::user::MASTERS;
use coracle_fields::Schema as _;
use coracle_fields::coordination::v1::Lease;
use coracle_proto::status::ApiError;
use serde_json::Value;

/// Its name in the chain; it cannot be turned off.
pub const NAME: &str = "APIServerLease";

/// The plugin.
pub struct ApiServerLease;

/// Whether a Lease claims to be that of an API server.
fn claims(lease: &Value) -> bool {
    Lease::of(lease).metadata().labels().key(IDENTITY).get() == Some(SERVER)
}

#[async_trait]
impl Plugin for ApiServerLease {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && at.is("coordination.k8s.io", "leases") && at.namespace == NAMESPACE
    }

    async fn validate(&self, at: &mut Attributes<'_>, lease: &Value) -> Result<(), ApiError> {
        if !at.is("coordination.k8s.io", "leases")
            || at.namespace != NAMESPACE
            || at.operation == Operation::Connect
            || at.user.in_group(MASTERS)
        {
            return Ok(());
        }
        if claims(lease) || at.old.is_some_and(claims) {
            return Err(
                at.forbidden(format!("Leases with the label {IDENTITY}={SERVER} belong to API servers"))
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_label_makes_the_claim() {
        let labelled = |value: &str| json!({"metadata": {"name": "x", "labels": {IDENTITY: value}}});
        assert!(claims(&labelled(SERVER)));
        assert!(!claims(&labelled("kubernetes-dashboard")));
        assert!(!claims(&json!({"metadata": {"name": "apiserver-x"}})));
        assert!(!claims(&Value::Null), "a delete has no new object");
    }
}
