//! FlowSchemas: classify requests into flows and priority levels.

use super::metrics::Labels;
use crate::request_info::RequestInfo;
use coracle_client::user::User;
use coracle_fields::flowcontrol::v1::{PriorityLevelConfigurationSpec, Subject};
use coracle_fields::{Int32, Schema as _, View};
use serde::Deserialize;
use serde_json::Value;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FlowSchemaWire {
    spec: SchemaSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SchemaSpec {
    priority_level_configuration: Named,
    matching_precedence: i64,
    distinguisher_method: Option<Kind>,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    subjects: Vec<Value>,
    resource_rules: Vec<ResourceRule>,
    non_resource_rules: Vec<PathRule>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    cluster_scope: bool,
    namespaces: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PathRule {
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    paths: Vec<String>,
}

/// A schema, ready to match.
#[derive(Debug, Clone)]
pub(super) struct FlowSchema {
    pub(super) name: String,
    pub(super) uid: String,
    /// Its name and that of its level.
    pub(super) labels: Arc<Labels>,
    pub(super) precedence: i64,
    by: String,
    rules: Vec<Rule>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

fn is_subject(subject: View<'_, Subject>, user: &User) -> bool {
    let is = |named: &str, wanted: &str| named == "*" || named == wanted;
    match subject.kind().text() {
        "User" => is(subject.user().name().text(), &user.name),
        "Group" => {
            let name = subject.group().name().text();
            name == "*" || user.in_group(name)
        }
        "ServiceAccount" => {
            let account = subject.service_account();
            let who = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
            who.is_some_and(|(namespace, name)| {
                account.namespace().get() == Some(namespace) && is(account.name().text(), name)
            })
        }
        _ => false,
    }
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let resource = match info.subresource.as_str() {
            "" => info.resource.clone(),
            sub => format!("{}/{sub}", info.resource),
        };
        let place = if info.namespace.is_empty() {
            self.cluster_scope
        } else {
            has(&self.namespaces, &info.namespace)
        };
        has(&self.verbs, info.verb.as_str())
            && has(&self.api_groups, &info.group)
            && has(&self.resources, &resource)
            && place
    }
}

impl PathRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let path = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => info.path.starts_with(prefix),
            None => *pattern == info.path,
        };
        has(&self.verbs, info.verb.as_str()) && self.paths.iter().any(path)
    }
}

impl FlowSchema {
    pub(super) fn new(name: &str, uid: &str, wire: FlowSchemaWire) -> Self {
        let spec = wire.spec;
        Self {
            name: name.into(),
            uid: uid.into(),
            labels: Arc::new(Labels { schema: name.into(), level: spec.priority_level_configuration.name }),
            precedence: if spec.matching_precedence == 0 { 1000 } else { spec.matching_precedence },
            by: spec.distinguisher_method.unwrap_or_default().kind,
            rules: spec.rules,
        }
    }

    /// Whether a request is one of its own.
    pub(super) fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        self.rules.iter().any(|rule| {
            let asked = if info.is_resource {
                rule.resource_rules.iter().any(|r| r.matches(info))
            } else {
                rule.non_resource_rules.iter().any(|r| r.matches(info))
            };
            asked && rule.subjects.iter().any(|subject| is_subject(Subject::of(subject), user))
        })
    }

    /// The flow of a request: all of one user, of one namespace, or all of the schema.
    pub(super) fn flow(&self, user: &User, info: &RequestInfo) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.name.hash(&mut hasher);
        match self.by.as_str() {
            "ByUser" => user.name.hash(&mut hasher),
            "ByNamespace" => info.namespace.hash(&mut hasher),
            _ => {}
        }
        hasher.finish()
    }
}

/// A priority level as its object has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct PriorityLevelWire {
    spec: Value,
}

impl PriorityLevelWire {
    fn spec(&self) -> View<'_, PriorityLevelConfigurationSpec> {
        PriorityLevelConfigurationSpec::of(&self.spec)
    }

    pub(super) fn exempt(&self) -> bool {
        self.spec().type_() == "Exempt"
    }

    pub(super) fn shares(&self) -> i64 {
        let (shares, usual) = match self.exempt() {
            true => (self.spec().exempt().nominal_concurrency_shares(), 0),
            false => (self.spec().limited().nominal_concurrency_shares(), 30),
        };
        shares.or(usual).max(0)
    }

    pub(super) fn lendable_percent(&self) -> usize {
        let percent = match self.exempt() {
            true => self.spec().exempt().lendable_percent(),
            false => self.spec().limited().lendable_percent(),
        };
        number(percent).unwrap_or(0).min(100)
    }

    pub(super) fn borrowing_percent(&self) -> Option<usize> {
        if self.exempt() { None } else { number(self.spec().limited().borrowing_limit_percent()) }
    }

    /// Queues, hand size and the longest queue; no queues: whoever finds no seat is refused.
    pub(super) fn queues(&self) -> (usize, usize, usize) {
        let response = self.spec().limited().limit_response();
        if self.exempt() || response.type_() != "Queue" {
            return (0, 1, 0);
        }
        let queuing = response.queuing();
        (
            number(queuing.queues()).unwrap_or(64).max(1),
            number(queuing.hand_size()).unwrap_or(8),
            number(queuing.queue_length_limit()).unwrap_or(50),
        )
    }
}

fn number(place: View<'_, Int32>) -> Option<usize> {
    place.int().and_then(|number| usize::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_match_subjects_and_requests() {
        let wire = json!({"spec": {"priorityLevelConfiguration": {"name": "node-high"}, "matchingPrecedence": 400,
            "distinguisherMethod": {"type": "ByUser"}, "rules": [{
                "subjects": [{"kind": "Group", "group": {"name": "system:nodes"}},
                    {"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"],
                    "clusterScope": true}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}]}]}});
        let schema = FlowSchema::new("nodes", "u", serde_json::from_value(wire).unwrap());
        let node = User::new("system:node:a", ["system:nodes".to_owned()]);
        let other = User::new("system:node:b", ["system:nodes".to_owned()]);
        let request = |resource: &str, sub: &str| RequestInfo {
            is_resource: true,
            verb: "patch".into(),
            resource: resource.into(),
            subresource: sub.into(),
            ..RequestInfo::default()
        };
        assert!(schema.matches(&node, &request("nodes", "status")));
        assert!(!schema.matches(&node, &request("pods", "status")));
        assert!(schema.matches(&User::service_account("kube-system", "x"), &request("nodes", "")));
        assert!(!schema.matches(&User::service_account("default", "x"), &request("nodes", "")));
        let path = RequestInfo { verb: "get".into(), path: "/healthz".into(), ..RequestInfo::default() };
        assert!(schema.matches(&node, &path));
        let info = request("nodes", "");
        assert_ne!(schema.flow(&node, &info), schema.flow(&other, &info));
    }
}
