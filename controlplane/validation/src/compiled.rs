//! Expressions of webhooks, admission policies and selectors of devices have types when they are written. What had errors before may
//! keep them: values decide when such an expression is evaluated.
//!
//! That an expression can be parsed is a rule of the field; what cannot is not looked at here.

use super::field_ref::{Field, walk_as};
use coracle_expressions::types::{self, CheckError, Type, variables};
use coracle_expressions::{PatchForm, compile, compile_patch, compile_selector};
use coracle_fields::admissionregistration::v1::{
    MatchCondition, MutatingAdmissionPolicy, MutatingWebhookConfiguration, ValidatingAdmissionPolicy,
    Variable,
};
use coracle_fields::resource::v1::{DeviceClass, DeviceSelector};
use coracle_fields::{List, Text};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest selector of devices, in bytes.
pub const EXPRESSION: usize = 10 << 10;

/// Conditions of a webhook configuration of either kind.
pub fn webhooks(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<MutatingWebhookConfiguration>(object, errors, |root| {
        root.webhooks().items().for_each(|hook| conditions(&hook.match_conditions(), false));
    });
}

/// A ValidatingAdmissionPolicy.
pub fn validating_policy(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ValidatingAdmissionPolicy>(object, errors, |root| {
        let spec = root.spec();
        let has_params = spec.param_kind().is_set();
        conditions(&spec.match_conditions(), has_params);
        let mut scope = Scope::of(has_params, true);
        let mut messages = Scope::of(has_params, false);
        if !spec.variables().is_empty() {
            messages.set_composed(scope.compose(&spec.variables()));
        }
        for validation in spec.validations().items() {
            scope.check(&validation.expression(), &[Type::Bool]);
            // What is said about a denial cannot depend on further permissions.
            messages.check(&validation.message_expression(), &[Type::String]);
        }
        for annotation in spec.audit_annotations().items() {
            scope.check(&annotation.value_expression(), &[Type::String, Type::Null]);
        }
    });
}

/// A MutatingAdmissionPolicy.
pub fn mutating_policy(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<MutatingAdmissionPolicy>(object, errors, |root| {
        let spec = root.spec();
        let has_params = spec.param_kind().is_set();
        conditions(&spec.match_conditions(), has_params);
        let mut scope = Scope::of(has_params, true);
        scope.compose(&spec.variables());
        for one in spec.mutations().items() {
            match one.patch_type().text() {
                "ApplyConfiguration" => {
                    scope.check_patch(&one.apply_configuration().expression(), PatchForm::ApplyConfiguration);
                }
                "JSONPatch" => scope.check_patch(&one.json_patch().expression(), PatchForm::JsonPatch),
                _ => {}
            }
        }
    });
}

/// Selectors of a DeviceClass.
pub fn device_class(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<DeviceClass>(object, errors, |root| selectors(&root.spec().selectors()));
}

/// Selectors of devices. The value of an attribute, of which only the device knows the type, may be the whole expression.
pub(super) fn selectors(list: &Field<'_, List<DeviceSelector>>) {
    let scope = Scope(vec![("device", variables::device())]);
    for expression in list.items().map(|selector| selector.cel().expression()) {
        if expression.text().len() <= EXPRESSION
            && let Ok(program) = compile_selector(expression.text())
        {
            reported(&expression, types::check_outcome(&program, &scope.0, &[Type::Bool, Type::Any]));
        }
    }
}

/// A selector that can be parsed.
pub(super) fn selector(field: &Field<'_, Text>) {
    if field.text().trim().is_empty() {
        return field.required("");
    }
    if let Err(why) = compile_selector(field.text()) {
        field.invalid(format!("compilation failed: {why}"));
    }
}

fn conditions(list: &Field<'_, List<MatchCondition>>, has_params: bool) {
    let scope = Scope::of(has_params, true);
    list.items().for_each(|condition| scope.check(&condition.expression(), &[Type::Bool]));
}

/// The variables that an expression may use.
struct Scope(Vec<(&'static str, Type)>);

impl Scope {
    /// Those of admission: objects and parameters have any type.
    fn of(has_params: bool, has_authorizer: bool) -> Self {
        let mut scope = vec![
            ("object", Type::Dyn),
            ("oldObject", Type::Dyn),
            ("request", variables::request()),
            ("namespaceObject", variables::namespace()),
        ];
        if has_params {
            scope.push(("params", Type::Dyn));
        }
        if has_authorizer {
            scope.extend(variables::authorizer());
        }
        Self(scope)
    }

    /// Adds variables that policies define. Each may use those before it.
    fn compose(&mut self, list: &Field<'_, List<Variable>>) -> Type {
        self.set_composed(variables::composed(&BTreeMap::new()));
        for variable in list.items() {
            let found = self.typed(&variable.expression()).map_or(Type::Dyn, of_variable);
            // The last one of the scope. It is nobody else's, so that it is not copied.
            if let Some((_, Type::Object(known))) = self.0.last_mut() {
                Arc::make_mut(known).fields.insert(variable.name().text().to_owned(), found);
            }
        }
        self.0.last().map_or(Type::Dyn, |(_, known)| known.clone())
    }

    fn set_composed(&mut self, of: Type) {
        self.0.retain(|(name, _)| *name != "variables");
        self.0.push(("variables", of));
    }

    /// The type of an expression that has one.
    fn typed(&self, field: &Field<'_, Text>) -> Option<Type> {
        let program = compile(field.text()).ok()?;
        reported(field, types::check(&program, &self.0))
    }

    /// Checks an expression whose value has one of these types.
    fn check(&self, field: &Field<'_, Text>, wanted: &[Type]) {
        if let Ok(program) = compile(field.text()) {
            reported(field, types::check_outcome(&program, &self.0, wanted));
        }
    }

    fn check_patch(&self, field: &Field<'_, Text>, form: PatchForm) {
        if let Ok(program) = compile_patch(field.text().trim(), form) {
            reported(field, types::check_patch(&program, &self.0, form));
        }
    }
}

fn reported(field: &Field<'_, Text>, outcome: Result<Type, CheckError>) -> Option<Type> {
    let why = match outcome {
        Ok(found) => return Some(found),
        Err(CheckError::Types(why)) => format!("compilation failed: {why}"),
        Err(other) => other.to_string(),
    };
    field.invalid(why);
    None
}

/// The type by which other expressions know a variable: of objects, optional values and what only functions can look into they know
/// nothing.
fn of_variable(of: Type) -> Type {
    match of {
        Type::Error
        | Type::Type(_)
        | Type::Optional(_)
        | Type::Opaque(_)
        | Type::Object(_)
        | Type::Variable(_) => Type::Dyn,
        Type::List(item) => Type::list(of_variable(*item)),
        Type::Map(key, value) => Type::Map(Box::new(of_variable(*key)), Box::new(of_variable(*value))),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ratchet::{Rule, changed};
    use super::super::testing::errors;
    use super::*;
    use serde_json::json;

    /// Whether an expression at a place of an object has each of these errors; none for those that are accepted.
    fn held(rule: Rule, object: &Value, place: &str, field: &str, cases: &[(&str, &str)]) {
        for (text, why) in cases {
            let mut object = object.clone();
            *object.pointer_mut(place).unwrap_or(&mut Value::Null) = json!(text);
            let said = errors(rule, &object);
            if why.is_empty() {
                assert_eq!(said, [""; 0], "{text}");
            } else {
                let start = format!("{field}: Invalid value: {}: ", json!(text));
                assert!(
                    said.len() == 1 && said[0].starts_with(&start) && said[0].contains(why),
                    "{text}: {said:?}"
                );
            }
        }
    }

    fn validating() -> Value {
        json!({"spec": {"matchConditions": [{"name": "c", "expression": "true"}],
            "variables": [{"name": "number", "expression": "1"}, {"name": "later", "expression": "variables.number + 1"},
                {"name": "maybe", "expression": "object.?a"}],
            "validations": [{"expression": "true", "messageExpression": "'a'"}],
            "auditAnnotations": [{"key": "k", "valueExpression": "'a'"}]}})
    }

    #[test]
    fn validations_are_true_or_false() {
        let cases = [
            ("object.a.b == 1 && oldObject == null", ""),
            ("variables.later == 2 && variables.maybe == 1", ""),
            ("request.userInfo.username != namespaceObject.metadata.name", ""),
            ("authorizer.requestResource.check('get').allowed()", ""),
            ("'string'", "must evaluate to bool but got string"),
            ("object.a", "must evaluate to bool but got dyn"),
            (
                "undefinedvar == 1",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'undefinedvar'",
            ),
            ("nosuchfunc(1)", "undeclared reference to 'nosuchfunc'"),
            ("1 == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
            ("params.x == 1", "undeclared reference to 'params'"),
            ("request.foo == 1", "undefined field 'foo'"),
            ("variables.other == 1", "undefined field 'other'"),
            ("variables.later == 'a'", "applied to '(int, string)'"),
        ];
        let (place, field) = ("/spec/validations/0/expression", "spec.validations[0].expression");
        held(validating_policy, &validating(), place, field, &cases);
        let mut with_params = validating();
        with_params["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        held(validating_policy, &with_params, place, field, &[("params.x == 1", "")]);
    }

    #[test]
    fn other_expressions_of_policies_have_their_types() {
        for (place, field, cases) in [
            (
                "/spec/matchConditions/0/expression",
                "spec.matchConditions[0].expression",
                vec![
                    ("object.a == 1", ""),
                    ("nosuch(1)", "'nosuch'"),
                    ("variables.number == 1", "'variables'"),
                ],
            ),
            (
                "/spec/validations/0/messageExpression",
                "spec.validations[0].messageExpression",
                vec![
                    ("'a' + object.b + string(variables.later)", ""),
                    ("5", "must evaluate to string but got int"),
                    (
                        "string(authorizer.path('/').check('get').allowed())",
                        "undeclared reference to 'authorizer'",
                    ),
                ],
            ),
            (
                "/spec/auditAnnotations/0/valueExpression",
                "spec.auditAnnotations[0].valueExpression",
                vec![("null", ""), ("1", "must evaluate to one of [string null_type] but got int")],
            ),
            (
                "/spec/variables/0/expression",
                "spec.variables[0].expression",
                vec![
                    ("object.a", ""),
                    ("nosuch(2)", "'nosuch'"),
                    ("variables.later", "undefined field 'later'"),
                ],
            ),
        ] {
            held(validating_policy, &validating(), place, field, &cases);
        }
    }

    #[test]
    fn conditions_and_selectors_have_their_types() {
        let hooks = json!({"webhooks": [{"matchConditions": [{"name": "c", "expression": ""}]}]});
        let cases = [
            ("!has(object.a) && request.name == 'a'", ""),
            ("nosuchfunc(1)", "'nosuchfunc'"),
            ("'x'", "must evaluate to bool but got string"),
            ("undefinedvar == 1", "'undefinedvar'"),
            ("request.foo == 1", "undefined field 'foo'"),
        ];
        let field = "webhooks[0].matchConditions[0].expression";
        held(webhooks, &hooks, "/webhooks/0/matchConditions/0/expression", field, &cases);

        let class = json!({"spec": {"selectors": [{"cel": {"expression": ""}}]}});
        let cases = [
            ("device.attributes['a'].b.isGreaterThan(semver('1.0.0')) && device.driver == 'a'", ""),
            ("device.attributes['a'].b", ""),
            ("cel.bind(a, device.attributes['a'], a.b == 1)", ""),
            ("nosuch(1)", "'nosuch'"),
            ("device.drivr == 'x'", "undefined field 'drivr'"),
            ("device.attributes['a'].b.exists(x, x == 1)", "type 'any' cannot be range"),
            ("dyn(device.driver)", "must evaluate to one of [bool any] but got dyn"),
            ("device.attributes['a'].b + 1 == 2 && device.attributes['a'].b.c[0] in [1]", ""),
            ("device.driver", "must evaluate to one of [bool any] but got string"),
            ("device.capacity['a'].b == 1", "applied to '(kubernetes.Quantity, int)'"),
        ];
        let field = "spec.selectors[0].cel.expression";
        held(device_class, &class, "/spec/selectors/0/cel/expression", field, &cases);
    }

    #[test]
    fn a_change_is_held_to_the_errors_that_it_makes() {
        let of = |expressions: &[&str], has_params: bool| {
            let validations: Value = expressions.iter().map(|text| json!({"expression": text})).collect();
            let kind = if has_params { json!({"kind": "ConfigMap"}) } else { Value::Null };
            json!({"spec": {"validations": validations, "paramKind": kind}})
        };
        let fields = |new: &Value, old: &Value| {
            let mut errors = Vec::new();
            changed(validating_policy, new, old, &mut errors);
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        let old = of(&["nosuch(1)", "params.x == 1"], true);
        assert_eq!(fields(&old, &old), [""; 0]);
        assert_eq!(fields(&of(&["true", "nosuch(1)"], true), &old), [""; 0]);
        assert_eq!(fields(&of(&["nosuch(2)"], true), &old), ["spec.validations[0].expression"]);
        assert_eq!(
            fields(&of(&["nosuch(1)", "params.x == 1"], false), &old),
            ["spec.validations[1].expression"]
        );
    }
}
