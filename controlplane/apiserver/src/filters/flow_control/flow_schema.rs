//! FlowSchemas: classify requests into flows and priority levels.

use crate::request_info::RequestInfo;
use coracle_client::user::User;
use serde::Deserialize;
use serde_json::Value;
use std::hash::{Hash, Hasher};

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
    pub(super) level: String,
    pub(super) precedence: i64,
    by: String,
    rules: Vec<Rule>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

fn is_subject(subject: &Value, user: &User) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match subject["kind"].as_str() {
        Some("User") => has(&[text(&subject["user"]["name"])], &user.name),
        Some("Group") => {
            let name = text(&subject["group"]["name"]);
            name == "*" || user.in_group(&name)
        }
        Some("ServiceAccount") => {
            let account = &subject["serviceAccount"];
            let who = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
            who.is_some_and(|(namespace, name)| {
                account["namespace"] == namespace && has(&[text(&account["name"])], name)
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
            level: spec.priority_level_configuration.name,
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
            asked && rule.subjects.iter().any(|subject| is_subject(subject, user))
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
    pub(super) fn exempt(&self) -> bool {
        self.spec["type"] == "Exempt"
    }

    fn limits(&self) -> &Value {
        if self.exempt() { &self.spec["exempt"] } else { &self.spec["limited"] }
    }

    pub(super) fn shares(&self) -> i64 {
        let usual = if self.exempt() { 0 } else { 30 };
        self.limits()["nominalConcurrencyShares"].as_i64().unwrap_or(usual).max(0)
    }

    pub(super) fn lendable_percent(&self) -> usize {
        self.limits()["lendablePercent"].as_u64().unwrap_or(0).min(100) as usize
    }

    pub(super) fn borrowing_percent(&self) -> Option<usize> {
        self.limits()["borrowingLimitPercent"].as_u64().map(|percent| percent as usize)
    }

    /// Queues, hand size and the longest queue; no queues: whoever finds no seat is refused.
    pub(super) fn queues(&self) -> (usize, usize, usize) {
        let response = &self.limits()["limitResponse"];
        if self.exempt() || response["type"] != "Queue" {
            return (0, 1, 0);
        }
        let number = |field: &str, usual: u64| response["queuing"][field].as_u64().unwrap_or(usual) as usize;
        (number("queues", 64).max(1), number("handSize", 8), number("queueLengthLimit", 50))
    }
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
