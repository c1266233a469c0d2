//! Which requests a webhook wants to see: rules, selectors, conditions in CEL.

use crate::apiserver::admission::{Attributes, Operation};
use crate::expressions::{self, lifted};
use coracle_proto::selector::LabelSelector;
use serde_json::{Value, json};

/// Whether a webhook wants to be asked.
#[derive(Debug, PartialEq)]
pub enum Matched {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// A condition could not be decided.
    Failed(String),
}

/// Decides for one request.
pub async fn matches(hook: &Value, at: &Attributes<'_>, object: &Value) -> Matched {
    let rules = hook["rules"].as_array().into_iter().flatten();
    let subject = Subject::of(at);
    if !rules.into_iter().any(|rule| subject.matches(rule)) {
        return Matched::No;
    }
    if !in_namespaces(&hook["namespaceSelector"], at, object).await
        || !labelled(&hook["objectSelector"], at, object)
    {
        return Matched::No;
    }
    conditions(&hook["matchConditions"], at, object)
}

/// A request in the words of rules.
pub struct Subject<'a> {
    operation: &'a str,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespaced: bool,
}

impl<'a> Subject<'a> {
    /// The request.
    pub fn of(at: &'a Attributes<'_>) -> Self {
        Self {
            operation: at.operation.as_str(),
            group: &at.kind.group,
            version: &at.kind.version,
            resource: &at.kind.plural,
            subresource: at.subresource,
            namespaced: at.kind.namespaced(),
        }
    }
}

impl Subject<'_> {
    /// Whether a rule is about it.
    pub fn matches(&self, rule: &Value) -> bool {
        let has = |field: &str, wanted: &str| {
            let list = rule[field].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).any(|item| item == "*" || item == wanted)
        };
        let scope = match rule["scope"].as_str().unwrap_or("*") {
            "Namespaced" => self.namespaced,
            "Cluster" => !self.namespaced,
            _ => true,
        };
        let mut resources = rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str);
        scope
            && has("operations", self.operation)
            && has("apiGroups", self.group)
            && has("apiVersions", self.version)
            && resources.any(|pattern| self.named(pattern))
    }

    fn named(&self, pattern: &str) -> bool {
        let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
        let same = |pattern: &str, is: &str| pattern == "*" || pattern == is;
        if pattern == "*" {
            return self.subresource.is_empty();
        }
        same(resource, self.resource) && same(subresource, self.subresource)
    }
}

fn selects(selector: &Value, labels: &Value) -> bool {
    if selector.as_object().is_none_or(serde_json::Map::is_empty) {
        return true;
    }
    let selector = LabelSelector::from_object(selector);
    selector.is_ok_and(|selector| selector.matches(|key| labels[key].as_str()))
}

/// The request's namespace has the labels; it needs none.
pub async fn in_namespaces(selector: &Value, at: &Attributes<'_>, object: &Value) -> bool {
    let empty = selector.as_object().is_none_or(serde_json::Map::is_empty);
    // A namespace is in itself; what lives in the cluster is in all of them.
    if at.kind.group.is_empty() && at.kind.plural == "namespaces" {
        let namespace = if at.operation == Operation::Delete { at.old.unwrap_or(object) } else { object };
        return selects(selector, &namespace["metadata"]["labels"]);
    }
    if empty || at.namespace.is_empty() {
        return true;
    }
    match at.find("", "namespaces", "", at.namespace).await {
        Some(namespace) => selects(selector, &namespace.value()["metadata"]["labels"]),
        None => false,
    }
}

/// The object before or after has the labels.
pub fn labelled(selector: &Value, at: &Attributes<'_>, object: &Value) -> bool {
    let has = |object: &Value| object.is_object() && selects(selector, &object["metadata"]["labels"]);
    selector.as_object().is_none_or(serde_json::Map::is_empty) || has(object) || at.old.is_some_and(has)
}

fn conditions(conditions: &Value, at: &Attributes<'_>, object: &Value) -> Matched {
    let all = conditions.as_array().map_or(&[][..], Vec::as_slice);
    if all.is_empty() {
        return Matched::Yes;
    }
    decide(all, &request(at), object, at.old.unwrap_or(&Value::Null))
}

/// The request as expressions see it.
pub fn request(at: &Attributes<'_>) -> Value {
    json!({
        "operation": at.operation.as_str(), "name": at.name, "namespace": at.namespace, "subResource": at.subresource,
        "resource": {"group": at.kind.group, "version": at.kind.version, "resource": at.kind.plural},
        "kind": {"group": at.kind.group, "version": at.kind.version, "kind": at.kind.kind},
        "userInfo": {"username": at.user.name, "groups": at.user.groups, "uid": at.user.uid, "extra": at.user.extra},
        "dryRun": at.dry_run,
    })
}

/// False beats failure beats true, as upstream has it.
fn decide(conditions: &[Value], request: &Value, object: &Value, old: &Value) -> Matched {
    let mut context = expressions::context();
    for (name, value) in [("request", request), ("object", object), ("oldObject", old)] {
        context.add_variable_from_value(name, lifted(value));
    }
    let mut failed = None;
    for condition in conditions {
        let name = condition["name"].as_str().unwrap_or_default();
        let outcome = match expressions::compile(condition["expression"].as_str().unwrap_or_default()) {
            Ok(program) => program.execute(&context).map_err(|error| expressions::explain(&error)),
            Err(why) => Err(why),
        };
        match outcome {
            Ok(cel::Value::Bool(true)) => {}
            Ok(cel::Value::Bool(false)) => return Matched::No,
            Ok(_) => failed = Some(format!("matchCondition {name:?} is no yes or no")),
            Err(why) => failed = Some(format!("matchCondition {name:?} could not be evaluated: {why}")),
        }
    }
    failed.map_or(Matched::Yes, Matched::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_what_they_want() {
        let rule = |operations: &[&str], resources: &[&str]| json!({"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": resources});
        let subject = |subresource: &'static str| Subject {
            operation: "CREATE",
            group: "",
            version: "v1",
            resource: "pods",
            subresource,
            namespaced: true,
        };
        for (rule, subresource, expected) in [
            (rule(&["CREATE"], &["pods"]), "", true),
            (rule(&["UPDATE"], &["pods"]), "", false),
            (rule(&["*"], &["*"]), "", true),
            (rule(&["*"], &["*"]), "exec", false),
            (rule(&["*"], &["pods/*"]), "exec", true),
            (rule(&["*"], &["*/*"]), "", true),
            (rule(&["*"], &["pods/exec"]), "", false),
            (rule(&["*"], &["services"]), "", false),
        ] {
            assert_eq!(subject(subresource).matches(&rule), expected, "{rule} {subresource}");
        }
        let mut cluster = rule(&["*"], &["*"]);
        cluster["scope"] = json!("Cluster");
        assert!(!subject("").matches(&cluster));
    }

    #[test]
    fn conditions_decide() {
        let of =
            |texts: &[&str]| texts.iter().map(|t| json!({"name": "c", "expression": t})).collect::<Vec<_>>();
        let (request, object) = (
            json!({"userInfo": {"username": "u"}}),
            json!({"metadata": {"name": "a"}, "spec": {"replicas": 3}}),
        );
        let decide = |texts: &[&str]| decide(&of(texts), &request, &object, &Value::Null);
        assert_eq!(decide(&["object.spec.replicas > 2", "request.userInfo.username != 'x'"]), Matched::Yes);
        assert_eq!(decide(&["object.spec.replicas > 5"]), Matched::No);
        assert_eq!(decide(&["object.spec.nothing.here", "object.metadata.name == 'b'"]), Matched::No);
        assert!(matches!(decide(&["object.spec.nothing.here == 1"]), Matched::Failed(_)));
    }
}
