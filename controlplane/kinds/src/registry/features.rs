//! Features of kinds that can be switched.

use super::kinds::{Kind, keep_status};
use super::strategy::workloads;

/// Features that are off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// `MaxUnavailableStatefulSet`: StatefulSets keep `spec.updateStrategy.rollingUpdate.maxUnavailable`.
    pub max_unavailable_stateful_set: bool,
}

impl Features {
    /// Changes the rows of kinds with features.
    pub(super) fn apply(self, rows: &mut [Kind]) {
        if !self.max_unavailable_stateful_set {
            return;
        }
        for row in rows.iter_mut().filter(|row| row.group == "apps" && row.kind == "StatefulSet") {
            row.strategy.prepare_create = workloads::create_stateful_set;
            row.strategy.prepare_update = keep_status;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::registry::index::Registry;
    use serde_json::json;

    #[test]
    fn max_unavailable_of_stateful_sets_is_stored_only_with_its_feature() {
        let asked =
            json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2, "partition": 1}}}});
        let with = |on: bool| {
            let registry = Registry::with(Features { max_unavailable_stateful_set: on });
            registry.kind("apps", "v1", "StatefulSet").unwrap()
        };
        let rolling = |set: &serde_json::Value| set["spec"]["updateStrategy"]["rollingUpdate"].clone();
        for (on, stored) in [(false, json!({"partition": 1})), (true, rolling(&asked))] {
            let mut new = asked.clone();
            (with(on).strategy.prepare_create)(&mut new);
            assert_eq!(rolling(&new), stored);
            let mut new = asked.clone();
            (with(on).strategy.prepare_update)(&mut new, &json!({"spec": {}}));
            assert_eq!(rolling(&new), stored);
        }
        let mut kept = asked.clone();
        (with(false).strategy.prepare_update)(&mut kept, &asked);
        assert_eq!(rolling(&kept), rolling(&asked), "it was in use before");
    }
}
