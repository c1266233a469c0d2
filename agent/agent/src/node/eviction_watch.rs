//! Which eviction thresholds are crossed, and since when. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::eviction_signals::{Signals, is_of_disk, is_of_memory};
use crate::config::eviction::{ALLOCATABLE_MEMORY, EvictionPolicy};
use crate::pod::node_facts::Pressure;

/// A threshold that makes pods go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// What runs short.
    pub signal: &'static str,
    /// Least amount that must be free.
    pub least: i64,
    /// What is free.
    pub free: i64,
    /// Pods have time to end.
    pub is_soft: bool,
}

/// A signal, and which of its thresholds is meant.
type Key = (&'static str, usize);

/// What was observed before.
#[derive(Debug, Default)]
pub struct EvictionWatch {
    /// Since when thresholds are crossed without a break.
    since: BTreeMap<Key, Instant>,
    /// Thresholds that made pods go when they were last looked at.
    acting: BTreeSet<Key>,
    /// When signals were last below a threshold.
    seen: BTreeMap<&'static str, Instant>,
}

impl EvictionWatch {
    /// Thresholds that make pods go now: hard ones at once, soft ones after their grace period. Memory, which kills, comes
    /// first, and of the rest hard ones. Signals whose thresholds may be those of another come after it.
    pub fn observe(&mut self, signals: &Signals, policy: &EvictionPolicy, now: Instant) -> Vec<Met> {
        let (mut since, mut acting, mut all) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        for (&signal, &(free, total)) in signals {
            for (at, limit) in policy.of(signal).enumerate() {
                // Without a grace period, a soft threshold is a hard one.
                let (least, is_soft) = (limit.least.of(total), !limit.grace.is_zero());
                let key = (signal, at);
                // What made pods go ends only when there is some more than the threshold.
                let reclaim = limit.reclaim.filter(|_| self.acting.contains(&key));
                let more = reclaim.map_or(0, |reclaim| reclaim.of(total));
                if free >= least.saturating_add(more) {
                    continue;
                }
                self.seen.insert(signal, now);
                let began = self.since.get(&key).copied().unwrap_or(now);
                since.insert(key, began);
                if now.duration_since(began) >= limit.grace {
                    acting.insert(key);
                    all.push(Met { signal, least, free, is_soft });
                }
            }
        }
        (self.since, self.acting) = (since, acting);
        let is_derived = |signal: &str| signal == ALLOCATABLE_MEMORY || signal.starts_with("containerfs.");
        all.sort_by_key(|met| (!is_of_memory(met.signal), met.is_soft, is_derived(met.signal)));
        all
    }

    /// What the node was short of within a time. Soft thresholds count as soon as they are crossed.
    pub fn pressure(&mut self, within: Duration, now: Instant) -> Pressure {
        self.seen.retain(|_, at| now.duration_since(*at) < within);
        Pressure {
            memory: self.seen.keys().any(|signal| is_of_memory(signal)),
            disk: self.seen.keys().any(|signal| is_of_disk(signal)),
            pids: self.seen.contains_key("pid.available"),
        }
    }
}

#[cfg(test)]
mod tests;
