//! Field rules of mutating admission policies.

use super::extensions::{
    constraints, failure_policy, match_conditions, matching, param_kind, param_ref, variables,
};
use super::field_ref::{Field, walk_as};
use super::field_rules::TextRules as _;
use coracle_expressions::{PatchForm, compile_patch};
use coracle_fields::Text;
use coracle_fields::admissionregistration::v1::{
    MatchResources, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, Mutation,
};
use coracle_proto::names::dns1123_subdomain;
use coracle_proto::status::FieldError;
use serde_json::Value;

/// A MutatingAdmissionPolicy.
pub fn policy(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<MutatingAdmissionPolicy>(object, errors, |root| {
        let spec = root.spec();
        failure_policy(&spec.failure_policy());
        param_kind(&spec.param_kind());
        constraints(&spec.match_constraints());
        no_delete(&spec.match_constraints());
        match_conditions(&spec.match_conditions());
        variables(&spec.variables());
        let mutations = spec.mutations();
        if mutations.is_empty() {
            mutations.required("mutations must contain at least one item");
        }
        mutations.items().for_each(|one| mutation(&one));
        spec.reinvocation_policy().required_one_of(&["IfNeeded", "Never"]);
    });
}

/// A delete has no object that could be changed.
fn no_delete(resources: &Field<'_, MatchResources>) {
    for rule in resources.resource_rules().items() {
        for operation in rule.operations().items().filter(|operation| operation.text() == "DELETE") {
            operation.one_of(&["*", "CONNECT", "CREATE", "UPDATE"]);
        }
    }
}

fn mutation(one: &Field<'_, Mutation>) {
    let (kind, configuration, patch) = (one.patch_type(), one.apply_configuration(), one.json_patch());
    match kind.text() {
        "" => kind.required(""),
        "ApplyConfiguration" => {
            if configuration.is_set() {
                expression(&configuration.expression(), PatchForm::ApplyConfiguration);
            } else {
                configuration.required("must be specified when patchType is ApplyConfiguration");
            }
            if patch.is_set() {
                patch.invalid_as("{jsonPatch}", "must not be specified when patchType is ApplyConfiguration");
            }
        }
        "JSONPatch" => {
            if patch.is_set() {
                expression(&patch.expression(), PatchForm::JsonPatch);
            } else {
                patch.required("must be specified when patchType is JSONPatch");
            }
            if configuration.is_set() {
                let why = "must not be specified when patchType is JSONPatch";
                configuration.invalid_as("{applyConfiguration}", why);
            }
        }
        _ => kind.one_of(&["ApplyConfiguration", "JSONPatch"]),
    }
}

/// A CEL expression that parses, constructs what there is, and evaluates to a patch as far as that can be told without types.
fn expression(field: &Field<'_, Text>, form: PatchForm) {
    if field.text().trim().is_empty() {
        return field.required("");
    }
    if let Err(why) = compile_patch(field.text().trim(), form) {
        field.invalid(format!("compilation failed: {why}"));
    }
}

/// A MutatingAdmissionPolicyBinding.
pub fn binding(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<MutatingAdmissionPolicyBinding>(object, errors, |root| {
        let spec = root.spec();
        spec.policy_name().named(dns1123_subdomain);
        param_ref(&spec.param_ref());
        if spec.match_resources().is_set() {
            matching(&spec.match_resources());
            no_delete(&spec.match_resources());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::errors;
    use super::*;
    use crate::defaults::extensions::{mutating_policy, mutating_policy_binding};
    use serde_json::json;

    fn wrong(change: impl Fn(&mut Value)) -> Vec<String> {
        let mut object = json!({"metadata": {"name": "p"}, "spec": {"reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["apps"],
                "apiVersions": ["v1"], "resources": ["deployments"]}]},
            "variables": [{"name": "n", "expression": "1"}],
            "mutations": [{"patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": "Object{spec: Object.spec{replicas: 100}}"}}]}});
        change(&mut object);
        mutating_policy(&mut object);
        let mut said = errors(policy, &object);
        said.extend(errors(crate::compiled::mutating_policy, &object));
        said
    }

    fn expression_of(form: &str, field: &str, expression: &str) -> Vec<String> {
        wrong(|object| {
            object["spec"]["mutations"] = json!([{"patchType": form, field: {"expression": expression}}]);
        })
    }

    #[test]
    fn policies() {
        assert_eq!(wrong(|_| ()), [""; 0]);
        for (field, value, expected) in [
            (
                "failurePolicy",
                json!("Maybe"),
                "spec.failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\"",
            ),
            ("matchConstraints", Value::Null, "spec.matchConstraints: Required value"),
            (
                "mutations",
                json!([]),
                "spec.mutations: Required value: mutations must contain at least one item",
            ),
            (
                "mutations",
                json!([{"patchType": "Merge"}]),
                "spec.mutations[0].patchType: Unsupported value: \"Merge\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
            ),
            (
                "mutations",
                json!([{"patchType": "JSONPatch"}]),
                "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
            ),
            ("reinvocationPolicy", json!(""), "spec.reinvocationPolicy: Required value"),
            (
                "reinvocationPolicy",
                json!("Always"),
                "spec.reinvocationPolicy: Unsupported value: \"Always\": supported values: \"IfNeeded\", \"Never\"",
            ),
            ("paramKind", json!({"kind": "ConfigMap"}), "spec.paramKind.apiVersion: Required value"),
        ] {
            let said = wrong(|object| object["spec"][field] = value.clone());
            assert_eq!(said, [expected], "{field}");
        }
        let deletes = wrong(|object| {
            object["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = json!(["DELETE"])
        });
        assert!(deletes.concat().contains("Unsupported value: \"DELETE\""), "{deletes:?}");
    }

    #[test]
    fn expressions_are_compiled() {
        let apply = |text: &str| expression_of("ApplyConfiguration", "applyConfiguration", text).concat();
        let patch = |text: &str| expression_of("JSONPatch", "jsonPatch", text).concat();
        assert_eq!(apply("Object{spec: Object.spec{replicas: variables.n + object.spec.replicas}}"), "");
        assert_eq!(apply("Object{a: authorizer.requestResource.check('get').allowed()}"), "");
        assert_eq!(
            patch("[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b'), value: [1].map(n, n)}]"),
            ""
        );
        for (said, why) in [
            (
                apply("Object{"),
                "spec.mutations[0].applyConfiguration.expression: Invalid value: \"Object{\": compilation failed: ERROR: <input>:1:",
            ),
            (
                apply("Object{a: authorizer.path('/').check('get').permitted()}"),
                "undeclared reference to 'permitted'",
            ),
            (apply(" "), "spec.mutations[0].applyConfiguration.expression: Required value"),
            (apply("{'spec': {}}"), "must evaluate to Object"),
            (apply("Object{a: other}"), "undeclared reference to 'other'"),
            (apply("Object{a: params.b}"), "undeclared reference to 'params'"),
            (
                patch("Object{}"),
                "spec.mutations[0].jsonPatch.expression: Invalid value: \"Object{}\": compilation failed: ERROR: <input>:1:",
            ),
        ] {
            assert!(said.starts_with("spec.mutations[0]") && said.contains(why), "{said}");
        }
    }

    #[test]
    fn bindings() {
        let wrong = |spec: Value| {
            let mut object = json!({"metadata": {"name": "b"}, "spec": spec});
            mutating_policy_binding(&mut object);
            errors(binding, &object)
        };
        assert_eq!(wrong(json!({"policyName": "p", "matchResources": {}})), [""; 0]);
        assert_eq!(wrong(json!({})), ["spec.policyName: Required value"]);
        assert_eq!(
            wrong(json!({"policyName": "p", "paramRef": {"parameterNotFoundAction": "Deny"}})),
            ["spec.paramRef: Required value: one of name or selector must be specified"]
        );
    }
}
