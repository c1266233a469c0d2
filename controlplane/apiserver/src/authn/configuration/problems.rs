//! Collects what is wrong with a file.

use coracle_proto::status::FieldError;
use serde_json::json;

/// What is wrong so far.
#[derive(Default)]
pub(super) struct Problems(Vec<FieldError>);

impl Problems {
    pub(super) fn add(&mut self, problem: FieldError) {
        self.0.push(problem);
    }

    pub(super) fn required(&mut self, field: impl Into<String>, why: &str) {
        self.add(FieldError::required(field, why));
    }

    pub(super) fn invalid(&mut self, field: impl Into<String>, value: &str, why: &str) {
        self.add(FieldError::invalid(field, &json!(value), why));
    }

    pub(super) fn duplicate(&mut self, field: impl Into<String>, value: &str) {
        self.add(FieldError::duplicate(field, &json!(value)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_all(self) -> Vec<FieldError> {
        self.0
    }
}
