//! What the expressions of a policy are evaluated with, and those that all policies have: match conditions and variables.
//! Pure: no cluster access, no clock.

use cel::{Context, ExecutionError};
use coracle_expressions::authorizer::{Checks, ResourceTarget, add_authorizer};
use coracle_expressions::{self as expressions, Budget, CompileError, Failure, PatchForm, Program, to_cel};
use coracle_fields::admissionregistration::v1;
use coracle_fields::{List, View};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// What is said when there is nothing left to spend.
pub const SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What expressions may look at.
pub struct Facts<'a> {
    /// The request.
    pub request: &'a Value,
    /// The object as it would be; null for deletes.
    pub object: &'a Value,
    /// The object as it was; null for creates.
    pub old: &'a Value,
    /// The namespace of the object; null where there is none.
    pub namespace: &'a Value,
    /// What the binding hands to the policy; null when nothing.
    pub params: &'a Value,
    /// Checks of permissions.
    pub checks: &'a Arc<Checks>,
    /// The resource of the request.
    pub resource: &'a ResourceTarget,
}

/// Why an expression decides nothing.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    #[error("compilation error: {0}")]
    Compile(Arc<CompileError>),
    #[error("{SPENT}")]
    Spent,
    #[error("expression '{expression}' resulted in error: {failure}")]
    Evaluation { expression: String, failure: Box<Failure> },
    /// It asks for a variable that has no value.
    #[error(
        "expression '{expression}' resulted in error: composited variable {name:?} fails to evaluate: {error}"
    )]
    Variable { expression: String, name: String, error: Arc<RuleError> },
    /// A condition has another value.
    #[error("expression '{0}' is neither true nor false")]
    NotBool(String),
    /// A note for the audit log has another value.
    #[error(
        "valueExpression '{expression}' resulted in unsupported return type: {found}. Return type must be either string or null."
    )]
    NotText { expression: String, found: String },
}

/// Variables that have no value, and why.
pub type Failed = HashMap<String, Arc<RuleError>>;

/// An expression as it was written, and its program.
pub struct Expression {
    /// What was written.
    pub text: String,
    program: Result<Program, Arc<CompileError>>,
}

/// The match conditions and variables of a policy.
pub struct Scope {
    conditions: Vec<Expression>,
    variables: Vec<(String, Expression)>,
    takes_params: bool,
}

impl Expression {
    /// An expression that does not compile fails when it is asked.
    pub fn of(text: &str) -> Self {
        let text = text.trim().to_owned();
        let program = expressions::compile(&text).map_err(Arc::new);
        Self { text, program }
    }

    /// The same of a mutation.
    pub fn patch(text: &str, form: PatchForm) -> Self {
        let text = text.trim().to_owned();
        let program = expressions::compile_patch(&text, form).map_err(Arc::new);
        Self { text, program }
    }

    /// Its value.
    pub fn evaluate(
        &self,
        context: &Context<'_, '_>,
        failed: &Failed,
        budget: &mut Budget,
    ) -> Result<cel::Value, RuleError> {
        let program = self.program.as_ref().map_err(|error| RuleError::Compile(error.clone()))?;
        program.evaluate(context, budget).map_err(|failure| self.failure(failure, failed))
    }

    fn failure(&self, failure: Failure, failed: &Failed) -> RuleError {
        let expression = self.text.clone();
        match &failure {
            Failure::Budget => return RuleError::Spent,
            Failure::Evaluation(ExecutionError::NoSuchKey(key)) => {
                if let Some((name, error)) = failed.get_key_value(key.as_str()) {
                    return RuleError::Variable { expression, name: name.clone(), error: error.clone() };
                }
            }
            _ => {}
        }
        RuleError::Evaluation { expression, failure: Box::new(failure) }
    }
}

impl Scope {
    /// Those of a policy's spec.
    pub fn of(
        conditions: View<'_, List<v1::MatchCondition>>,
        variables: View<'_, List<v1::Variable>>,
        kind: View<'_, v1::ParamKind>,
    ) -> Self {
        let variable = |one: View<'_, v1::Variable>| {
            (one.name().text().to_owned(), Expression::of(one.expression().text()))
        };
        Self {
            conditions: conditions.items().map(|one| Expression::of(one.expression().text())).collect(),
            variables: variables.items().map(variable).collect(),
            takes_params: kind.is_object(),
        }
    }

    /// A context with the request, the objects, the parameters and the authorizer.
    pub fn context(&self, facts: &Facts<'_>, budget: &mut Budget) -> Context<'static, 'static> {
        let mut context = expressions::context();
        let known =
            [("request", facts.request), ("object", facts.object), ("oldObject", facts.old)].into_iter();
        for (name, value) in known.chain(self.takes_params.then_some(("params", facts.params))) {
            budget.take(expressions::values_in(value) / 4);
            context.add_variable_from_value(name, to_cel(value));
        }
        add_authorizer(&mut context, facts.checks, facts.resource.clone());
        context
    }

    /// False beats failure beats true, as for webhooks.
    pub fn wanted(&self, context: &Context<'_, '_>, budget: &mut Budget) -> Result<bool, Vec<RuleError>> {
        let mut failed = Vec::new();
        for condition in &self.conditions {
            match condition.evaluate(context, &Failed::new(), budget) {
                Ok(cel::Value::Bool(true)) => {}
                Ok(cel::Value::Bool(false)) => return Ok(false),
                Ok(_) => failed.push(RuleError::NotBool(condition.text.clone())),
                Err(error) => failed.push(error),
            }
        }
        if failed.is_empty() { Ok(true) } else { Err(failed) }
    }

    /// `variables.NAME`, each knowing those before it; why some have no value, which matters to those who ask for it.
    pub fn set_variables(&self, context: &mut Context<'_, '_>, budget: &mut Budget) -> Failed {
        let (mut values, mut failed) = (HashMap::<String, cel::Value>::new(), Failed::new());
        context.add_variable_from_value("variables", cel::Value::from(values.clone()));
        let mut size = 0;
        for (name, expression) in &self.variables {
            match expression.evaluate(context, &failed, budget) {
                Ok(value) => {
                    // All of them are copied for the next one.
                    size += expressions::values_made(&value);
                    budget.take(size / 4);
                    values.insert(name.clone(), value);
                    context.add_variable_from_value("variables", cel::Value::from(values.clone()));
                }
                Err(error) => {
                    failed.insert(name.clone(), Arc::new(error));
                }
            }
            if budget.is_spent() {
                break;
            }
        }
        failed
    }
}
