//! `x-kubernetes-validations`: rules in CEL about a value and what it was.

use crate::expressions::{self, names};
use cel::{ExecutionError, Program};
use coracle_proto::status::FieldError;
use serde_json::Value;

/// The longest sentence that a rule may make up.
const SENTENCE: usize = 5120;

/// A step from a value to those inside.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    /// Of a list; those of a list that is a map have keys to know them by.
    Items(Vec<String>),
    Values,
}

/// One rule, at every value that its schema is about.
pub struct Rule {
    place: Vec<Step>,
    schema: Value,
    program: Program,
    text: String,
    message: String,
    message_expression: Option<Program>,
    reason: &'static str,
    field: String,
    /// It is about a change.
    uses_old: bool,
    /// What was is an optional, so that the rule speaks of what is new, too.
    optional_old: bool,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("place", &self.place).field("text", &self.text).finish_non_exhaustive()
    }
}

/// Every rule of a schema that can be evaluated here; definitions whose rules are none are refused before.
pub fn of(schema: &Value) -> Vec<Rule> {
    let mut all = Vec::new();
    collect(&names::of_root(schema), &mut Vec::new(), &mut all);
    all
}

fn collect(schema: &Value, place: &mut Vec<Step>, all: &mut Vec<Rule>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().trim();
        let Ok(program) = expressions::compile(text("rule")) else { continue };
        if !names::is_evaluable(&program) {
            tracing::warn!(
                rule = text("rule"),
                "a rule of a custom resource needs functions that are not here"
            );
            continue;
        }
        all.push(Rule {
            place: place.clone(),
            schema: schema.clone(),
            uses_old: program.references().has_variable("oldSelf"),
            program,
            text: text("rule").to_owned(),
            message: text("message").to_owned(),
            message_expression: rule["messageExpression"]
                .as_str()
                .and_then(|text| expressions::compile(text).ok())
                .filter(names::is_evaluable),
            reason: match rule["reason"].as_str() {
                Some("FieldValueForbidden") => "FieldValueForbidden",
                Some("FieldValueRequired") => "FieldValueRequired",
                Some("FieldValueDuplicate") => "FieldValueDuplicate",
                _ => "FieldValueInvalid",
            },
            field: text("fieldPath").to_owned(),
            optional_old: rule["optionalOldSelf"] == true,
        });
    }
    for (name, of) in schema["properties"].as_object().into_iter().flatten() {
        place.push(Step::Field(name.clone()));
        collect(of, place, all);
        place.pop();
    }
    for (key, step) in
        [("items", Step::Items(super::map_keys(schema))), ("additionalProperties", Step::Values)]
    {
        if schema[key].is_object() {
            place.push(step);
            collect(&schema[key], place, all);
            place.pop();
        }
    }
}

/// A value, what it was, and whether the nearest value whose past is known is unchanged.
#[derive(Clone, Copy)]
struct Seen<'a> {
    now: &'a Value,
    old: Option<&'a Value>,
    unchanged: bool,
}

impl<'a> Seen<'a> {
    fn inside(&self, now: &'a Value, old: Option<&'a Value>) -> Self {
        Self { now, old, unchanged: old.map_or(self.unchanged, |old| old == now) }
    }
}

impl Rule {
    /// Checks every value that the rule is about. What a rule finds wrong with a value that nobody changed stays.
    pub fn check(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let seen = Seen { now: object, old, unchanged: old == Some(object) };
        self.walk(&self.place, seen, "", errors);
    }

    fn walk(&self, place: &[Step], seen: Seen<'_>, path: &str, errors: &mut Vec<FieldError>) {
        let Some((step, rest)) = place.split_first() else {
            return self.judge(seen, path, errors);
        };
        match (step, seen.now) {
            (Step::Field(name), Value::Object(fields)) => {
                if let Some(inside) = fields.get(name).filter(|inside| !inside.is_null()) {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    let old = seen.old.and_then(|old| old.get(name));
                    self.walk(rest, seen.inside(inside, old), &path, errors);
                }
            }
            (Step::Values, Value::Object(fields)) => {
                for (name, inside) in fields {
                    let old = seen.old.and_then(|old| old.get(name));
                    self.walk(rest, seen.inside(inside, old), &format!("{path}[{name}]"), errors);
                }
            }
            (Step::Items(keys), Value::Array(items)) => {
                for (i, inside) in items.iter().enumerate() {
                    let old = seen.old.and_then(|old| super::same_item(keys, inside, old));
                    self.walk(rest, seen.inside(inside, old), &format!("{path}[{i}]"), errors);
                }
            }
            _ => {}
        }
    }

    fn judge(&self, seen: Seen<'_>, path: &str, errors: &mut Vec<FieldError>) {
        if self.uses_old && seen.old.is_none() && !self.optional_old {
            return;
        }
        let mut context = expressions::context();
        context.add_variable_from_value("self", expressions::lifted_as(&self.schema, seen.now));
        let old = seen.old.map(|old| expressions::lifted_as(&self.schema, old));
        if self.optional_old {
            context.add_variable_from_value("oldSelf", expressions::optional(old));
        } else if let Some(old) = old {
            context.add_variable_from_value("oldSelf", old);
        }
        let said = if self.message.is_empty() { &self.text } else { &self.message };
        let kind = Value::from(self.schema["type"].as_str().unwrap_or_default());
        match self.program.execute(&context) {
            Ok(cel::Value::Bool(true)) => return,
            Ok(cel::Value::Bool(false)) => {}
            Ok(_) => {
                let why = format!("cel expression must evaluate to a bool evaluating rule: {said}");
                return errors.push(FieldError::invalid(path, &kind, &why));
            }
            Err(error) => {
                let why = expressions::explain(&error);
                let why = match error {
                    ExecutionError::NoSuchOverload(_) => format!(
                        "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {said}"
                    ),
                    _ => format!("{why} evaluating rule: {said}"),
                };
                return errors.push(FieldError::invalid(path, &kind, &why));
            }
        }
        if seen.unchanged && !self.uses_old {
            return;
        }
        let made_up = self.message_expression.as_ref().and_then(|program| program.execute(&context).ok());
        let why = match made_up {
            Some(cel::Value::String(text)) if is_sentence(text.trim()) => text.trim().to_owned(),
            _ if self.message.is_empty() => format!("failed rule: {}", self.text),
            _ => self.message.clone(),
        };
        let field = format!("{path}{}", self.field);
        errors.push(self.error(field.trim_start_matches('.'), seen.now, &why));
    }

    fn error(&self, field: &str, value: &Value, why: &str) -> FieldError {
        // Objects and lists are too long to be shown.
        let shown = match value {
            Value::Object(_) | Value::Array(_) => String::new(),
            other => format!(" {other}:"),
        };
        match self.reason {
            "FieldValueRequired" => FieldError::required(field, why),
            "FieldValueForbidden" => FieldError::forbidden(field, why),
            "FieldValueDuplicate" => {
                let text = format!("Duplicate value:{}", shown.trim_end_matches(':'));
                FieldError::new("FieldValueDuplicate", field, text.trim_end_matches(':').to_owned())
            }
            reason => FieldError::new(reason, field, format!("Invalid value:{shown} {why}")),
        }
    }
}

fn is_sentence(text: &str) -> bool {
    !text.is_empty() && text.len() <= SENTENCE && !text.contains('\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(rule: Value, spec: Value, old: Option<Value>) -> String {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string"},
                "list": {"type": "array", "items": {"type": "integer"}}},
            "x-kubernetes-validations": [rule]}}});
        checked(&schema, spec, old)
    }

    fn checked(schema: &Value, spec: Value, old: Option<Value>) -> String {
        let (object, old) = (json!({"spec": spec}), old.map(|old| json!({"spec": old})));
        let mut errors = Vec::new();
        of(schema).iter().for_each(|rule| rule.check(&object, old.as_ref(), &mut errors));
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn rules_see_the_value_and_what_it_was() {
        let range = json!({"rule": "self.min <= self.max", "message": "min must not be above max"});
        assert_eq!(said(range.clone(), json!({"min": 1, "max": 2}), None), "");
        assert_eq!(
            said(range.clone(), json!({"min": 3, "max": 2}), None),
            "spec: Invalid value: min must not be above max"
        );
        let wrong = json!({"min": 3, "max": 2});
        assert_eq!(said(range.clone(), wrong.clone(), Some(wrong)), "", "what nobody changed stays");
        assert_eq!(
            said(range, json!({"min": 3}), None),
            "spec: Invalid value: \"object\": no such key: max evaluating rule: min must not be above max"
        );
        let fixed = json!({"rule": "self.name == oldSelf.name"});
        assert_eq!(said(fixed.clone(), json!({"name": "a"}), None), "");
        assert_eq!(
            said(fixed, json!({"name": "b"}), Some(json!({"name": "a"}))),
            "spec: Invalid value: failed rule: self.name == oldSelf.name"
        );
        let told = json!({"rule": "size(self.list) < 2", "messageExpression": "'too long: ' + string(size(self.list))"});
        assert_eq!(said(told, json!({"list": [1, 2]}), None), "spec: Invalid value: too long: 2");
        let empty = json!({"rule": "size(self.list) < 2", "message": "short", "messageExpression": "' '"});
        assert_eq!(said(empty, json!({"list": [1, 2]}), None), "spec: Invalid value: short");
    }

    #[test]
    fn rules_say_where_and_why() {
        for (reason, want) in [
            ("FieldValueRequired", "spec.name: Required value: say it"),
            ("FieldValueForbidden", "spec.name: Forbidden: say it"),
            ("FieldValueInvalid", "spec.name: Invalid value: say it"),
            ("FieldValueDuplicate", "spec.name: Duplicate value"),
        ] {
            let rule = json!({"rule": "has(self.name)", "message": "say it", "reason": reason, "fieldPath": ".name"});
            assert_eq!(said(rule, json!({}), None), want);
        }
        let first = json!({"rule": "oldSelf.hasValue() || self.min == 0", "optionalOldSelf": true, "message": "zero first"});
        assert_eq!(said(first.clone(), json!({"min": 1}), None), "spec: Invalid value: zero first");
        assert_eq!(said(first, json!({"min": 1}), Some(json!({"min": 0}))), "");
    }

    #[test]
    fn rules_inside_lists_and_maps() {
        let item = json!({"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "no shrinking"}]}}});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "disks": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item},
            "limits": {"type": "object", "additionalProperties": {"type": "integer",
                "x-kubernetes-validations": [{"rule": "self > 0"}]}}}}}});
        let old = json!({"disks": [{"name": "a", "size": 5}, {"name": "b", "size": 1}]});
        let new = json!({"disks": [{"name": "b", "size": 2}, {"name": "a", "size": 4}, {"name": "c", "size": 0}], "limits": {"x": 0}});
        assert_eq!(
            checked(&schema, new, Some(old)),
            "spec.disks[1].size: Invalid value: 4: no shrinking|spec.limits[x]: Invalid value: 0: failed rule: self > 0"
        );
    }
}
