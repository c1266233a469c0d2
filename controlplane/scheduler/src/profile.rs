//! A profile: which rules apply to the pods of one scheduler name, with which weights and arguments.

use super::pod::{PodInfo, Spread};
use super::rejection::Plugin;
use super::rules::Rules;
use super::scores::Weights;
use super::scores::allocation::{Balance, Fit};
use super::terms::Term;
use super::wire::NodeTerm;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The scheduler that takes pods that name none.
pub const DEFAULT_NAME: &str = "default-scheduler";

/// A spread constraint for pods that have none of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultConstraint {
    /// The node label that makes a domain.
    pub topology: String,
    /// How uneven it may become.
    pub max_skew: i64,
    /// With fewer domains than this, the least is zero.
    pub min_domains: i64,
    /// `DoNotSchedule`.
    pub hard: bool,
    /// Only nodes that the pod's node affinity admits count.
    pub honor_affinity: bool,
    /// Only nodes whose taints the pod tolerates count.
    pub honor_taints: bool,
}

/// A profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// Weights of the scores.
    pub weights: Weights,
    /// What differs from the default rules.
    pub rules: Arc<Rules>,
    /// Nodes that the pods prefer, beside their own preferences.
    pub preferred: Vec<(i64, NodeTerm)>,
    /// Spread of pods without constraints of their own; unset: over hosts and zones.
    pub spread: Option<Vec<DefaultConstraint>>,
    /// How much of a node should be used.
    pub fit: Fit,
    /// Which resources should be used evenly.
    pub balance: Balance,
    /// How many of the possible nodes are compared for one pod, in percent; unset: fewer in larger clusters.
    pub percentage: Option<usize>,
}

impl Profile {
    /// The rules, to change them.
    pub fn rules_mut(&mut self) -> &mut Rules {
        Arc::make_mut(&mut self.rules)
    }

    /// Applies to a pod what the profile adds to its rules.
    fn extend(&self, pod: &mut PodInfo) {
        if self.rules.skipped.has(Plugin::SchedulingGates) {
            pod.gates.clear();
        }
        pod.node_preferred.extend(self.preferred.iter().cloned());
        if let (Some(constraints), Some(owner), true) = (&self.spread, &pod.owner, pod.spread_by_default) {
            let made = constraints.iter().map(|c| Spread {
                term: Term::of_owner(&c.topology, owner, &pod.namespace),
                max_skew: c.max_skew,
                min_domains: c.min_domains,
                hard: c.hard,
                honor_affinity: c.honor_affinity,
                honor_taints: c.honor_taints,
            });
            pod.spread = made.collect();
        }
        pod.rules = Some(self.rules.clone());
    }
}

/// Profiles by scheduler name.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiles {
    by_name: BTreeMap<String, Arc<Profile>>,
    /// Whether all of them are the default one, so that pods need not be looked at.
    plain: bool,
}

impl Default for Profiles {
    fn default() -> Self {
        Self::new([(DEFAULT_NAME.to_owned(), Profile::default())])
    }
}

impl Profiles {
    /// From profiles by name.
    pub fn new(profiles: impl IntoIterator<Item = (String, Profile)>) -> Self {
        let by_name: BTreeMap<_, _> =
            profiles.into_iter().map(|(name, profile)| (name, Arc::new(profile))).collect();
        let plain = by_name.values().all(|profile| **profile == Profile::default());
        Self { by_name, plain }
    }

    /// The profile of a scheduler name.
    pub fn get(&self, scheduler: &str) -> Option<&Arc<Profile>> {
        self.by_name.get(scheduler)
    }

    /// Applies to a pod what its profile adds to its rules.
    pub fn adapt(&self, pod: &mut PodInfo) {
        if self.plain {
            return;
        }
        if let Some(profile) = self.get(&pod.scheduler) {
            profile.extend(pod);
        }
    }
}
