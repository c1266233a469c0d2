//! `x-kubernetes-validations`: rules in CEL about a value and what it was.

use super::list_items::{Followed, map_keys};
use cel::{Context, ExecutionError};
use coracle_expressions::{self as expressions, Budget, CompileError, Failure, Program, names};
use coracle_fields::apiextensions::v1::{JSONSchemaProps, ValidationRule};
use coracle_fields::{Schema as _, View};
use coracle_proto::status::FieldError;
use serde_json::Value;

/// The longest sentence that a rule may make up.
const SENTENCE: usize = 5120;
/// Error message when the cost budget is exceeded.
const SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
const SPENT_SAYING: &str =
    "failed due to running out of cost budget, no further validation rules will be run";

/// A step from a value to those inside.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    /// Of a list; those of a list that is a map have keys to know them by.
    Items(Vec<String>),
    Values,
}

/// A place in a schema that has rules.
pub struct Place {
    steps: Vec<Step>,
    schema: Value,
    rules: Vec<Rule>,
}

/// One rule, at every value that its schema is about.
struct Rule {
    /// Why there is none, for a definition that was stored by a server that took it.
    program: Result<Program, CompileError>,
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

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rules: Vec<&str> = self.rules.iter().map(|rule| rule.text.as_str()).collect();
        f.debug_struct("Place").field("steps", &self.steps).field("rules", &rules).finish_non_exhaustive()
    }
}

/// Every rule of a schema, by where it stands. One that cannot be evaluated fails when it is asked.
pub fn of(schema: &Value) -> Vec<Place> {
    let mut all = Vec::new();
    collect(JSONSchemaProps::of(&names::of_root(schema)), &mut Vec::new(), &mut all);
    all
}

/// Every rule of a part of a schema.
pub(super) fn within(part: View<'_, JSONSchemaProps>) -> Vec<Place> {
    let mut all = Vec::new();
    collect(part, &mut Vec::new(), &mut all);
    all
}

fn collect(schema: View<'_, JSONSchemaProps>, steps: &mut Vec<Step>, all: &mut Vec<Place>) {
    let rules: Vec<Rule> = schema.x_kubernetes_validations().items().map(Rule::of).collect();
    if !rules.is_empty() {
        all.push(Place { steps: steps.clone(), schema: schema.to_value(), rules });
    }
    for (name, of) in schema.properties().entries() {
        steps.push(Step::Field(name.to_owned()));
        collect(of, steps, all);
        steps.pop();
    }
    let items = (schema.items(), Step::Items(map_keys(schema)));
    for (inside, step) in [items, (schema.additional_properties(), Step::Values)] {
        if inside.is_object() {
            steps.push(step);
            collect(inside.as_type(), steps, all);
            steps.pop();
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

/// Where rules are evaluated, and what they find.
struct Review<'b> {
    budget: &'b mut Budget,
    errors: Vec<FieldError>,
}

/// Evaluates the rules of every value. Violations of unchanged values are ignored (ratcheting).
pub fn check(places: &[Place], object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if places.is_empty() {
        return;
    }
    let seen = Seen { now: object, old, unchanged: old == Some(object) };
    errors.extend(expressions::evaluate_blocking(expressions::VALIDATION, |budget| {
        let mut review = Review { budget, errors: Vec::new() };
        for place in places {
            place.walk(&place.steps, seen, "", &mut review);
        }
        review.errors
    }));
}

/// The errors of each of some values by its rules, both when it is new and when it is set again. They share one budget.
pub(super) fn of_values(values: &[(Vec<Place>, &Value)]) -> Vec<Vec<FieldError>> {
    if values.is_empty() {
        return Vec::new();
    }
    expressions::evaluate_blocking(expressions::VALIDATION, |budget| {
        let mut all = Vec::new();
        for (places, value) in values {
            let mut review = Review { budget: &mut *budget, errors: Vec::new() };
            for old in [None, Some(*value)] {
                // What is wrong with a new value is not said twice.
                if review.errors.is_empty() {
                    let seen = Seen { now: value, old, unchanged: old.is_some() };
                    places.iter().for_each(|place| place.walk(&place.steps, seen, "", &mut review));
                }
            }
            all.push(review.errors);
        }
        all
    })
}

impl Place {
    fn walk(&self, steps: &[Step], seen: Seen<'_>, path: &str, review: &mut Review<'_>) {
        if review.budget.is_spent() {
            return;
        }
        let Some((step, rest)) = steps.split_first() else {
            return self.judge(seen, path, review);
        };
        match (step, seen.now) {
            (Step::Field(name), Value::Object(fields)) => {
                if let Some(inside) = fields.get(name).filter(|inside| !inside.is_null()) {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    let old = seen.old.and_then(|old| old.get(name));
                    self.walk(rest, seen.inside(inside, old), &path, review);
                }
            }
            (Step::Values, Value::Object(fields)) => {
                for (name, inside) in fields {
                    let old = seen.old.and_then(|old| old.get(name));
                    self.walk(rest, seen.inside(inside, old), &format!("{path}[{name}]"), review);
                }
            }
            (Step::Items(keys), Value::Array(items)) => {
                let before = Followed::of(keys, seen.old);
                for (i, inside) in items.iter().enumerate() {
                    self.walk(
                        rest,
                        seen.inside(inside, before.item(inside)),
                        &format!("{path}[{i}]"),
                        review,
                    );
                }
            }
            _ => {}
        }
    }

    fn judge(&self, seen: Seen<'_>, path: &str, review: &mut Review<'_>) {
        let old = seen.old.filter(|_| self.rules.iter().any(|rule| rule.uses_old));
        review.budget.take((expressions::values_in(seen.now) + old.map_or(0, expressions::values_in)) / 4);
        let mut context = expressions::context();
        context.add_variable_from_value("self", expressions::to_cel_typed(&self.schema, seen.now));
        let old = old.map(|old| expressions::to_cel_typed(&self.schema, old));
        if let Some(old) = &old {
            context.add_variable_from_value("oldSelf", old.clone());
        }
        let mut maybe = context.new_inner_scope();
        if self.rules.iter().any(|rule| rule.optional_old) {
            maybe.add_variable_from_value("oldSelf", expressions::optional(old));
        }
        let kind = JSONSchemaProps::of(&self.schema).type_().text();
        for rule in &self.rules {
            if rule.uses_old && seen.old.is_none() && !rule.optional_old {
                continue;
            }
            rule.judge(if rule.optional_old { &maybe } else { &context }, seen, path, kind, review);
            if review.budget.is_spent() {
                return;
            }
        }
    }
}

impl Rule {
    fn of(rule: View<'_, ValidationRule>) -> Self {
        let text = rule.rule().text().trim();
        let program = expressions::compile(text);
        Self {
            uses_old: program.as_ref().is_ok_and(|program| program.references().has_variable("oldSelf")),
            program,
            text: text.to_owned(),
            message: rule.message().text().trim().to_owned(),
            message_expression: rule
                .message_expression()
                .get()
                .and_then(|text| expressions::compile(text).ok()),
            reason: match rule.reason().get() {
                Some("FieldValueForbidden") => "FieldValueForbidden",
                Some("FieldValueRequired") => "FieldValueRequired",
                Some("FieldValueDuplicate") => "FieldValueDuplicate",
                _ => "FieldValueInvalid",
            },
            field: rule.field_path().text().trim().to_owned(),
            optional_old: rule.optional_old_self().flag(),
        }
    }

    fn judge(
        &self,
        context: &Context<'_, '_>,
        seen: Seen<'_>,
        path: &str,
        kind: &str,
        review: &mut Review<'_>,
    ) {
        let said = if self.message.is_empty() { &self.text } else { &self.message };
        let kind = Value::from(kind);
        let wrong = |review: &mut Review<'_>, why: &str| {
            review.errors.push(FieldError::invalid(path, &kind, why));
        };
        let program = match &self.program {
            Ok(program) => program,
            Err(why) => return wrong(review, &format!("rule compile error: {why} in rule: {}", self.text)),
        };
        match program.evaluate(context, review.budget) {
            Ok(cel::Value::Bool(true)) => return,
            Ok(cel::Value::Bool(false)) => {}
            Ok(_) => {
                return wrong(
                    review,
                    &format!("cel expression must evaluate to a bool evaluating rule: {said}"),
                );
            }
            Err(Failure::Budget) => return wrong(review, SPENT),
            Err(Failure::Cost) => {
                review.budget.stop();
                return wrong(
                    review,
                    &format!(
                        "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {said}",
                        Failure::Cost
                    ),
                );
            }
            Err(failure @ Failure::Evaluation(ExecutionError::NoSuchOverload(_))) => {
                return wrong(
                    review,
                    &format!(
                        "'{failure}': call arguments did not match a supported operator, function or macro signature for rule: {said}"
                    ),
                );
            }
            Err(failure) => return wrong(review, &format!("{failure} evaluating rule: {said}")),
        }
        if seen.unchanged && !self.uses_old {
            return;
        }
        let made_up = match self.message_expression.as_ref().map(|made| made.evaluate(context, review.budget))
        {
            Some(Err(Failure::Budget)) => {
                return wrong(review, &format!("messageExpression evaluation {SPENT_SAYING}"));
            }
            Some(Err(Failure::Cost)) => {
                review.budget.stop();
                return wrong(
                    review,
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression",
                );
            }
            other => other.and_then(Result::ok),
        };
        let why = match made_up {
            Some(cel::Value::String(text)) if is_sentence(text.trim()) => text.trim().to_owned(),
            _ if self.message.is_empty() => format!("failed rule: {}", self.text),
            _ => self.message.clone(),
        };
        let field = format!("{path}{}", self.field);
        review.errors.push(self.error(field.trim_start_matches('.'), seen.now, &why));
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
        check(&of(schema), &object, old.as_ref(), &mut errors);
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
    #[test]
    fn rules_that_cost_too_much_stop() {
        let much = "(lists.range(600000) + lists.range(600000)).size() > 0";
        assert_eq!(
            said(json!({"rule": much}), json!({}), None),
            format!(
                "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation \
                 rules will be run due to call cost exceeds limit for rule: {much}"
            )
        );
        // Each of many is cheap enough.
        let item = json!({"type": "array", "items": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "lists.range(900000).size() > self"}]}});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"list": item}}}});
        assert_eq!(
            checked(&schema, json!({"list": vec![0; 20]}), None),
            "spec.list[11]: Invalid value: \"integer\": validation failed due to running out of cost budget, no further \
             validation rules will be run"
        );
    }

    #[test]
    fn rules_that_cannot_be_evaluated_fail() {
        let unknown = json!({"rule": "self.name.nothing()"});
        let wrong = said(unknown, json!({"name": "1.2.3"}), None);
        assert!(wrong.contains("'nothing'"), "{wrong}");
        let broken = json!({"rule": "self.name >"});
        assert!(said(broken, json!({"name": "a"}), None).contains("rule compile error: ERROR"));
    }
}
