//! Checks the expressions of a ValidatingAdmissionPolicy against the schemas of the kinds that it is about. Pure.

use coracle_expressions::types::{self, CheckError, Type, schema, variables};
use coracle_fields::View;
use coracle_fields::admissionregistration::v1::{NamedRuleWithOperations, ValidatingAdmissionPolicySpec};
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many kinds a rule is checked against.
const MAX_KINDS: usize = 10;

/// What is wrong with an expression.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// The place of the expression, such as `spec.validations[0].expression`.
    pub field_ref: String,
    /// Type errors, by kind.
    pub warning: String,
}

/// The warnings about a policy.
pub fn warnings(spec: View<'_, ValidatingAdmissionPolicySpec>, registry: &Registry) -> Vec<Warning> {
    let kinds = kinds(spec, registry);
    let scopes: Vec<(String, Scope)> = kinds
        .iter()
        .filter_map(|kind| {
            let title = format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind);
            Some((title, Scope::of(type_of(kind)?, spec, registry)))
        })
        .collect();
    let mut found = Vec::new();
    for (at, validation) in spec.validations().items().enumerate() {
        for (field, text) in [
            ("expression", validation.expression().text()),
            ("messageExpression", validation.message_expression().text()),
        ] {
            let errors = scopes.iter().filter_map(|(title, scope)| match scope.check(text)? {
                Err(why) => Some(format!("{title}: {why}\n")),
                Ok(_) => None,
            });
            let errors: Vec<String> = if text.is_empty() { Vec::new() } else { errors.collect() };
            if !errors.is_empty() {
                let field_ref = format!("spec.validations[{at}].{field}");
                found.push(Warning { field_ref, warning: errors.join("\n") });
            }
        }
    }
    found
}

/// The kinds that rules without wildcards name, in order.
fn kinds(spec: View<'_, ValidatingAdmissionPolicySpec>, registry: &Registry) -> Vec<Arc<Kind>> {
    let mut all = BTreeMap::new();
    for rule in spec.match_constraints().resource_rules().items() {
        for kind in named(rule, registry).into_iter().take(MAX_KINDS) {
            all.insert((kind.group.clone(), kind.version.clone(), kind.kind.clone()), kind);
        }
    }
    all.into_values().collect()
}

fn named(rule: View<'_, NamedRuleWithOperations>, registry: &Registry) -> Vec<Arc<Kind>> {
    let sorted = |texts: Vec<String>| -> Vec<String> {
        let mut texts = texts;
        texts.sort();
        texts
    };
    let groups = sorted(rule.api_groups().texts().map(str::to_owned).collect());
    let versions = sorted(rule.api_versions().texts().map(str::to_owned).collect());
    if groups.iter().chain(&versions).any(|text| text.contains('*')) {
        return Vec::new();
    }
    let plain = rule.resources().texts().filter(|text| !text.contains(['*', '/']));
    let resources = sorted(plain.map(str::to_owned).collect());
    let mut found = Vec::new();
    for group in &groups {
        for version in &versions {
            found.extend(resources.iter().filter_map(|plural| registry.resource(group, version, plural)));
        }
    }
    found
}

fn type_of(kind: &Kind) -> Option<Type> {
    schema::of_kind(&kind.schema, &kind.kind, kind.custom.as_deref().map(|custom| &*custom.schema))
}

/// The variables of expressions about one kind.
struct Scope(Vec<(&'static str, Type)>);

impl Scope {
    fn of(object: Type, spec: View<'_, ValidatingAdmissionPolicySpec>, registry: &Registry) -> Self {
        let mut scope = vec![
            ("object", object.clone()),
            ("oldObject", object),
            ("request", variables::request()),
            ("namespaceObject", variables::namespace()),
        ];
        scope.extend(variables::authorizer());
        if let Some(params) = params(spec, registry) {
            scope.push(("params", params));
        }
        let mut scope = Self(scope);
        let mut composed = BTreeMap::new();
        for variable in spec.variables().items() {
            // A variable that has an error may have any type: what uses it has none for that.
            scope.set_variables(&composed);
            let found = scope.check(variable.expression().text()).and_then(Result::ok);
            composed.insert(variable.name().text().to_owned(), found.unwrap_or(Type::Dyn));
        }
        scope.set_variables(&composed);
        scope
    }

    fn set_variables(&mut self, composed: &BTreeMap<String, Type>) {
        self.0.retain(|(name, _)| *name != "variables");
        self.0.push(("variables", variables::composed(composed)));
    }

    /// Nothing for what does not compile: it is refused when the policy is written.
    fn check(&self, text: &str) -> Option<Result<Type, CheckError>> {
        let program = coracle_expressions::compile(text.trim()).ok()?;
        Some(types::check(&program, &self.0))
    }
}

/// The type of parameters; any, if their kind is not served.
fn params(spec: View<'_, ValidatingAdmissionPolicySpec>, registry: &Registry) -> Option<Type> {
    if !spec.param_kind().is_set() {
        return None;
    }
    let api_version = spec.param_kind().api_version().text();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = registry.kind(group, version, spec.param_kind().kind().text());
    Some(kind.and_then(|kind| type_of(&kind)).unwrap_or(Type::Dyn))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::{Value, json};

    fn said(spec: Value) -> Vec<(String, String)> {
        let registry = Registry::builtin();
        let found = warnings(ValidatingAdmissionPolicySpec::of(&spec), &registry);
        found.into_iter().map(|warning| (warning.field_ref, warning.warning)).collect()
    }

    fn rule(group: &str, resources: &[&str]) -> Value {
        json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": resources})
    }

    #[test]
    fn every_kind_is_checked() {
        let spec = json!({
            "matchConstraints": {"resourceRules": [rule("apps", &["deployments", "daemonsets", "deployments/scale"])]},
            "validations": [{"expression": "object.spec.replicas > 1", "messageExpression": "'at ' + object.spec.paused"}]});
        let said = said(spec);
        assert_eq!(said.len(), 2);
        assert_eq!(said[0].0, "spec.validations[0].expression");
        assert_eq!(
            said[0].1,
            "apps/v1, Kind=DaemonSet: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > 1\n | ...........^\n"
        );
        let both = &said[1].1;
        assert_eq!(said[1].0, "spec.validations[0].messageExpression");
        assert!(
            both.starts_with("apps/v1, Kind=DaemonSet: ERROR")
                && both.contains("\n\napps/v1, Kind=Deployment: ERROR"),
            "{both}"
        );
        assert!(both.contains("found no matching overload for '_+_' applied to '(string, bool)'"), "{both}");
    }

    #[test]
    fn variables_params_and_requests_have_types() {
        let spec = |expression: &str| {
            json!({"matchConstraints": {"resourceRules": [rule("", &["pods"])]},
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "variables": [{"name": "limit", "expression": "int(params.data['limit'])"},
                    {"name": "broken", "expression": "object.nothing"}, {"name": "twice", "expression": "variables.limit * 2"}],
                "validations": [{"expression": expression}]})
        };
        for good in [
            "variables.twice > object.spec.containers.size()",
            "variables.broken == 1 || variables.broken == 'a'",
            "request.userInfo.username != '' && namespaceObject.metadata.labels.a == 'b'",
            "authorizer.group('').resource('pods').namespace('a').check('get').allowed()",
            "authorizer.requestResource.check('delete').reason() == ''",
        ] {
            assert!(said(spec(good)).is_empty(), "{good}: {:?}", said(spec(good)));
        }
        for (bad, why) in [
            ("variables.twice == 'x'", "(int, string)"),
            ("variables.other == 1", "undefined field 'other'"),
            ("request.user == ''", "undefined field 'user'"),
            ("params.spec == ''", "undefined field 'spec'"),
            ("authorizer.requestResource.path('/').check('get').allowed()", "ResourceCheck.(string)"),
        ] {
            assert!(said(spec(bad))[0].1.contains(why), "{bad}");
        }
    }

    #[test]
    fn rules_with_wildcards_are_not_checked() {
        let spec = |rule: Value| json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "object.nothing"}]});
        assert!(said(spec(rule("*", &["pods"]))).is_empty());
        assert!(said(spec(rule("", &["*"]))).is_empty());
        assert!(said(spec(rule("", &["unknown"]))).is_empty());
        assert_eq!(said(spec(rule("", &["pods", "*"]))).len(), 1);
    }
}
