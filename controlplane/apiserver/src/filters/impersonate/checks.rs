//! The permissions that impersonation needs: one for each part of the identity.

use super::mode::Mode;
use super::wanted::{node, service_account};
use crate::authz::{Authorizer, Decision, refusal};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use coracle_client::user::{MASTERS, NODES, User};
use coracle_proto::names::dns1123_subdomain;
use coracle_proto::status::ApiError;

const AUTHENTICATION: &str = "authentication.k8s.io";
/// From so many groups or extra values on, one permission for all of them is asked for first.
const MANY: usize = 4;

/// Asks for the permissions of a requestor, in a mode or, without one, with the verb `impersonate`.
pub(super) struct Checks<'a> {
    pub(super) authz: &'a dyn Authorizer,
    pub(super) requestor: &'a User,
    pub(super) mode: Option<Mode>,
}

impl Checks<'_> {
    /// Whether the requestor may be this user; an error says which permission is missing.
    pub(super) async fn identity(&self, wanted: &User) -> Result<(), ApiError> {
        self.name(&wanted.name).await?;
        if !wanted.uid.is_empty() {
            self.ask(&self.about(AUTHENTICATION, "uids", &wanted.uid)).await?;
        }
        self.groups(&wanted.groups).await?;
        self.extra(wanted).await
    }

    /// Whether the requestor may make a request as users of the mode.
    pub(super) async fn request(&self, mode: Mode, request: &RequestInfo) -> Result<(), ApiError> {
        self.ask(&mode.on(request)).await
    }

    async fn name(&self, name: &str) -> Result<(), ApiError> {
        let group = self.group();
        if let (Some(mode), Some(node)) = (self.mode, node(name)) {
            // A permission for the node of each pod is one for all nodes.
            let node = if mode == Mode::AssociatedNode { "*" } else { node };
            return self.ask(&self.about(group, "nodes", node)).await;
        }
        let request = match service_account(name) {
            Some((namespace, account)) => {
                let about = self.about(group, "serviceaccounts", account);
                RequestInfo { namespace: namespace.into(), ..about }
            }
            None => self.about(group, "users", name),
        };
        self.ask(&request).await
    }

    async fn groups(&self, groups: &[String]) -> Result<(), ApiError> {
        let about = |name: &str| self.about(self.group(), "groups", name);
        if self.mode.is_some() {
            if groups.iter().any(String::is_empty) {
                return Err(self.refused(&about(""), "impersonating the empty string group is not allowed"));
            }
            // Nor those by which servers know each other, which have rights that no policy gives.
            if let Some(group) =
                groups.iter().find(|group| *group == MASTERS || group.starts_with("coracle:"))
            {
                let why = format!("impersonating the {group} group is not allowed");
                return Err(self.refused(&about(group), &why));
            }
            if groups.len() >= MANY && self.ask(&about("*")).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.ask(&about(group)).await?;
        }
        Ok(())
    }

    async fn extra(&self, wanted: &User) -> Result<(), ApiError> {
        let about = |key: &str, value: &str| {
            let about = self.about(AUTHENTICATION, "userextras", value);
            RequestInfo { subresource: key.into(), ..about }
        };
        if self.mode.is_some() {
            if let Some(why) = unfit_extra(wanted) {
                return Err(self.refused(&about("", ""), &why));
            }
            let values: usize = wanted.extra.values().map(Vec::len).sum();
            if values >= MANY && self.ask(&about("*", "*")).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in &wanted.extra {
            for value in values {
                self.ask(&about(key, value)).await?;
            }
        }
        Ok(())
    }

    /// The group of users, groups and accounts.
    fn group(&self) -> &'static str {
        if self.mode.is_some() { AUTHENTICATION } else { "" }
    }

    fn about(&self, group: &str, resource: &str, name: &str) -> RequestInfo {
        RequestInfo {
            is_resource: true,
            verb: self.mode.map_or(Verb::Impersonate, |mode| Verb::from(mode.verb())),
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            name: name.into(),
            ..RequestInfo::default()
        }
    }

    async fn ask(&self, request: &RequestInfo) -> Result<(), ApiError> {
        let why = match self.authz.authorize(self.requestor, request).await {
            Decision::Allow => return Ok(()),
            Decision::Deny(why) | Decision::NoOpinion(why) => why,
            Decision::Failed(_) | Decision::Contradiction(_) => String::new(),
        };
        Err(self.refused(request, &why))
    }

    fn refused(&self, request: &RequestInfo, why: &str) -> ApiError {
        let why = refusal(self.requestor, request, why);
        if request.is_resource {
            return ApiError::forbidden(&request.group, &request.resource, &request.name, why);
        }
        ApiError::new(403, "Forbidden", format!("forbidden: {why}"))
    }
}

/// The groups that follow from the name of a user for whom none were asked for.
pub(super) fn implied_groups(wanted: &User, mode: Option<Mode>) -> Vec<String> {
    if mode.is_some() && node(&wanted.name).is_some() {
        return vec![NODES.into()];
    }
    match service_account(&wanted.name) {
        Some((namespace, _)) if wanted.groups.is_empty() => {
            vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
        }
        _ => wanted.groups.clone(),
    }
}

/// Why extra values are none that a mode allows, whoever asks.
fn unfit_extra(wanted: &User) -> Option<String> {
    wanted.extra.iter().find_map(|(key, values)| {
        if key.is_empty() {
            Some("impersonating the empty string key in extra is not allowed".into())
        } else if !is_domain_prefixed(key) {
            let form = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            Some(format!("impersonating an invalid key in extra is not allowed: {key:?}: {form}"))
        } else if key.chars().any(char::is_uppercase) {
            Some(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"))
        } else if values.is_empty() {
            Some("impersonating empty values in extra is not allowed".into())
        } else if values.iter().any(String::is_empty) {
            Some("impersonating the empty string value in extra is not allowed".into())
        } else {
            None
        }
    })
}

/// Whether a key is a domain and a path: `example.com/scopes`.
fn is_domain_prefixed(key: &str) -> bool {
    let of_path = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    key.split_once('/').is_some_and(|(domain, path)| {
        dns1123_subdomain(domain).is_empty() && !path.is_empty() && path.chars().all(of_path)
    })
}
