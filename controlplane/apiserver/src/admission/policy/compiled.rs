//! Compiled policies, kept until their policy changes.

use coracle_kinds::object::Object;
use coracle_store::Revision;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many policies are kept.
const MAX_KEPT: usize = 1024;

/// The compiled policies of a plugin, by name.
pub struct Compiled<T>(Mutex<HashMap<String, (Revision, Arc<T>)>>);

impl<T> Default for Compiled<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Compiled<T> {
    /// The policy as it is now.
    pub fn get(&self, policy: &Object, compile: impl FnOnce() -> T) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((revision, known)) = all.get(&policy.meta.name)
            && *revision == policy.revision
        {
            return known.clone();
        }
        // Deleted policies go with the others, which are compiled again.
        if all.len() >= MAX_KEPT {
            all.clear();
        }
        let made = Arc::new(compile());
        all.insert(policy.meta.name.clone(), (policy.revision, made.clone()));
        made
    }
}
