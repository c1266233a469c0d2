//! CEL rules in schemas of custom resources (`x-kubernetes-validations`): they are complete, they compile, and they use only what
//! the schema has. Field rules of built-in kinds are in the file of their family.

use super::field_ref::{Field, FieldRef};
use super::field_rules::TextRules as _;
use coracle_expressions::types::{self, CheckError, Type};
use coracle_expressions::{self as expressions, CompileError, Program, estimate, names};
use coracle_fields::apiextensions::v1::{JSONSchemaProps, ValidationRule};
use coracle_fields::{Schema as _, Text, View};
use serde_json::{Value, json};

/// Why the expression of a rule cannot be used.
#[derive(Debug, thiserror::Error)]
enum RuleError {
    #[error("{}compilation failed: {why}", .what.prefix())]
    Compile { what: Expression, why: CompileError },
    /// It speaks of something that the schema does not have, or its parts do not fit together.
    #[error("{}compilation failed: {why}", .what.prefix())]
    Types { what: Expression, why: CheckError },
    /// Its value has another type.
    #[error("{} must evaluate to a {}", .0.name(), .0.outcome())]
    Outcome(Expression),
}

/// What an expression is for.
#[derive(Debug, Clone, Copy)]
enum Expression {
    Rule,
    Message,
}

impl Expression {
    fn prefix(self) -> &'static str {
        match self {
            Self::Rule => "",
            Self::Message => "messageExpression ",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rule => "cel expression",
            Self::Message => "messageExpression",
        }
    }

    fn outcome(self) -> Type {
        match self {
            Self::Rule => Type::Bool,
            Self::Message => Type::String,
        }
    }
}

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// The rules at one place of a schema.
fn rules<'a>(
    schema: &Field<'a, JSONSchemaProps>,
) -> impl Iterator<Item = Field<'a, ValidationRule>> + use<'a> {
    schema.x_kubernetes_validations().items()
}

/// What can be told of the rules at one place of a schema without reading their expressions.
pub(super) fn written(schema: &Field<'_, JSONSchemaProps>) {
    for rule in rules(schema) {
        let (expression, message) = (rule.rule(), rule.message());
        let said = message.text().trim();
        if expression.text().trim().is_empty() {
            expression.required("rule is not specified");
        } else if !message.text().is_empty() && said.is_empty() {
            message.invalid("must be non-empty if specified");
        } else if said.contains('\n') {
            message.invalid("must not contain line breaks");
        } else if expression.text().trim().contains('\n') && said.is_empty() {
            message.required("message must be specified if rule contains line breaks");
        }
        let sentence = rule.message_expression();
        if !sentence.text().is_empty() && sentence.text().trim().is_empty() {
            sentence.required("messageExpression must be non-empty if specified");
        }
        if rule.reason().is_set() {
            rule.reason().one_of(&REASONS);
        }
        let path = rule.field_path();
        if !path.text().is_empty() {
            if path.text().trim().is_empty() {
                path.invalid("must be non-empty if specified");
            }
            if path.text().contains('\n') {
                path.invalid("must not contain line breaks");
            }
            if !leads_somewhere(path.text(), schema.view()) {
                path.invalid("must be a valid path");
            }
        }
    }
}

/// Whether a path such as `.spec['a.b']` names a field of the schema.
fn leads_somewhere(path: &str, schema: View<'_, JSONSchemaProps>) -> bool {
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
        let (fields, entries) = (at.properties(), at.additional_properties());
        at = match fields.find(&name) {
            Some(field) => field,
            None if !fields.is_set() && entries.is_object() => entries.as_type(),
            None => return false,
        };
    }
    true
}

/// What the rules of a schema cost together, and the most expensive of them.
#[derive(Default)]
pub(super) struct Costs<'a> {
    total: u64,
    most: Vec<(u64, Field<'a, Text>)>,
}

/// How many of the most expensive rules are named.
const NAMED: usize = 4;

impl<'a> Costs<'a> {
    /// One more expression, evaluated for so many values.
    fn add(&mut self, place: Field<'a, Text>, what: &str, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost > estimate::RULE {
            place.forbidden(estimate::message(what, cost, estimate::RULE));
        }
        if cost > 0 {
            self.most.push((cost, place));
            self.most.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.most.truncate(NAMED);
        }
    }

    /// Reports a total that is too high.
    pub(super) fn report(self, schema: &FieldRef<'_>) {
        if self.total <= estimate::SCHEMA {
            return;
        }
        for (_, place) in &self.most {
            place.forbidden(
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            );
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        schema.forbidden(estimate::message(what, self.total, estimate::SCHEMA));
    }
}

/// Where rules stand.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    /// The list around whose items nobody can follow from one change to the next.
    pub loose: Option<&'p str>,
    /// Whether it is the whole object.
    pub root: bool,
    /// How many values there can be by the bounds of all lists and maps around it; nothing when one has none.
    pub values: Option<u64>,
}

/// The expressions of the rules at one place.
pub(super) fn expressed<'a>(schema: &Field<'a, JSONSchemaProps>, place: Place<'_>, costs: &mut Costs<'a>) {
    let rules: Vec<Field<'a, ValidationRule>> = rules(schema).collect();
    if rules.is_empty() {
        return;
    }
    let is_object = place.root || schema.view().x_kubernetes_embedded_resource().flag();
    let whole = if is_object { names::of_root(schema.value) } else { schema.value.clone() };
    // What an optional holds is not looked at here.
    let nothing = json!({});
    let values = place.values.unwrap_or_else(|| estimate::most_values(schema.view()));
    let Some(of) = types::schema::of_rules(JSONSchemaProps::of(&whole), "self") else {
        return schema
            .x_kubernetes_validations()
            .forbidden("the schema has no type, so that rules cannot be about its values");
    };
    for rule in rules {
        let is_optional = rule.view().optional_old_self().flag();
        let old = if is_optional { &nothing } else { &whole };
        let variables = [("self", &whole), ("oldSelf", old)];
        let old = if is_optional { Type::Optional(Box::new(of.clone())) } else { of.clone() };
        let typed = [("self", of.clone()), ("oldSelf", old)];
        let program = match understood(rule.view().rule().text().trim(), &typed, Expression::Rule) {
            Ok(program) => program,
            Err(why) => {
                rule.rule().with(&shown(rule.view())).invalid(why.to_string());
                continue;
            }
        };
        let cost = |program: &Program| estimate::cost(program, &variables).saturating_mul(values);
        costs.add(rule.rule(), "estimated rule cost", cost(&program));
        let sentence = rule.message_expression();
        if !sentence.is_empty() {
            match understood(sentence.text().trim(), &typed, Expression::Message) {
                Ok(program) => {
                    costs.add(sentence, "estimated messageExpression cost", cost(&program));
                }
                Err(why) => sentence.with(&shown(rule.view())).invalid(why.to_string()),
            }
        }
        match (program.references().has_variable("oldSelf"), place.loose) {
            (true, Some(within)) => rule.rule().invalid(format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
            )),
            (false, _) if rule.optional_old_self().is_set() => {
                rule.optional_old_self().invalid("may not be set if oldSelf is not used in rule");
            }
            _ => {}
        }
    }
}

/// An expression that can be used, or why it cannot.
fn understood(text: &str, typed: &[(&str, Type)], what: Expression) -> Result<Program, RuleError> {
    let program = expressions::compile(text).map_err(|why| RuleError::Compile { what, why })?;
    let found = types::check(&program, typed).map_err(|why| RuleError::Types { what, why })?;
    if found == what.outcome() { Ok(program) } else { Err(RuleError::Outcome(what)) }
}

/// A rule as upstream shows it.
fn shown(rule: View<'_, ValidationRule>) -> Value {
    json!({
        "Rule": rule.rule().text(), "Message": rule.message().text(),
        "MessageExpression": rule.message_expression().text(), "Reason": rule.reason(),
        "FieldPath": rule.field_path().text(), "OptionalOldSelf": rule.optional_old_self(),
    })
}
