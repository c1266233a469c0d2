//! Matches requests against a webhook's rules, selectors and CEL conditions.

use crate::admission::permission_checks::PermissionChecks;
use crate::admission::versioned::VersionedRequest;
use crate::admission::{Attributes, Operation};
use coracle_expressions::authorizer::add_authorizer;
use coracle_expressions::{self as expressions, Budget, CompileError, Program, to_cel};
use coracle_fields::admissionregistration::v1::{MatchCondition, MutatingWebhook, RuleWithOperations};
use coracle_fields::meta::{self, PartialObjectMetadata};
use coracle_fields::{List, Map, Schema as _, Text, View};
use coracle_kinds::registry::equivalent::Named;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::selector::LabelSelector;
use serde_json::{Value, json};
use std::sync::Arc;

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

/// The name by which a webhook wants to be asked about a request, if it does; its conditions apart.
pub async fn wanted(hook: View<'_, MutatingWebhook>, at: &Attributes<'_>, object: &Value) -> Option<Named> {
    let (rules, policy): (Vec<_>, _) = (hook.rules().items().collect(), hook.match_policy().text());
    let known = known(&rules, policy, &at.api.objects().registry, at.kind, &Subject::of(at))?;
    let selected = in_namespaces(hook.namespace_selector(), at, object).await
        && labelled(hook.object_selector(), at, object);
    selected.then_some(known)
}

/// The name by which rules know a request: its own if one does, else the first that is equivalent where `policy` says so.
pub fn known(
    rules: &[View<'_, RuleWithOperations>],
    policy: &str,
    registry: &Registry,
    kind: &Kind,
    subject: &Subject<'_>,
) -> Option<Named> {
    if rules.iter().any(|rule| subject.matches(*rule)) {
        return Some(Named::of(kind));
    }
    if rules.is_empty() || policy != "Equivalent" {
        return None;
    }
    let others = registry.equivalents(kind, subject.subresource);
    let first = |rule: &View<'_, RuleWithOperations>| {
        others.iter().find(|other| subject.called(other).matches(*rule))
    };
    rules.iter().find_map(first).cloned()
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
        Self::new(at.operation.as_str(), at.kind, at.subresource)
    }

    fn new(operation: &'a str, kind: &'a Kind, subresource: &'a str) -> Self {
        let (group, version, resource) = (&kind.group, &kind.version, &kind.plural);
        Self { operation, group, version, resource, subresource, namespaced: kind.namespaced() }
    }

    /// The same by another name.
    fn called(&self, name: &'a Named) -> Self {
        Self { group: &name.group, version: &name.version, resource: &name.plural, ..*self }
    }
}

impl Subject<'_> {
    /// Whether a rule is about it.
    pub fn matches(&self, rule: View<'_, RuleWithOperations>) -> bool {
        let has = |list: View<'_, List<Text>>, wanted: &str| {
            list.items().filter_map(|item| item.get()).any(|item| item == "*" || item == wanted)
        };
        let scope = match rule.scope().or("*") {
            "Namespaced" => self.namespaced,
            "Cluster" => !self.namespaced,
            _ => true,
        };
        let mut resources = rule.resources().items().filter_map(|pattern| pattern.get());
        scope
            && has(rule.operations(), self.operation)
            && has(rule.api_groups(), self.group)
            && has(rule.api_versions(), self.version)
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

/// Whether a selector selects everything.
fn selects_all(selector: View<'_, meta::LabelSelector>) -> bool {
    selector.as_value().as_object().is_none_or(serde_json::Map::is_empty)
}

fn selects(selector: View<'_, meta::LabelSelector>, labels: View<'_, Map<Text>>) -> bool {
    if selects_all(selector) {
        return true;
    }
    let selector = LabelSelector::from_object(&selector.as_value());
    selector.is_ok_and(|selector| selector.matches(|key| labels.key(key).get()))
}

/// The request's namespace has the labels; it needs none.
pub async fn in_namespaces(
    selector: View<'_, meta::LabelSelector>,
    at: &Attributes<'_>,
    object: &Value,
) -> bool {
    // A namespace is in itself; what lives in the cluster is in all of them.
    if at.kind.group.is_empty() && at.kind.plural == "namespaces" {
        let namespace = if at.operation == Operation::Delete { at.old.unwrap_or(object) } else { object };
        return selects(selector, PartialObjectMetadata::of(namespace).metadata().labels());
    }
    if selects_all(selector) || at.namespace.is_empty() {
        return true;
    }
    match at.find("", "namespaces", "", at.namespace).await {
        Some(namespace) => {
            selects(selector, namespace.doc().view::<PartialObjectMetadata>().metadata().labels())
        }
        None => false,
    }
}

/// The object before or after has the labels.
pub fn labelled(selector: View<'_, meta::LabelSelector>, at: &Attributes<'_>, object: &Value) -> bool {
    let has = |object: &Value| {
        let labels = PartialObjectMetadata::of(object).metadata().labels();
        object.is_object() && selects(selector, labels)
    };
    selects_all(selector) || has(object) || at.old.is_some_and(has)
}

/// Whether a webhook's conditions let it be asked.
pub async fn conditions(
    conditions: View<'_, List<MatchCondition>>,
    at: &Attributes<'_>,
    form: &VersionedRequest<'_>,
    permissions: &PermissionChecks<'_>,
) -> Matched {
    if conditions.is_empty() {
        return Matched::Yes;
    }
    let request = request(at, form.name);
    let evaluate = || decide(conditions, &request, (&form.object, &form.old), permissions);
    permissions.answered(evaluate).await
}

/// The request as expressions see it, by the name that it is known by.
pub fn request(at: &Attributes<'_>, name: &Named) -> Value {
    let kind = |name: &Named| {
        let kind = at.object_kind(name);
        json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
    };
    let resource =
        |name: &Named| json!({"group": name.group, "version": name.version, "resource": name.plural});
    let own = Named::of(at.kind);
    json!({
        "operation": at.operation.as_str(), "name": at.name, "namespace": at.namespace,
        "kind": kind(name), "resource": resource(name), "subResource": at.subresource,
        "requestKind": kind(&own), "requestResource": resource(&own), "requestSubResource": at.subresource,
        "userInfo": {"username": at.user.name, "groups": at.user.groups, "uid": at.user.uid, "extra": at.user.extra},
        "dryRun": at.dry_run,
    })
}

/// False beats failure beats true, as upstream has it.
fn decide(
    conditions: View<'_, List<MatchCondition>>,
    request: &Value,
    (object, old): (&Value, &Value),
    permissions: &PermissionChecks<'_>,
) -> Matched {
    let programs: Vec<_> =
        conditions.items().map(|condition| expressions::compiled(condition.expression().text())).collect();
    expressions::evaluate_blocking(expressions::CONDITIONS, |budget| {
        let variables = [("request", request), ("object", object), ("oldObject", old)];
        let mut context = expressions::context();
        for (name, value) in variables {
            budget.take(expressions::values_in(value) / 4);
            context.add_variable_from_value(name, to_cel(value));
        }
        add_authorizer(&mut context, &permissions.checks, permissions.resource.clone());
        all_true(conditions, &programs, &context, budget)
    })
}

fn all_true(
    conditions: View<'_, List<MatchCondition>>,
    programs: &[Result<Arc<Program>, CompileError>],
    context: &cel::Context<'_, '_>,
    budget: &mut Budget,
) -> Matched {
    let mut failed = None;
    for (condition, program) in conditions.items().zip(programs) {
        let name = condition.name().text();
        let outcome = match program {
            Ok(program) => program.evaluate(context, budget).map_err(|failure| failure.to_string()),
            Err(error) => Err(error.to_string()),
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::authz::Always;
    use coracle_client::user::User;
    use coracle_kinds::registry::custom::rows;

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
            let matches = subject(subresource).matches(RuleWithOperations::of(&rule));
            assert_eq!(matches, expected, "{rule} {subresource}");
        }
        let mut cluster = rule(&["*"], &["*"]);
        cluster["scope"] = json!("Cluster");
        assert!(!subject("").matches(RuleWithOperations::of(&cluster)));
    }

    #[test]
    fn rules_know_requests_by_equivalent_names() {
        let registry = Registry::builtin();
        let version = |name: &str| {
            json!({"name": name, "served": true, "storage": name == "v1",
                "schema": {"openAPIV3Schema": {"type": "object"}},
                "subresources": if name == "v3" { json!({}) } else { json!({"status": {}}) }})
        };
        let definition = json!({"spec": {"group": "x.io", "scope": "Namespaced",
            "names": {"plural": "boats", "kind": "Boat"}, "versions": [version("v1"), version("v2"), version("v3")]}});
        for row in rows::of(&definition) {
            registry.register(row);
        }
        let rule = |group: &str, version: &str, resource: &str| json!({"operations": ["CREATE"], "apiGroups": [group], "apiVersions": [version], "resources": [resource]});
        let boats = |version: &str| rule("x.io", version, "boats");
        let (exact, equivalent) = ("Exact", "Equivalent");
        let hpa = "horizontalpodautoscalers";
        for (policy, rules, asked, expected) in [
            (equivalent, vec![boats("v1")], ("x.io", "v1", "boats", ""), Some("x.io/v1")),
            (equivalent, vec![boats("v1")], ("x.io", "v2", "boats", ""), Some("x.io/v1")),
            (exact, vec![boats("v1")], ("x.io", "v2", "boats", ""), None),
            ("", vec![boats("v1")], ("x.io", "v2", "boats", ""), None),
            // Its own name comes first, then the order of the rules, then that of the versions.
            (equivalent, vec![boats("v1"), boats("v2")], ("x.io", "v2", "boats", ""), Some("x.io/v2")),
            (equivalent, vec![boats("v3"), boats("v1")], ("x.io", "v2", "boats", ""), Some("x.io/v3")),
            (equivalent, vec![boats("*")], ("x.io", "v2", "boats", ""), Some("x.io/v2")),
            (equivalent, vec![boats("v4")], ("x.io", "v2", "boats", ""), None),
            (equivalent, vec![rule("y.io", "v1", "boats")], ("x.io", "v2", "boats", ""), None),
            // Subresources are equivalent where both have them.
            (equivalent, vec![boats("v1")], ("x.io", "v2", "boats", "status"), None),
            (
                equivalent,
                vec![rule("x.io", "v1", "boats/status")],
                ("x.io", "v2", "boats", "status"),
                Some("x.io/v1"),
            ),
            (equivalent, vec![rule("x.io", "v3", "boats/status")], ("x.io", "v2", "boats", "status"), None),
            (
                equivalent,
                vec![rule("events.k8s.io", "v1", "events")],
                ("", "v1", "events", ""),
                Some("events.k8s.io/v1"),
            ),
            (
                equivalent,
                vec![rule("autoscaling", "v1", hpa)],
                ("autoscaling", "v2", hpa, ""),
                Some("autoscaling/v1"),
            ),
            (equivalent, vec![rule("apps", "v1", "pods")], ("", "v1", "pods", ""), None),
        ] {
            let row = registry.resource(asked.0, asked.1, asked.2).unwrap();
            let texts = format!("{rules:?}");
            let rules: Vec<_> = rules.iter().map(RuleWithOperations::of).collect();
            let subject = Subject::new("CREATE", &row, asked.3);
            let found = known(&rules, policy, &registry, &row, &subject).map(|name| name.api_version());
            assert_eq!(found.as_deref(), expected, "{policy} {texts} {asked:?}");
            let subject = Subject::new("DELETE", &row, asked.3);
            assert_eq!(known(&rules, policy, &registry, &row, &subject), None, "another operation");
        }
    }

    #[test]
    fn conditions_decide() {
        let of =
            |texts: &[&str]| texts.iter().map(|t| json!({"name": "c", "expression": t})).collect::<Value>();
        let (request, object) = (
            json!({"userInfo": {"username": "u"}}),
            json!({"metadata": {"name": "a"}, "spec": {"replicas": 3}}),
        );
        let (nobody, user) = (Always(false), User::default());
        let permissions = PermissionChecks::of(&nobody, &user);
        let decide = |texts: &[&str]| {
            let conditions = json!({"matchConditions": of(texts)});
            let conditions = MutatingWebhook::of(&conditions).match_conditions();
            decide(conditions, &request, (&object, &Value::Null), &permissions)
        };
        assert_eq!(decide(&["object.spec.replicas > 2", "request.userInfo.username != 'x'"]), Matched::Yes);
        assert_eq!(decide(&["object.spec.replicas > 5"]), Matched::No);
        assert_eq!(decide(&["object.spec.nothing.here", "object.metadata.name == 'b'"]), Matched::No);
        assert!(matches!(decide(&["object.spec.nothing.here == 1"]), Matched::Failed(_)));
        let endless = "(lists.range(600000) + lists.range(600000)).size() > 0";
        assert!(
            matches!(decide(&[endless]), Matched::Failed(why) if why.contains("actual cost limit exceeded"))
        );
        let asks = decide(&["authorizer.path('/x').check('get').allowed()"]);
        assert!(matches!(asks, Matched::Failed(_)), "nobody has answered");
        assert_eq!(permissions.checks.take_unanswered().len(), 1);
        assert_eq!(decide(&[endless, "object.spec.replicas > 5"]), Matched::No, "false beats failure");
    }
}
