//! What is said about a request for the audit log.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What those who look at a request have to say about it besides yes or no, by key; kept also when it is refused. By
/// default nobody listens.
#[derive(Debug, Clone, Default)]
pub struct Notes(Option<Arc<Mutex<BTreeMap<String, String>>>>);

impl Notes {
    /// Notes that somebody will read.
    pub fn kept() -> Self {
        Self(Some(Arc::default()))
    }

    /// Notes something; the first note of a key stands, as upstream has it.
    pub fn add(&self, key: impl Into<String>, text: impl Into<String>) {
        if let Some(all) = &self.0 {
            all.lock().entry(key.into()).or_insert_with(|| text.into());
        }
    }

    /// What was noted.
    pub fn all(&self) -> BTreeMap<String, String> {
        self.0.as_ref().map(|all| all.lock().clone()).unwrap_or_default()
    }
}
