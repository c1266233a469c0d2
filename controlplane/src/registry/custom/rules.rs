//! `x-kubernetes-validations`: rules in CEL about a value and what it was.

use cel::{Context, Program};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// A step from a value to those inside.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Items,
    Values,
}

/// One rule, at every value that its schema is about.
pub struct Rule {
    place: Vec<Step>,
    program: Program,
    text: String,
    message: String,
    message_expression: Option<Program>,
    reason: &'static str,
    field: String,
    /// Rules about a change say nothing of what is new.
    transition: bool,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("place", &self.place).field("text", &self.text).finish_non_exhaustive()
    }
}

/// Every rule of a schema that compiles; definitions with others are refused before.
pub fn of(schema: &Value) -> Vec<Rule> {
    let mut all = Vec::new();
    collect(schema, &mut Vec::new(), &mut all);
    all
}

fn collect(schema: &Value, place: &mut Vec<Step>, all: &mut Vec<Rule>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let text = rule["rule"].as_str().unwrap_or_default();
        let Ok(program) = Program::compile(text) else { continue };
        all.push(Rule {
            place: place.clone(),
            program,
            text: text.to_owned(),
            message: rule["message"].as_str().unwrap_or_default().to_owned(),
            message_expression: rule["messageExpression"]
                .as_str()
                .and_then(|text| Program::compile(text).ok()),
            reason: match rule["reason"].as_str() {
                Some("FieldValueForbidden") => "FieldValueForbidden",
                Some("FieldValueRequired") => "FieldValueRequired",
                Some("FieldValueDuplicate") => "FieldValueDuplicate",
                _ => "FieldValueInvalid",
            },
            field: rule["fieldPath"].as_str().unwrap_or_default().to_owned(),
            transition: text.contains("oldSelf") && rule["optionalOldSelf"] != true,
        });
    }
    for (name, of) in schema["properties"].as_object().into_iter().flatten() {
        place.push(Step::Field(name.clone()));
        collect(of, place, all);
        place.pop();
    }
    for (key, step) in [("items", Step::Items), ("additionalProperties", Step::Values)] {
        if schema[key].is_object() {
            place.push(step);
            collect(&schema[key], place, all);
            place.pop();
        }
    }
}

impl Rule {
    /// Checks every value that the rule is about.
    pub fn check(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        self.walk(&self.place, object, old, "", errors);
    }

    fn walk(
        &self,
        place: &[Step],
        value: &Value,
        old: Option<&Value>,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        let Some((step, rest)) = place.split_first() else {
            return self.judge(value, old, path, errors);
        };
        let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match (step, value) {
            (Step::Field(name), Value::Object(fields)) => {
                if let Some(inside) = fields.get(name).filter(|inside| !inside.is_null()) {
                    self.walk(rest, inside, old.and_then(|old| old.get(name)), &child(name), errors);
                }
            }
            (Step::Values, Value::Object(fields)) => {
                for (name, inside) in fields {
                    self.walk(rest, inside, old.and_then(|old| old.get(name)), &child(name), errors);
                }
            }
            // What an item of a list was nobody knows.
            (Step::Items, Value::Array(items)) => {
                for (i, inside) in items.iter().enumerate() {
                    self.walk(rest, inside, None, &format!("{path}[{i}]"), errors);
                }
            }
            _ => {}
        }
    }

    fn judge(&self, value: &Value, old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
        if self.transition && old.is_none() {
            return;
        }
        let mut context = Context::default();
        context.add_variable_from_value("self", lifted(value));
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", lifted(old));
        }
        let why = match self.program.execute(&context) {
            Ok(cel::Value::Bool(true)) => return,
            Ok(cel::Value::Bool(false)) => {
                let said =
                    self.message_expression.as_ref().and_then(|program| program.execute(&context).ok());
                match said {
                    Some(cel::Value::String(text)) => text.to_string(),
                    _ if !self.message.is_empty() => self.message.clone(),
                    _ => format!("failed rule: {}", self.text),
                }
            }
            Ok(_) => format!("rule evaluation error: {} is no yes or no", self.text),
            Err(error) => format!("rule evaluation error: {error}"),
        };
        let field = format!("{path}{}", self.field);
        let shown = match value {
            Value::Object(_) => Value::from("object"),
            Value::Array(_) => Value::from("array"),
            other => other.clone(),
        };
        let made = FieldError::invalid(field.trim_start_matches('.'), &shown, &why);
        errors.push(match self.reason {
            "FieldValueInvalid" => made,
            "FieldValueRequired" => FieldError::required(made.field, &why),
            "FieldValueForbidden" => FieldError::forbidden(made.field, &why),
            reason => FieldError::new(reason, made.field, format!("Duplicate value: {shown}")),
        });
    }
}

/// A JSON value as CEL knows it: whole numbers are ints.
pub fn lifted(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(is) => cel::Value::Bool(*is),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => cel::Value::Int(whole),
            None => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(lifted).collect())),
        Value::Object(fields) => {
            let fields: HashMap<String, cel::Value> =
                fields.iter().map(|(name, value)| (name.clone(), lifted(value))).collect();
            cel::Value::from(fields)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(rule: Value, spec: Value, old: Option<Value>) -> String {
        let schema = json!({"properties": {"spec": {"type": "object", "x-kubernetes-validations": [rule]}}});
        let (object, old) = (json!({"spec": spec}), old.map(|old| json!({"spec": old})));
        let mut errors = Vec::new();
        of(&schema).iter().for_each(|rule| rule.check(&object, old.as_ref(), &mut errors));
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn rules_see_the_value_and_what_it_was() {
        let range = json!({"rule": "self.min <= self.max", "message": "min must not be above max"});
        assert_eq!(said(range.clone(), json!({"min": 1, "max": 2}), None), "");
        assert_eq!(
            said(range, json!({"min": 3, "max": 2}), None),
            "spec: Invalid value: \"object\": min must not be above max"
        );
        let fixed = json!({"rule": "self.name == oldSelf.name"});
        assert_eq!(said(fixed.clone(), json!({"name": "a"}), None), "");
        assert_eq!(
            said(fixed, json!({"name": "b"}), Some(json!({"name": "a"}))),
            "spec: Invalid value: \"object\": failed rule: self.name == oldSelf.name"
        );
        let told = json!({"rule": "size(self.list) < 2", "messageExpression": "'too long: ' + string(size(self.list))"});
        assert_eq!(said(told, json!({"list": [1, 2]}), None), "spec: Invalid value: \"object\": too long: 2");
    }
}
