//! Status of allocated devices: who changes `status.devices` of a claim needs the permission to act for the drivers of the devices,
//! on the claim's own node or on any. Always on; upstream checks the same while it validates claims.

use super::{Attributes, Operation, Phase, Plugin};
use crate::authz::{Authorizer, Decision};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::user::User;
use coracle_fields::resource::v1::{AllocatedDeviceStatus, ResourceClaim, ResourceClaimStatus};
use coracle_fields::{Schema as _, View};
use coracle_proto::status::{ApiError, FieldError};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Its name in the chain; it cannot be turned off.
pub const NAME: &str = "DeviceStatusAuthorization";
const GROUP: &str = "resource.k8s.io";
const CLAIMS: &str = "resourceclaims";
/// The node of the pod that a token is bound to.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// Of permissions for claims that are allocated on the node of the service account, and for all others. Plugins do not know
/// whether the request is an update or a patch: the permission for either is enough.
const ASSOCIATED: [&str; 2] = ["associated-node:update", "associated-node:patch"];
const ARBITRARY: [&str; 2] = ["arbitrary-node:update", "arbitrary-node:patch"];

/// The plugin.
pub struct DeviceStatusAuthorization(pub Arc<dyn Authorizer>);

/// Drivers whose devices have another status than before.
fn changed_drivers(new: &Value, old: &Value) -> BTreeSet<String> {
    let (new, old) = (by_device(new), by_device(old));
    let changed = new.iter().filter(|(key, now)| old.get(*key).is_none_or(|was| !are_same(was, now)));
    let removed = old.iter().filter(|(key, _)| !new.contains_key(*key));
    changed.chain(removed).map(|((driver, ..), _)| (*driver).to_owned()).collect()
}

type Status<'a> = View<'a, AllocatedDeviceStatus>;

/// By driver, pool, device and share. Of a device that is listed several times all are kept, in their order: which of them counts
/// is up to the reader.
type Devices<'a> = BTreeMap<(&'a str, &'a str, &'a str, &'a str), Vec<Status<'a>>>;

fn by_device(claim: &Value) -> Devices<'_> {
    let mut devices = Devices::new();
    for one in ResourceClaim::of(claim).status().devices().items() {
        let key = (one.driver().text(), one.pool().text(), one.device().text(), one.share_id().text());
        devices.entry(key).or_default().push(one);
    }
    devices
}

fn are_same(was: &[Status<'_>], now: &[Status<'_>]) -> bool {
    was.len() == now.len() && was.iter().zip(now).all(|(was, now)| was.same_as(*now))
}

/// The only node that a claim can be used on.
fn node_of(status: View<'_, ResourceClaimStatus>) -> Option<&str> {
    let terms = status.allocation().node_selector().node_selector_terms();
    let term = terms.nth(0);
    let fields = term.match_fields();
    let field = fields.nth(0);
    let is_one_node = terms.len() == 1
        && term.match_expressions().is_empty()
        && fields.len() == 1
        && field.key() == "metadata.name"
        && field.operator() == "In"
        && field.values().len() == 1;
    field.values().nth(0).get().filter(|node| is_one_node && !node.is_empty())
}

/// Whether a user is a service account whose pod runs on a node.
fn is_on(user: &User, node: &str) -> bool {
    let nodes = user.extra.get(NODE_NAME).map(Vec::as_slice).unwrap_or_default();
    user.name.starts_with("system:serviceaccount:") && matches!(nodes, [own] if own == node)
}

impl DeviceStatusAuthorization {
    async fn may(&self, at: &Attributes<'_>, verbs: &[&str], driver: &str) -> bool {
        for verb in verbs {
            let request = RequestInfo {
                verb: Verb::from(*verb),
                is_resource: true,
                group: GROUP.into(),
                version: at.kind.version.clone(),
                namespace: at.namespace.into(),
                resource: CLAIMS.into(),
                subresource: "driver".into(),
                name: driver.to_owned(),
                ..RequestInfo::default()
            };
            if self.0.authorize(at.user, &request).await == Decision::Allow {
                return true;
            }
        }
        false
    }
}

#[async_trait]
impl Plugin for DeviceStatusAuthorization {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate
            && at.kind.group == GROUP
            && at.kind.plural == CLAIMS
            && at.subresource == "status"
            && at.operation == Operation::Update
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        let Some(old) = at.old.filter(|_| self.handles(at, Phase::Validate)) else { return Ok(()) };
        let is_near = {
            let status = ResourceClaim::of(object).status();
            // Deallocation removes the status of all devices. Who keeps or adds some is asked for the permission.
            if !status.allocation().is_set() && status.devices().is_empty() {
                return Ok(());
            }
            node_of(status).is_some_and(|node| is_on(at.user, node))
        };
        let verbs: Vec<&str> =
            if is_near { ASSOCIATED.into_iter().chain(ARBITRARY).collect() } else { ARBITRARY.to_vec() };
        let mut errors = Vec::new();
        for driver in changed_drivers(object, old) {
            if !self.may(at, &verbs, &driver).await {
                let why = format!(
                    "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: User {:?} has none of them for driver {driver:?} in the namespace {:?}",
                    verbs.join(" "),
                    at.user.name,
                    at.namespace
                );
                errors.push(FieldError::forbidden("status.devices", &why));
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(GROUP, &at.kind.kind, at.name, errors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn drivers_of_new_changed_and_removed_devices_are_asked_for() {
        let claim = |devices: Value| json!({"status": {"devices": devices}});
        let device = |driver: &str, name: &str, data: i32| json!({"driver": driver, "pool": "p", "device": name, "data": data});
        let old = claim(json!([device("a", "1", 0), device("b", "1", 0), device("c", "1", 0)]));
        for (new, want) in [
            (json!([device("c", "1", 0), device("b", "1", 0), device("a", "1", 0)]), vec![]),
            (json!([device("a", "1", 1), device("b", "1", 0), device("c", "1", 0)]), vec!["a"]),
            (json!([device("a", "1", 0), device("c", "1", 0), device("d", "1", 0)]), vec!["b", "d"]),
            (json!([device("a", "1", 0), device("b", "2", 0), device("c", "1", 0)]), vec!["b"]),
            (
                json!([device("b", "1", 1), device("a", "1", 0), device("b", "1", 0), device("c", "1", 0)]),
                vec!["b"],
            ),
        ] {
            let found = changed_drivers(&claim(new.clone()), &old);
            assert_eq!(Vec::from_iter(found), want, "{new}");
        }
    }

    #[test]
    fn a_claim_of_one_node_belongs_to_it() {
        let field = |values: Value| json!({"key": "metadata.name", "operator": "In", "values": values});
        for (terms, want) in [
            (json!([{"matchFields": [field(json!(["n1"]))]}]), Some("n1")),
            (json!([{"matchFields": [field(json!(["n1", "n2"]))]}]), None),
            (json!([{"matchFields": [field(json!(["n1"]))]}, {}]), None),
            (
                json!([{"matchFields": [field(json!(["n1"]))], "matchExpressions": [{"key": "a", "operator": "Exists"}]}]),
                None,
            ),
            (json!([]), None),
        ] {
            let claim = json!({"status": {"allocation": {"nodeSelector": {"nodeSelectorTerms": terms}}}});
            assert_eq!(node_of(ResourceClaim::of(&claim).status()), want, "{claim}");
        }
        let mut user = User::service_account("kube-system", "driver");
        assert!(!is_on(&user, "n1"));
        user.extra.insert(NODE_NAME.into(), vec!["n1".into()]);
        assert!(is_on(&user, "n1") && !is_on(&user, "n2"));
        user.name = "somebody".into();
        assert!(!is_on(&user, "n1"));
    }
}
