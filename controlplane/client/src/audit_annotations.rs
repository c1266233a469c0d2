//! Annotations of the audit event of a request.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotations that authorization and admission add to the audit event, also when the request is denied. The default
/// discards them: the request is not audited.
#[derive(Debug, Clone, Default)]
pub struct AuditAnnotations(Option<Arc<Mutex<BTreeMap<String, String>>>>);

impl AuditAnnotations {
    /// Annotations of a request that is audited.
    pub fn recorded() -> Self {
        Self(Some(Arc::default()))
    }

    /// Adds an annotation. As in Kubernetes, the first value of a key is kept.
    pub fn add(&self, key: impl Into<String>, text: impl Into<String>) {
        if let Some(all) = &self.0 {
            all.lock().entry(key.into()).or_insert_with(|| text.into());
        }
    }

    /// A copy of the annotations so far.
    pub fn all(&self) -> BTreeMap<String, String> {
        self.0.as_ref().map(|all| all.lock().clone()).unwrap_or_default()
    }
}
