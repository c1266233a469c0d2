//! Compiles and evaluates the expressions of one policy. Pure: no cluster access, no clock.

use super::scope::{Expression, Facts, Failed, RuleError, Scope};
use cel::Context;
use coracle_expressions::{self as expressions, Budget, to_cel};
use coracle_fields::View;
use coracle_fields::admissionregistration::v1;
use serde_json::Value;

/// The longest sentence that an expression may make up.
const SENTENCE: usize = 5 * 1024;
/// The longest note for the audit log.
const NOTE: usize = 10 * 1024;
/// A validation that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Denial {
    /// Which of the policy's validations.
    pub index: usize,
    /// What is said.
    pub message: String,
    /// The reason of the answer.
    pub reason: &'static str,
}

/// What a policy says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Validations that failed, in order.
    pub denials: Vec<Denial>,
    /// Notes for the audit log.
    pub audit_annotations: Vec<(String, String)>,
    /// Notes that could not be made: the request is refused, whatever the binding does about denials.
    pub broken: Vec<String>,
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: &'static str,
}

/// The expressions of one policy.
pub struct Rules {
    scope: Scope,
    validations: Vec<Validation>,
    audit_annotations: Vec<(String, Expression)>,
    ignores_failure: bool,
}

impl Rules {
    /// Those of a policy's spec. Expressions that do not compile fail when they are asked.
    pub fn of(spec: View<'_, v1::ValidatingAdmissionPolicySpec>) -> Self {
        let named = |name: &str, expression: &str| (name.to_owned(), Expression::of(expression));
        let note =
            |one: View<'_, v1::AuditAnnotation>| named(one.key().text(), one.value_expression().text());
        let validation = |one: View<'_, v1::Validation>| Validation {
            expression: Expression::of(one.expression().text()),
            message: one.message().text().trim().to_owned(),
            message_expression: one
                .message_expression()
                .get()
                .filter(|text| !text.trim().is_empty())
                .map(Expression::of),
            reason: match one.reason().text() {
                "Unauthorized" => "Unauthorized",
                "Forbidden" => "Forbidden",
                "RequestEntityTooLarge" => "RequestEntityTooLarge",
                _ => "Invalid",
            },
        };
        Self {
            scope: Scope::of(spec.match_conditions(), spec.variables(), spec.param_kind()),
            validations: spec.validations().items().map(validation).collect(),
            audit_annotations: spec.audit_annotations().items().map(note).collect(),
            ignores_failure: spec.failure_policy() == "Ignore",
        }
    }

    /// Whether what cannot be decided is let through.
    pub fn ignores_failure(&self) -> bool {
        self.ignores_failure
    }

    /// What the policy says of a request that it is about.
    pub fn evaluate_all(&self, facts: &Facts<'_>) -> Outcome {
        expressions::evaluate_blocking(expressions::VALIDATION + expressions::CONDITIONS, |budget| {
            let mut context = self.scope.context(facts, budget);
            match self.scope.wanted(&context, budget) {
                Ok(true) => self.found(&mut context, facts.namespace, budget),
                Ok(false) => Outcome::default(),
                Err(errors) => {
                    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
                    let denials = self.failure(0, texts.join(", ")).into_iter().collect();
                    Outcome { denials, ..Outcome::default() }
                }
            }
        })
    }

    /// What the policy says of a request that its conditions are about.
    fn found(&self, context: &mut Context<'_, '_>, namespace: &Value, budget: &mut Budget) -> Outcome {
        context.add_variable_from_value("namespaceObject", to_cel(namespace));
        let failed = self.scope.set_variables(context, budget);
        let mut outcome = Outcome::default();
        for (index, validation) in self.validations.iter().enumerate() {
            match validation.expression.evaluate(context, &failed, budget) {
                Ok(cel::Value::Bool(true)) => {}
                Ok(_) => {
                    let message = validation.message_text(context, &failed, budget);
                    outcome.denials.push(Denial { index, message, reason: validation.reason });
                }
                Err(error) => outcome.denials.extend(self.failure(index, error.to_string())),
            }
            if budget.is_spent() {
                break;
            }
        }
        for (key, expression) in &self.audit_annotations {
            match audit_annotation(expression, context, &failed, budget) {
                Ok(Some(text)) => outcome.audit_annotations.push((key.clone(), text)),
                Ok(None) => {}
                Err(_) if self.ignores_failure => {}
                Err(error) => outcome.broken.push(error.to_string()),
            }
            if budget.is_spent() {
                break;
            }
        }
        outcome
    }

    fn failure(&self, index: usize, message: String) -> Option<Denial> {
        (!self.ignores_failure).then_some(Denial { index, message, reason: "Invalid" })
    }
}

impl Validation {
    /// What is said when it fails: what its own expression makes up, else its sentence, else the expression.
    fn message_text(&self, context: &Context<'_, '_>, failed: &Failed, budget: &mut Budget) -> String {
        let made =
            self.message_expression.as_ref().and_then(|made| match made.evaluate(context, failed, budget) {
                Ok(cel::Value::String(text)) => Some(text.trim().to_owned()),
                _ => None,
            });
        let made = made.filter(|text| !text.is_empty() && text.len() <= SENTENCE && !text.contains('\n'));
        match made {
            Some(text) => text,
            None if !self.message.is_empty() => self.message.clone(),
            None => format!("failed expression: {}", self.expression.text),
        }
    }
}

fn audit_annotation(
    expression: &Expression,
    context: &Context<'_, '_>,
    failed: &Failed,
    budget: &mut Budget,
) -> Result<Option<String>, RuleError> {
    match expression.evaluate(context, failed, budget)? {
        cel::Value::Null => Ok(None),
        cel::Value::String(text) => {
            let mut text = text.trim().to_owned();
            let end = (0..=NOTE.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
            text.truncate(end.unwrap_or(0));
            Ok(Some(text).filter(|text| !text.is_empty()))
        }
        other => Err(RuleError::NotText {
            expression: expression.text.clone(),
            found: other.type_of().to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scope::SPENT;
    use super::*;
    use coracle_expressions::authorizer::ResourceTarget;
    use coracle_fields::Schema as _;
    use serde_json::json;
    use std::sync::Arc;

    fn evaluate_all(spec: Value, replicas: i64) -> Outcome {
        let object = json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas}});
        let facts = Facts {
            request: &json!({"userInfo": {"username": "u"}}),
            object: &object,
            old: &Value::Null,
            namespace: &json!({"metadata": {"name": "space"}}),
            params: &json!({"most": 5}),
            checks: &Arc::default(),
            resource: &ResourceTarget::default(),
        };
        Rules::of(v1::ValidatingAdmissionPolicySpec::of(&spec)).evaluate_all(&facts)
    }

    fn messages(spec: Value, replicas: i64) -> Vec<String> {
        evaluate_all(spec, replicas).denials.into_iter().map(|denial| denial.message).collect()
    }

    #[test]
    fn validations_deny_in_their_own_words() {
        let made = json!({"validations": [
            {"expression": "object.spec.replicas > 1", "messageExpression": "'got ' + string(object.spec.replicas)", "message": "no"},
            {"expression": "object.spec.replicas > 1", "messageExpression": "'got ' + object.spec.replicas", "message": "some"},
            {"expression": " object.spec.replicas > 1", "reason": "Forbidden"},
            {"expression": "namespaceObject.metadata.name == 'space' && request.userInfo.username == 'u'"}]});
        assert_eq!(
            messages(made.clone(), 1),
            ["got 1", "some", "failed expression: object.spec.replicas > 1"]
        );
        assert_eq!(evaluate_all(made.clone(), 1).denials[2].reason, "Forbidden");
        assert_eq!(evaluate_all(made, 2), Outcome::default());
    }

    #[test]
    fn variables_know_those_before_and_matter_to_those_who_ask() {
        let spec = |validation: &str, policy: &str| {
            json!({"failurePolicy": policy, "paramKind": {}, "validations": [{"expression": validation}], "variables": [
                {"name": "n", "expression": "object.spec.replicas"},
                {"name": "odd", "expression": "variables.n % 2 == 1"},
                {"name": "none", "expression": "object.spec.nothing"}]})
        };
        assert!(messages(spec("variables.odd && variables.n < params.most", "Fail"), 3).is_empty());
        assert_eq!(messages(spec("variables.odd", "Fail"), 2), ["failed expression: variables.odd"]);
        let said = messages(spec("variables.none == 1", "Fail"), 2).concat();
        assert!(said.contains("composited variable \"none\" fails to evaluate"), "{said}");
        assert!(said.contains("no such key: nothing"), "{said}");
        assert!(messages(spec("variables.none == 1", "Ignore"), 2).is_empty());
    }

    #[test]
    fn conditions_and_notes() {
        let spec = |condition: &str, note: &str| {
            json!({"matchConditions": [{"name": "c", "expression": condition}], "validations": [{"expression": "false"}],
                "auditAnnotations": [{"key": "k", "valueExpression": note}]})
        };
        assert_eq!(evaluate_all(spec("object.spec.replicas > 5", "'x'"), 1), Outcome::default());
        let outcome = evaluate_all(spec("true", "'is ' + string(object.spec.replicas)"), 1);
        assert_eq!(
            (outcome.denials.len(), outcome.audit_annotations),
            (1, vec![("k".into(), "is 1".into())])
        );
        assert!(evaluate_all(spec("true", "null"), 1).audit_annotations.is_empty());
        assert_eq!(evaluate_all(spec("true", "1"), 1).broken.len(), 1);
        assert!(messages(spec("object.nothing", "null"), 1).concat().contains("no such key: nothing"));
    }

    #[test]
    fn what_costs_too_much_has_failed() {
        let (much, little) =
            ("(lists.range(600000) + lists.range(600000)).size() > 0", "lists.range(900000).size() > 0");
        let spec = |failure: &str, expression: &str, count: usize| json!({"failurePolicy": failure, "validations": vec![json!({"expression": expression}); count]});
        let said = messages(spec("Fail", much, 1), 1).concat();
        assert!(
            said.contains("resulted in error: operation cancelled: actual cost limit exceeded"),
            "{said}"
        );
        assert!(messages(spec("Ignore", much, 1), 1).is_empty());
        // All together have a budget, too.
        let said = messages(spec("Fail", little, 20), 1);
        assert_eq!(said, [SPENT]);
        let variables = json!({"variables": [{"name": "v", "expression": much}], "validations": [{"expression": "variables.v"}]});
        assert!(messages(variables, 1).concat().contains("actual cost limit exceeded"));
    }
}
