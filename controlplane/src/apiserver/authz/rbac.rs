//! RBAC: roles grant, bindings say to whom. Parsed roles and bindings are kept by revision, so that a request costs a walk
//! over the bindings and no parsing.

use super::{Authorizer, Decision, Rules};
use crate::apiserver::api::Api;
use crate::apiserver::request_info::RequestInfo;
use crate::apiserver::user::User;
use crate::object::Object;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;

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
        if !has(&self.verbs, &request.verb) {
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
fn covers(granted: &str, resource: &str, subresource: &str) -> bool {
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

/// Whom a binding names.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

impl Subject {
    fn is(&self, user: &User, namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == user.name,
            "Group" => user.in_group(&self.name),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
                user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
                    == Some((namespace, &self.name))
            }
            _ => false,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RoleRef {
    kind: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Binding {
    subjects: Vec<Subject>,
    role_ref: RoleRef,
}

/// Parsed objects by uid, each at the revision it was parsed at.
type Parsed<T> = RwLock<HashMap<String, (u64, Arc<T>)>>;

fn parsed<T: serde::de::DeserializeOwned + Default>(memo: &Parsed<T>, object: &Object) -> Arc<T> {
    if let Some((revision, value)) = memo.read().get(&object.meta.uid)
        && *revision == object.revision
    {
        return value.clone();
    }
    let value: Arc<T> = Arc::new(object.typed().unwrap_or_default());
    let mut memo = memo.write();
    if memo.len() > 100_000 {
        memo.clear();
    }
    memo.insert(object.meta.uid.clone(), (object.revision, value.clone()));
    value
}

/// The authorizer.
pub struct Rbac {
    api: Arc<Api>,
    roles: Parsed<Role>,
    bindings: Parsed<Binding>,
}

impl Rbac {
    /// On the caches of a server.
    pub fn new(api: Arc<Api>) -> Self {
        Self { api, roles: Parsed::default(), bindings: Parsed::default() }
    }

    fn list(&self, plural: &str, namespace: Option<&str>) -> Vec<Arc<Object>> {
        let kind = self.api.registry.resource(GROUP, "v1", plural);
        kind.and_then(|kind| self.api.cache(&kind).ok())
            .map(|cache| cache.list(namespace))
            .unwrap_or_default()
    }

    fn role(&self, reference: &RoleRef, namespace: &str) -> Option<Arc<Role>> {
        let (plural, namespace) = match reference.kind.as_str() {
            "ClusterRole" => ("clusterroles", ""),
            _ => ("roles", namespace),
        };
        let kind = self.api.registry.resource(GROUP, "v1", plural)?;
        let object = self.api.cache(&kind).ok()?.get(namespace, &reference.name)?;
        Some(parsed(&self.roles, &object))
    }

    /// Calls `visit` with every rule that holds for the user in a namespace (empty: in the cluster) until it says stop.
    pub fn visit(&self, user: &User, namespace: &str, mut visit: impl FnMut(&Rule) -> bool) {
        let mut bound = |plural: &str, scope: Option<&str>, place: &str| -> bool {
            for object in self.list(plural, scope) {
                let binding = parsed(&self.bindings, &object);
                if binding.subjects.iter().any(|subject| subject.is(user, place))
                    && let Some(role) = self.role(&binding.role_ref, place)
                    && role.rules.iter().any(&mut visit)
                {
                    return true;
                }
            }
            false
        };
        if bound("clusterrolebindings", None, "") || namespace.is_empty() {
            return;
        }
        bound("rolebindings", Some(namespace), namespace);
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, user: &User, request: &RequestInfo) -> Decision {
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

    #[test]
    fn accounts_are_subjects_of_their_namespace() {
        let subject = Subject { kind: "ServiceAccount".into(), name: "a".into(), namespace: String::new() };
        assert!(subject.is(&User::service_account("x", "a"), "x"));
        assert!(!subject.is(&User::service_account("y", "a"), "x"));
    }
}
