//! The user of a request.

use coracle_fields::authentication::v1::UserInfo;
use coracle_fields::make;
use serde_json::Value;
use std::collections::BTreeMap;

/// An identity that an authenticator vouched for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Such as `system:node:n1`.
    pub name: String,
    /// Uid, when the authenticator has one.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Anything else, such as the pod a token is bound to.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Members may do everything, whatever the policy says.
pub const MASTERS: &str = "system:masters";
/// Every node.
pub const NODES: &str = "system:nodes";
/// Group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of anonymous users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Name of anonymous users.
pub const ANONYMOUS: &str = "system:anonymous";

impl User {
    /// A named identity in groups; `system:authenticated` is added.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        if !groups.iter().any(|g| g == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// The identity of a service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        Self::new(format!("system:serviceaccount:{namespace}:{name}"), groups)
    }

    /// The server's own loopback identity.
    pub fn server() -> Self {
        Self::new("system:apiserver", [MASTERS.to_owned()])
    }

    /// The identity of a request that carries no credentials.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// The identity as reviews and requests for certificates show it.
    pub fn info(&self) -> Value {
        let (uid, extra) = (Some(&self.uid), Some(&self.extra));
        let info = make!(part UserInfo {
            username: &self.name,
            groups: &self.groups,
            uid: uid.filter(|uid| !uid.is_empty()),
            extra: extra.filter(|extra| !extra.is_empty()),
        });
        info.into_value()
    }

    /// The node that the user is: `system:node:<name>` in `system:nodes`.
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix("system:node:").filter(|_| self.in_group(NODES))
    }

    /// Whether the user is in a group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
