//! Which devices an expression selects. Answers are kept until devices change, and all evaluations of an expression until then
//! together have a limited cost: a claim whose selector is expensive does not stop the scheduler.

use super::DeviceId;
use super::pools::Device;
use coracle_cli::causes;
use coracle_expressions::devices::{AttributeError, DeviceSelector, SelectorError};
use coracle_expressions::{Budget, CompileError, VALIDATION};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How many expressions are kept.
const EXPRESSIONS: usize = 1024;

/// Why it is not known whether a device is selected.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum SelectionError {
    #[error("CEL compile error: {0}")]
    Compile(Arc<CompileError>),
    #[error("CEL runtime error: {0}")]
    Runtime(Arc<SelectorError>),
    #[error("CEL runtime error: {}", causes::chain(.0))]
    Attribute(AttributeError),
}

struct Expression {
    selector: Result<DeviceSelector, Arc<CompileError>>,
    budget: Budget,
    answers: HashMap<DeviceId, Result<bool, SelectionError>>,
}

impl Expression {
    fn new(text: &str) -> Self {
        let selector = DeviceSelector::compile(text).map_err(Arc::new);
        Self { selector, budget: Budget::of(VALIDATION), answers: HashMap::new() }
    }

    fn selects(&mut self, device: &Device) -> Result<bool, SelectionError> {
        let selector = self.selector.as_ref().map_err(|error| SelectionError::Compile(error.clone()))?;
        if let Some(known) = self.answers.get(&device.id) {
            return known.clone();
        }
        let answer = match &device.facts {
            Ok(facts) => selector
                .selects(facts, &mut self.budget)
                .map_err(|error| SelectionError::Runtime(Arc::new(error))),
            Err(error) => Err(SelectionError::Attribute(error.clone())),
        };
        self.answers.insert(device.id.clone(), answer.clone());
        answer
    }
}

/// Expressions and their answers.
#[derive(Default)]
pub(super) struct Selection(Mutex<HashMap<String, Expression>>);

impl std::fmt::Debug for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selection").field("expressions", &self.0.lock().len()).finish()
    }
}

impl Selection {
    /// Whether an expression selects a device.
    pub(super) fn selects(&self, text: &str, device: &Device) -> Result<bool, SelectionError> {
        let mut expressions = self.0.lock();
        if !expressions.contains_key(text) {
            if expressions.len() >= EXPRESSIONS {
                expressions.clear();
            }
            expressions.insert(text.to_owned(), Expression::new(text));
        }
        match expressions.get_mut(text) {
            Some(expression) => expression.selects(device),
            None => Ok(false),
        }
    }

    /// Devices changed: answers about them are void.
    pub(super) fn forget(&mut self) {
        for expression in self.0.get_mut().values_mut() {
            expression.answers.clear();
            expression.budget = Budget::of(VALIDATION);
        }
    }
}
