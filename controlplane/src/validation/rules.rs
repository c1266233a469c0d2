//! Rules that a schema carries (`x-kubernetes-validations`): they are there, they compile, and they speak of what the
//! schema knows.

use super::spot::Spot;
use crate::expressions::{self, names};
use crate::tree::Tree;
use serde_json::{Value, json};

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What can be told of the rules at one place of a schema without reading their expressions.
pub(super) fn written(schema: &Spot<'_>) {
    for rule in schema.each("x-kubernetes-validations") {
        let text = |field: &str| rule.value.text(field);
        let (message, said) = (rule.at("message"), text("message").trim());
        if text("rule").trim().is_empty() {
            rule.at("rule").required("rule is not specified");
        } else if !text("message").is_empty() && said.is_empty() {
            message.invalid("must be non-empty if specified");
        } else if said.contains('\n') {
            message.invalid("must not contain line breaks");
        } else if text("rule").trim().contains('\n') && said.is_empty() {
            message.required("message must be specified if rule contains line breaks");
        }
        if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
            rule.at("messageExpression").required("messageExpression must be non-empty if specified");
        }
        if rule.at("reason").is_set() {
            rule.at("reason").one_of(&REASONS);
        }
        let path = rule.at("fieldPath");
        if !path.text().is_empty() {
            if path.text().trim().is_empty() {
                path.invalid("must be non-empty if specified");
            }
            if path.text().contains('\n') {
                path.invalid("must not contain line breaks");
            }
            if !leads_somewhere(path.text(), schema.value) {
                path.invalid("must be a valid path");
            }
        }
    }
}

/// Whether a path such as `.spec['a.b']` names a field of the schema.
fn leads_somewhere(path: &str, schema: &Value) -> bool {
    let (mut rest, mut at) = (path, schema);
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix("['") {
            let Some((quoted, after)) = after.split_once("']") else { return false };
            (name, rest) = (quoted.replace("\\'", "'"), after);
        } else {
            let Some(after) = rest.strip_prefix('.') else { return false };
            let end = after.find(['.', '[']).unwrap_or(after.len());
            (name, rest) = (after[..end].to_owned(), &after[end..]);
        }
        at = match (at.get("properties"), at.get("additionalProperties")) {
            (Some(fields), _) => match fields.get(&name) {
                Some(field) => field,
                None => return false,
            },
            (None, Some(inside)) if inside.is_object() => inside,
            _ => return false,
        };
    }
    true
}

/// The expressions of the rules at one place. `loose` is the list around it whose items nobody can follow from one
/// change to the next, `root` whether the place is the whole object.
pub(super) fn expressed(schema: &Spot<'_>, loose: Option<&str>, root: bool) {
    let whole = if root { names::of_root(schema.value) } else { schema.value.clone() };
    for rule in schema.each("x-kubernetes-validations") {
        let optional = rule.value.flag("optionalOldSelf");
        // What an optional holds is not looked at here.
        let old = if optional { json!({}) } else { whole.clone() };
        let variables = [("self", &whole), ("oldSelf", &old)];
        let uses_old = match understood(rule.value.text("rule").trim(), &variables, "bool") {
            Ok(uses_old) => uses_old,
            Err(why) => {
                rule.at("rule").with(&shown(rule.value)).invalid(why);
                continue;
            }
        };
        let sentence = rule.at("messageExpression");
        if !sentence.is_empty()
            && let Err(why) = understood(sentence.text().trim(), &variables, "string")
        {
            sentence.with(&shown(rule.value)).invalid(why);
        }
        match (uses_old, loose) {
            (true, Some(within)) => rule.at("rule").invalid(format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
            )),
            (false, _) if rule.at("optionalOldSelf").is_set() => {
                rule.at("optionalOldSelf").invalid("may not be set if oldSelf is not used in rule");
            }
            _ => {}
        }
    }
}

/// Whether an expression speaks of what was, or why it cannot be used.
fn understood(text: &str, variables: &[(&str, &Value)], wanted: &str) -> Result<bool, String> {
    let program = expressions::compile(text).map_err(|why| format!("compilation failed: {why}"))?;
    if let Some(why) = names::wrong(&program, variables) {
        return Err(format!("compilation failed: {why}"));
    }
    match names::outcome(&program, variables) {
        Some(is) if is != wanted && !(is == "number or text" && wanted == "string") => {
            let expression = if wanted == "bool" { "cel expression" } else { "messageExpression" };
            Err(format!("{expression} must evaluate to a {wanted}"))
        }
        _ => Ok(program.references().has_variable("oldSelf")),
    }
}

/// A rule as upstream shows it.
fn shown(rule: &Value) -> Value {
    json!({
        "Rule": rule.text("rule"), "Message": rule.text("message"), "MessageExpression": rule.text("messageExpression"),
        "Reason": rule.at("reason"), "FieldPath": rule.text("fieldPath"), "OptionalOldSelf": rule.at("optionalOldSelf"),
    })
}
