//! Which eviction thresholds are crossed, and since when. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::eviction_signals::{Signals, is_of_disk};
use crate::config::eviction::EvictionPolicy;
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
    /// first, and of the rest hard ones.
    pub fn observe(&mut self, signals: &Signals, policy: &EvictionPolicy, now: Instant) -> Vec<Met> {
        let (mut since, mut acting, mut all) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        for (&signal, &(free, total)) in signals {
            for (at, (threshold, grace)) in policy.of(signal).enumerate() {
                // Without a grace period, a soft threshold is a hard one.
                let (least, is_soft) = (threshold.of(total), !grace.is_zero());
                let key = (signal, at);
                // What made pods go ends only when there is some more than the threshold.
                let reclaim = policy.reclaim.get(signal).filter(|_| self.acting.contains(&key));
                let more = reclaim.map_or(0, |reclaim| reclaim.of(total));
                if free >= least.saturating_add(more) {
                    continue;
                }
                self.seen.insert(signal, now);
                let began = self.since.get(&key).copied().unwrap_or(now);
                since.insert(key, began);
                if now.duration_since(began) >= grace {
                    acting.insert(key);
                    all.push(Met { signal, least, free, is_soft });
                }
            }
        }
        (self.since, self.acting) = (since, acting);
        all.sort_by_key(|met| (!met.signal.starts_with("memory."), met.is_soft));
        all
    }

    /// What the node was short of within a time. Soft thresholds count as soon as they are crossed.
    pub fn pressure(&mut self, within: Duration, now: Instant) -> Pressure {
        self.seen.retain(|_, at| now.duration_since(*at) < within);
        Pressure {
            memory: self.seen.contains_key("memory.available"),
            disk: self.seen.keys().any(|signal| is_of_disk(signal)),
            pids: self.seen.contains_key("pid.available"),
        }
    }
}

#[cfg(test)]
mod tests;
