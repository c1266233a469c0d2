//! CEL expressions over the claims of a token and over the user that they name.

use coracle_expressions::types::{CheckError, Type, check, check_outcome, variables as types};
use coracle_expressions::{Budget, CompileError, Failure, Program, StackError, compile, selects};

/// Why a text is no expression over claims or users.
#[derive(Debug, thiserror::Error)]
pub enum ExpressionError {
    /// It cannot be parsed.
    #[error("compilation failed: {0}")]
    Compile(CompileError),
    /// It has type errors.
    #[error("compilation failed: {0}")]
    Types(String),
    /// Its value has another type.
    #[error(transparent)]
    Outcome(CheckError),
}

impl From<CheckError> for ExpressionError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Types(why) => Self::Types(why),
            other => Self::Outcome(other),
        }
    }
}

/// Why an expression has no value for a token. It has no values of the token: this goes to the log.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EvaluationError {
    /// The token lacks a claim.
    #[error("{field}: no such key: {key}")]
    NoSuchKey {
        /// Where the expression is.
        field: String,
        /// What is missing.
        key: String,
    },
    /// The limits of cost do not suffice.
    #[error("{field}: {why}")]
    Cost {
        /// Where the expression is.
        field: String,
        /// Which limit.
        why: String,
    },
    /// Claims have other types than the expression expects.
    #[error("{0}: the expression cannot be evaluated with the claims of the token")]
    Claims(String),
    /// The value has another type.
    #[error("{field}: the expression must return {wanted}")]
    Outcome {
        /// Where the expression is.
        field: String,
        /// What it must return.
        wanted: &'static str,
    },
}

/// The variable of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `claims`
    Claims,
    /// `user`
    User,
}

impl Scope {
    fn variable(self) -> (&'static str, Type) {
        match self {
            Self::Claims => ("claims", types::claims()),
            Self::User => ("user", types::user()),
        }
    }
}

/// A compiled expression.
pub struct Expression {
    /// Its field in the configuration.
    field: String,
    program: Program,
}

impl Expression {
    /// An expression of any type; values are checked when it is evaluated.
    pub fn of_claims(field: String, text: &str) -> Result<Self, ExpressionError> {
        let program = compile(text).map_err(ExpressionError::Compile)?;
        check(&program, &[Scope::Claims.variable()])?;
        Ok(Self { field, program })
    }

    /// A rule, which is true or false.
    pub fn rule(field: String, text: &str, scope: Scope) -> Result<Self, ExpressionError> {
        let program = compile(text).map_err(ExpressionError::Compile)?;
        check_outcome(&program, &[scope.variable()], &[Type::Bool])?;
        Ok(Self { field, program })
    }

    /// Whether it reads a claim by its name.
    pub fn reads_claim(&self, claim: &str) -> Result<bool, StackError> {
        selects(&self.program, Scope::Claims.variable().0, claim)
    }

    fn evaluate(&self, context: &Variables, budget: &mut Budget) -> Result<cel::Value, EvaluationError> {
        let field = || self.field.clone();
        self.program.evaluate(context, budget).map_err(|failure| match failure {
            Failure::Evaluation(cel::ExecutionError::NoSuchKey(key)) => {
                EvaluationError::NoSuchKey { field: field(), key: key.to_string() }
            }
            Failure::Evaluation(_) => EvaluationError::Claims(field()),
            limit @ (Failure::Cost | Failure::Budget) => {
                EvaluationError::Cost { field: field(), why: limit.to_string() }
            }
        })
    }

    fn is_no(&self, wanted: &'static str) -> EvaluationError {
        EvaluationError::Outcome { field: self.field.clone(), wanted }
    }

    /// Whether a rule holds.
    pub(super) fn holds(&self, context: &Variables, budget: &mut Budget) -> Result<bool, EvaluationError> {
        match self.evaluate(context, budget)? {
            cel::Value::Bool(holds) => Ok(holds),
            _ => Err(self.is_no("true or false")),
        }
    }

    /// Its value, which must be a string.
    pub(super) fn text(&self, context: &Variables, budget: &mut Budget) -> Result<String, EvaluationError> {
        match self.evaluate(context, budget)? {
            cel::Value::String(text) => Ok(text.to_string()),
            _ => Err(self.is_no("a string")),
        }
    }

    /// Its value, which must be a string or a list of strings, or null; empty strings count as missing.
    pub(super) fn texts(
        &self,
        context: &Variables,
        budget: &mut Budget,
    ) -> Result<Vec<String>, EvaluationError> {
        let wanted = || self.is_no("a string or a list of strings");
        let mut texts = match self.evaluate(context, budget)? {
            cel::Value::Null => Vec::new(),
            cel::Value::String(text) => vec![text.to_string()],
            cel::Value::List(items) => {
                let text = |item: &cel::Value| match item {
                    cel::Value::String(text) => Ok(text.to_string()),
                    _ => Err(wanted()),
                };
                items.iter().map(text).collect::<Result<_, _>>()?
            }
            _ => return Err(wanted()),
        };
        texts.retain(|text| !text.is_empty());
        Ok(texts)
    }
}

/// The variable with its value.
pub(super) type Variables = cel::Context<'static, 'static>;

/// The variables of expressions of a scope.
pub(super) fn variables(scope: Scope, value: &serde_json::Value, budget: &mut Budget) -> Variables {
    budget.take(coracle_expressions::values_in(value) / 4);
    let mut context = coracle_expressions::context();
    context.add_variable_from_value(scope.variable().0, coracle_expressions::to_cel_claims(value));
    context
}
