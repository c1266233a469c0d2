//! Authorization of requests: asks the authorizers, and rejects with 403 and the reason, or with 500 when an authorizer failed
//! and no other one decided.

use super::authz::{Authorizer, Decision, refusal};
use super::explain;
use super::nodes::{relay, tunnel};
use super::non_resource::is_open;
use super::request_info::RequestInfo;
use super::wellknown::is_public;
use coracle_client::user::User;
use coracle_proto::node_identity::API_CLIENTS;
use coracle_proto::status::ApiError;

/// Whether the user may make the request: 403 with the reason, or 500 if that could not be found out.
pub async fn authorize(authz: &dyn Authorizer, user: &User, info: &RequestInfo) -> Result<(), ApiError> {
    let own_tunnel = tunnel::node_of(&info.path).is_some_and(|node| tunnel::may(user, node));
    let own_spans = explain::node_of(&info.path).is_some_and(|node| explain::may_deliver(user, node));
    let peer = relay::node_of(&info.path).is_some() && relay::may(user)
        || explain::is_between_servers(&info.path) && explain::may_ask_unfiltered(user);
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
        // What failed is in the log: an error of a webhook may name addresses that are not the user's business.
        Decision::Failed(_) | Decision::Contradiction(_) => {
            let why = format!("Internal Server Error: {:?}: an authorizer failed", info.path);
            return Err(ApiError::new(500, "InternalError", why));
        }
    };
    let why = refusal(user, info, &why);
    if info.is_resource {
        return Err(ApiError::forbidden(&info.group, &info.resource, &info.name, why));
    }
    Err(ApiError::new(403, "Forbidden", format!("forbidden: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::{Always, Rules, Union};
    use async_trait::async_trait;

    struct Broken(Decision);

    #[async_trait]
    impl Authorizer for Broken {
        async fn authorize(&self, _: &User, _: &RequestInfo) -> Decision {
            self.0.clone()
        }

        fn rules(&self, _: &User, _: &str) -> Rules {
            Rules::default()
        }
    }

    #[tokio::test]
    async fn a_failure_is_an_internal_error_unless_another_authorizer_allows() {
        let info = RequestInfo { path: "/metrics".into(), ..RequestInfo::default() };
        let ann = User::new("ann", []);
        let asked = async |first: &Decision, next: bool| {
            let union = Union(vec![Box::new(Broken(first.clone())), Box::new(Always(next))]);
            authorize(&union, &ann, &info).await.map_err(|error| (error.code, error.reason, error.message))
        };
        let silent = Decision::Failed("https://10.0.0.1 does not answer".into());
        let failed = || {
            Err((500, "InternalError", "Internal Server Error: \"/metrics\": an authorizer failed".into()))
        };
        assert_eq!(asked(&silent, true).await, Ok(()));
        assert_eq!(asked(&silent, false).await, failed());
        let both = Decision::Contradiction("both".into());
        assert_eq!(asked(&both, true).await, failed(), "it is no reason to ask others");
    }
}
