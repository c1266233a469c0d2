//! Which rules apply to a pod, if they are not the default ones.

use super::rejection::Plugin;
use super::wire::NodeSelector;
use std::collections::BTreeSet;
use std::time::Duration;

/// A set of rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PluginSet(u32);

impl PluginSet {
    /// Adds a rule.
    pub fn insert(&mut self, plugin: Plugin) {
        self.0 |= 1 << plugin as u32;
    }

    /// Whether a rule is in it.
    pub fn has(self, plugin: Plugin) -> bool {
        self.0 & (1 << plugin as u32) != 0
    }
}

/// Extended resources that NodeResourcesFit does not look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IgnoredResources {
    /// By name.
    pub names: BTreeSet<String>,
    /// By the part before the `/`.
    pub groups: BTreeSet<String>,
}

impl IgnoredResources {
    /// Whether a resource is ignored.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
            || name.split_once('/').is_some_and(|(group, _)| self.groups.contains(group))
    }
}

/// What differs from the default rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Rules that do not apply.
    pub skipped: PluginSet,
    /// Whether pods without a node may remove others.
    pub preempts: bool,
    /// How many nodes preemption compares: a percentage of those where it may help, and at least so many.
    pub preemption_candidates: (usize, usize),
    /// Resources that are not checked.
    pub ignored: IgnoredResources,
    /// Nodes that the pods may run on, beside their own affinity.
    pub enforced: Option<NodeSelector>,
    /// Weight of the required affinity of other pods to a pod, for the choice of its node.
    pub hard_affinity: i64,
    /// Whether preferences of other pods do not count for a pod that has none.
    pub ignores_preferences: bool,
    /// How long a claim may take to get its volume.
    pub volume_patience: Duration,
    /// How long devices with binding conditions may take to become ready.
    pub device_patience: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            skipped: PluginSet::default(),
            preempts: true,
            preemption_candidates: (10, 100),
            ignored: IgnoredResources::default(),
            enforced: None,
            hard_affinity: 1,
            ignores_preferences: false,
            volume_patience: Duration::from_secs(600),
            device_patience: Duration::from_secs(600),
        }
    }
}
