//! Reinvocation: when webhooks or policies have changed an object, all mutating plugins run a second time. Of webhooks and
//! policies, only those with `reinvocationPolicy: IfNeeded` take part, and only if the object was changed after them.

use serde_json::Value;
use std::collections::HashSet;

/// What happened in the first run of the mutating plugins.
#[derive(Default)]
pub struct Reinvocation {
    /// Webhooks that were called.
    pub webhooks: Invoked,
    /// Policies that were applied.
    pub policies: Invoked,
    needed: bool,
}

/// The webhooks, or the policies, of one request.
#[derive(Default)]
pub struct Invoked {
    is_second: bool,
    /// The object as the plugin left it.
    last: Option<Value>,
    /// Those that may be invoked again.
    reinvocable: HashSet<String>,
    /// Those of them after which the object was changed.
    again: HashSet<String>,
}

impl Reinvocation {
    /// Begins the second run, if there has to be one.
    pub fn begin_second(&mut self) -> bool {
        (self.webhooks.is_second, self.policies.is_second) = (true, true);
        std::mem::take(&mut self.needed)
    }

    /// A webhook or a policy has changed the object.
    pub fn needed(&mut self) {
        self.needed = true;
    }
}

impl Invoked {
    /// The plugin begins. In the second run, other plugins may have changed the object since.
    pub fn begin(&mut self, object: &Value) {
        if self.is_second && self.last.as_ref().is_some_and(|last| last != object) {
            self.changed();
        }
    }

    /// Whether one of them is not invoked in this run.
    pub fn skips(&self, key: &str) -> bool {
        self.is_second && !self.again.contains(key)
    }

    /// The object was changed: those that were invoked before are invoked again.
    fn changed(&mut self) {
        self.again.extend(self.reinvocable.drain());
    }

    /// One of them was invoked.
    pub fn invoked(&mut self, key: String, changed: bool, reinvocable: bool) {
        if changed {
            self.changed();
        }
        if reinvocable {
            self.reinvocable.insert(key);
        }
    }

    /// The plugin is done.
    pub fn end(&mut self, object: &Value) {
        self.last = (!self.reinvocable.is_empty()).then(|| object.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn those_before_a_change_are_invoked_again() {
        let mut all = Reinvocation::default();
        all.policies.begin(&json!(1));
        all.policies.invoked("first".into(), true, true);
        all.policies.invoked("never".into(), true, false);
        all.policies.invoked("last".into(), false, true);
        all.policies.end(&json!(2));
        all.needed();
        assert!(!all.policies.skips("never"), "in the first run");
        assert!(all.begin_second() && !all.begin_second());
        all.policies.begin(&json!(2));
        assert!(!all.policies.skips("first"), "it was changed after it");
        assert!(all.policies.skips("last") && all.policies.skips("never") && all.policies.skips("new"));
    }

    #[test]
    fn changes_of_other_plugins_count() {
        let mut all = Reinvocation::default();
        all.policies.invoked("one".into(), true, true);
        all.policies.end(&json!(2));
        all.begin_second();
        all.policies.begin(&json!(3));
        assert!(!all.policies.skips("one"));
    }

    #[test]
    fn what_changes_nothing_has_no_second_run() {
        let mut all = Reinvocation::default();
        all.webhooks.invoked("one".into(), false, true);
        assert!(!all.begin_second());
    }
}
