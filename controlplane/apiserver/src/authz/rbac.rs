//! RBAC. Bindings are indexed by subject and roles are cached in parsed form, so that a request only evaluates the
//! user's own roles.

use super::bindings::{Bindings, group_key, user_key};
use super::{Authorizer, Decision, Rules};
use crate::objects::Objects;
use crate::request_info::RequestInfo;
use async_trait::async_trait;
use coracle_client::user::User;
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::Cache;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;

pub use super::bindings::RoleRef;

const GROUP: &str = "rbac.authorization.k8s.io";

/// One rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// What may be done; `*` for everything.
    pub verbs: Vec<String>,
    /// API groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// `pods`, `pods/log`, `*/scale`, `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Only these names; all when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths, possibly ending in `*`.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// Whether the rule allows the request.
    pub fn allows(&self, request: &RequestInfo) -> bool {
        if !has(&self.verbs, request.verb.as_str()) {
            return false;
        }
        if !request.is_resource {
            return self.paths.iter().any(|path| match path.strip_suffix('*') {
                Some(prefix) => request.path.starts_with(prefix),
                None => *path == request.path,
            });
        }
        has(&self.api_groups, &request.group)
            && self.resources.iter().any(|resource| covers(resource, &request.resource, &request.subresource))
            && (self.resource_names.is_empty() || self.resource_names.contains(&request.name))
    }
}

/// Whether `pods/log`, `*/log` or `*` covers a resource and subresource.
pub(super) fn covers(granted: &str, resource: &str, subresource: &str) -> bool {
    match granted.split_once('/') {
        None => granted == "*" || (granted == resource && subresource.is_empty()),
        Some(("*", sub)) => sub == subresource,
        Some((name, sub)) => name == resource && sub == subresource,
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Role {
    rules: Vec<Rule>,
}

/// Parsed roles by uid, each at the revision it was parsed at.
type Parsed = RwLock<HashMap<String, (u64, Arc<Role>)>>;

fn parsed(memo: &Parsed, object: &Object) -> Arc<Role> {
    if let Some((revision, value)) = memo.read().get(&object.meta.uid)
        && *revision == object.revision
    {
        return value.clone();
    }
    let value: Arc<Role> = Arc::new(object.typed().unwrap_or_default());
    let mut memo = memo.write();
    if memo.len() > 100_000 {
        memo.clear();
    }
    memo.insert(object.meta.uid.clone(), (object.revision, value.clone()));
    value
}

/// The rules of roles and users, for the escalation check.
pub trait RoleRules: Send + Sync {
    /// The rules of a role; `None` when there is no such role.
    fn role_rules(&self, reference: &RoleRef, namespace: &str) -> Option<Vec<Rule>>;

    /// The rules that a user holds in a namespace (empty: in the cluster).
    fn held(&self, user: &User, namespace: &str) -> Vec<Rule>;
}

/// The authorizer.
pub struct Rbac {
    objects: Arc<Objects>,
    roles: Parsed,
    everywhere: Bindings,
    somewhere: Bindings,
}

impl Rbac {
    /// On the caches of a server.
    pub fn new(objects: Arc<Objects>) -> Self {
        let (everywhere, somewhere) = (Bindings::default(), Bindings::default());
        Self { objects, roles: Parsed::default(), everywhere, somewhere }
    }

    fn cache(&self, plural: &str) -> Option<Arc<Cache>> {
        let kind = self.objects.registry.resource(GROUP, "v1", plural)?;
        self.objects.cache(&kind).ok()
    }

    fn role(&self, reference: &RoleRef, namespace: &str) -> Option<Arc<Role>> {
        let (plural, namespace) = match reference.kind.as_str() {
            "ClusterRole" => ("clusterroles", ""),
            _ => ("roles", namespace),
        };
        let object = self.cache(plural)?.get(namespace, &reference.name)?;
        Some(parsed(&self.roles, &object))
    }

    /// Calls `visit` with every rule that holds for the user in a namespace (empty: in the cluster) until it says stop.
    pub fn visit(&self, user: &User, namespace: &str, mut visit: impl FnMut(&Rule) -> bool) {
        let groups = user.groups.iter().map(|group| group_key(group));
        let subjects: Vec<String> = std::iter::once(user_key(&user.name)).chain(groups).collect();
        let kinds =
            [("clusterrolebindings", &self.everywhere, ""), ("rolebindings", &self.somewhere, namespace)];
        for (plural, bindings, place) in kinds {
            let Some(cache) = self.cache(plural) else { return };
            for given in bindings.granted_roles(&cache, &subjects, place) {
                for reference in given.values() {
                    if let Some(role) = self.role(reference, place)
                        && role.rules.iter().any(&mut visit)
                    {
                        return;
                    }
                }
            }
        }
    }
}

impl RoleRules for Rbac {
    fn role_rules(&self, reference: &RoleRef, namespace: &str) -> Option<Vec<Rule>> {
        self.role(reference, namespace).map(|role| role.rules.clone())
    }

    fn held(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let mut held = Vec::new();
        self.visit(user, namespace, |rule| {
            held.push(rule.clone());
            false
        });
        held
    }
}

#[async_trait]
impl Authorizer for Rbac {
    async fn authorize(&self, user: &User, request: &RequestInfo) -> Decision {
        let mut allowed = false;
        let namespace = if request.is_resource { request.namespace.as_str() } else { "" };
        self.visit(user, namespace, |rule| {
            allowed = rule.allows(request);
            allowed
        });
        if allowed { Decision::Allow } else { Decision::NoOpinion(String::new()) }
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let mut rules = Rules::default();
        self.visit(user, namespace, |rule| {
            if rule.paths.is_empty() {
                rules.resources.push(json!(rule));
            } else {
                rules.paths.push(json!(rule));
            }
            false
        });
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Rule {
            verbs: own(verbs),
            api_groups: own(groups),
            resources: own(resources),
            resource_names: own(names),
            ..Rule::default()
        }
    }

    fn request(verb: &str, group: &str, resource: &str, sub: &str, name: &str) -> RequestInfo {
        RequestInfo {
            is_resource: true,
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            subresource: sub.into(),
            name: name.into(),
            ..RequestInfo::default()
        }
    }

    #[test]
    fn rules_allow_what_they_name_and_no_more() {
        let cases = [
            (rule(&["get"], &[""], &["pods"], &[]), request("get", "", "pods", "", "a"), true),
            (rule(&["get"], &[""], &["pods"], &[]), request("get", "", "pods", "log", "a"), false),
            (rule(&["get"], &[""], &["pods/log"], &[]), request("get", "", "pods", "log", "a"), true),
            (rule(&["get"], &[""], &["*/log"], &[]), request("get", "", "pods", "log", "a"), true),
            (rule(&["get"], &[""], &["*"], &[]), request("get", "", "pods", "log", "a"), true),
            (rule(&["*"], &["*"], &["*"], &[]), request("delete", "apps", "deployments", "", ""), true),
            (rule(&["get"], &["apps"], &["pods"], &[]), request("get", "", "pods", "", "a"), false),
            (rule(&["get"], &[""], &["pods"], &["b"]), request("get", "", "pods", "", "a"), false),
            (rule(&["get"], &[""], &["pods"], &["a"]), request("get", "", "pods", "", "a"), true),
            (rule(&["list"], &[""], &["pods"], &[]), request("get", "", "pods", "", "a"), false),
        ];
        for (rule, request, allowed) in cases {
            assert_eq!(rule.allows(&request), allowed, "{rule:?} {request:?}");
        }
    }

    #[test]
    fn paths_may_end_in_a_star() {
        let rule = Rule {
            verbs: vec!["get".into()],
            paths: vec!["/healthz".into(), "/apis/*".into()],
            ..Rule::default()
        };
        let path = |p: &str| RequestInfo { verb: "get".into(), path: p.into(), ..RequestInfo::default() };
        assert!(rule.allows(&path("/healthz")));
        assert!(rule.allows(&path("/apis/apps")));
        assert!(!rule.allows(&path("/metrics")));
    }
}
