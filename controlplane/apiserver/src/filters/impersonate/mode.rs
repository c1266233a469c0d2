//! The ways to impersonate that only hold for certain requests. Each has two verbs: `impersonate:<mode>` for the user, and
//! `impersonate-on:<mode>:<verb>` for the request that is made as the user.

use super::wanted::{node, service_account};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use coracle_client::user::User;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Where the token of a service account says on which node it is used.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// What authorizers see of the extra values of a requestor who is associated with the node.
const ASSOCIATED_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";

/// Which users a permission is about, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The node on which the pod of the requestor runs.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// Service accounts.
    ServiceAccount,
    /// All other users, with groups, uid and extra values.
    UserInfo,
}

impl Mode {
    pub(super) const ALL: [Self; 4] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo];

    /// The verb about the user, which the audit log names.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::AssociatedNode => "impersonate:associated-node",
            Self::ArbitraryNode => "impersonate:arbitrary-node",
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
        }
    }

    fn name(self) -> &'static str {
        self.verb().split_once(':').map_or("", |(_, mode)| mode)
    }

    /// Whether the mode is about this user. What it is not about is never asked for in it.
    pub(super) fn is_about(self, wanted: &User, requestor: &User) -> bool {
        let only_name = wanted.groups.is_empty() && wanted.uid.is_empty() && wanted.extra.is_empty();
        match self {
            Self::AssociatedNode => {
                only_name && node(&wanted.name).is_some_and(|node| is_on(requestor, node))
            }
            Self::ArbitraryNode => only_name && node(&wanted.name).is_some(),
            Self::ServiceAccount => only_name && service_account(&wanted.name).is_some(),
            Self::UserInfo => node(&wanted.name).is_none() && service_account(&wanted.name).is_none(),
        }
    }

    /// The request as which the requestor must be authorized to make it as somebody else.
    pub(super) fn on(self, request: &RequestInfo) -> RequestInfo {
        let verb = format!("impersonate-on:{}:{}", self.name(), request.verb);
        RequestInfo { verb: Verb::from(verb.as_str()), ..request.clone() }
    }

    /// The requestor as authorizers see it.
    pub(super) fn seen(self, requestor: &User) -> Cow<'_, User> {
        if self != Self::AssociatedNode {
            return Cow::Borrowed(requestor);
        }
        // Permissions are for the account wherever its pods run; that it is on this node is known.
        let keys: Vec<String> = requestor.extra.keys().cloned().collect();
        let extra = BTreeMap::from([(ASSOCIATED_KEYS.to_owned(), keys)]);
        Cow::Owned(User { extra, ..requestor.clone() })
    }
}

/// Whether the requestor is a service account whose token says that it is used on this node.
fn is_on(requestor: &User, node: &str) -> bool {
    let nodes = requestor.extra.get(NODE_NAME).map(Vec::as_slice);
    service_account(&requestor.name).is_some() && nodes.is_some_and(|nodes| nodes == [node])
}
