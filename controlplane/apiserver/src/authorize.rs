//! Authorization of requests: asks the authorizers, and rejects with 403 and the reason.

use super::authz::{Authorizer, Decision, refusal};
use super::explain;
use super::nodes::{relay, tunnel};
use super::non_resource::is_open;
use super::request_info::RequestInfo;
use super::wellknown::is_public;
use coracle_client::user::User;
use coracle_proto::node_identity::API_CLIENTS;
use coracle_proto::status::ApiError;

/// Whether the user may make the request, or 403 with the reason.
pub async fn authorize(authz: &dyn Authorizer, user: &User, info: &RequestInfo) -> Result<(), ApiError> {
    let own_tunnel = tunnel::node_of(&info.path).is_some_and(|node| tunnel::may(user, node));
    let own_spans = explain::node_of(&info.path).is_some_and(|node| explain::may_deliver(user, node));
    let peer = relay::node_of(&info.path).is_some() && relay::may(user);
    if is_public(&info.path) || is_open(&info.path) || own_tunnel || own_spans || peer {
        return Ok(());
    }
    if user.in_group(API_CLIENTS) {
        // Presented to whoever answers for a node: nothing here is for it, whatever the policy says.
        let why = refusal(user, info, "it is the identity of API servers towards nodes");
        return Err(ApiError::new(403, "Forbidden", format!("forbidden: {why}")));
    }
    let why = match authz.authorize(user, info).await {
        Decision::Allow => return Ok(()),
        Decision::Deny(why) | Decision::NoOpinion(why) => why,
        // What failed is in the log.
        Decision::Failed(_) => String::new(),
    };
    let why = refusal(user, info, &why);
    if info.is_resource {
        return Err(ApiError::forbidden(&info.group, &info.resource, &info.name, why));
    }
    Err(ApiError::new(403, "Forbidden", format!("forbidden: {why}")))
}
