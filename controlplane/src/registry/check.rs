//! How the write pipeline asks a kind: what to prepare before a write, and which field rules a write breaks.

use super::kinds::Kind;
use crate::validation::meta;
use coracle_proto::status::FieldError;
use serde_json::Value;

/// What an update subresource other than `/status` does, such as `/approval`.
#[derive(Clone, Copy)]
pub struct Change {
    /// Takes over from `old` what this endpoint may not change.
    pub prepare: fn(&mut Value, &Value),
    /// Field rules, `new` then `old`.
    pub validate: fn(&Value, &Value, &mut Vec<FieldError>),
}

impl Kind {
    /// Before an update: the main resource (`""`), `status`, or another subresource that updates the object.
    pub fn prepare_update(&self, subresource: &str, new: &mut Value, old: &Value) {
        match subresource {
            "" => (self.strategy.prepare_update)(new, old),
            "status" => (self.strategy.prepare_status)(new, old),
            other => {
                if let Some(change) = self.change_of(other) {
                    (change.prepare)(new, old);
                }
            }
        }
    }

    /// The rules that a new object breaks, metadata first.
    pub fn check_create(&self, new: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        meta::check(new, self.namespaced(), self.names.rule(), &mut errors);
        (self.strategy.validate)(new, &mut errors);
        (self.strategy.validate_create)(new, &mut errors);
        errors
    }

    /// The rules that a change breaks, metadata first.
    pub fn check_update(&self, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        meta::check_update(new, old, &mut errors);
        match subresource {
            "" => {
                (self.strategy.validate)(new, &mut errors);
                (self.strategy.validate_update)(new, old, &mut errors);
            }
            "status" => (self.strategy.validate_status)(new, old, &mut errors),
            other => {
                if let Some(change) = self.change_of(other) {
                    (change.validate)(new, old, &mut errors);
                }
            }
        }
        errors
    }

    fn change_of(&self, subresource: &str) -> Option<Change> {
        self.changes.iter().find(|(name, _)| *name == subresource).map(|(_, change)| *change)
    }
}
