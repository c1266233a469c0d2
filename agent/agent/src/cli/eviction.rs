//! Options about evictions.

use std::collections::BTreeMap;
use std::time::Duration;

use super::values::{self, Graces, Thresholds};
use crate::config::eviction::{EvictionPolicy, SoftThreshold};

/// Options about evictions.
#[derive(Debug, clap::Args)]
pub struct EvictionOptions {
    /// Hard eviction thresholds: pods are evicted while less is free. Those of memory.available count for all pods together, too
    /// (allocatableMemory.available).
    #[arg(
        long,
        default_value = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,\
                         imagefs.inodesFree<5%",
        value_parser = values::thresholds
    )]
    pub eviction_hard: Thresholds,
    /// Soft eviction thresholds, such as memory.available<500Mi: pods are evicted after less was free for the time of
    /// --eviction-soft-grace-period.
    #[arg(long, value_parser = values::thresholds)]
    pub eviction_soft: Option<Thresholds>,
    /// How long less than each soft threshold must be free, such as memory.available=90s. Others are ignored.
    #[arg(long, value_parser = values::graces)]
    pub eviction_soft_grace_period: Option<Graces>,
    /// How much more than a threshold must be free until a shortage is over, such as memory.available=200Mi,nodefs.available=5%.
    #[arg(long, value_parser = values::reclaims)]
    pub eviction_minimum_reclaim: Option<Thresholds>,
    /// Most seconds that pods have to end when they are evicted for a soft threshold; they have at least one.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub eviction_max_pod_grace_period: i32,
    /// How long the node says that it is short of memory, disk or pids after it no longer is, such as 5m.
    #[arg(long, default_value = "5m", value_parser = values::duration)]
    pub eviction_pressure_transition_period: Duration,
}

/// Why options contradict each other.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EvictionError {
    /// Pods would never be evicted, or at once.
    #[error("--eviction-soft: {signal} has no grace period in --eviction-soft-grace-period")]
    NoGrace {
        /// The signal.
        signal: String,
    },
}

impl EvictionOptions {
    /// Signals with a grace period and no soft threshold.
    pub fn ignored(&self) -> Vec<&str> {
        let soft =
            |signal: &String| self.eviction_soft.as_ref().is_some_and(|all| all.0.contains_key(signal));
        let graces = self.eviction_soft_grace_period.iter().flat_map(|all| all.0.keys());
        graces.filter(|signal| !soft(signal)).map(String::as_str).collect()
    }

    /// When pods are evicted.
    pub fn policy(&self) -> Result<EvictionPolicy, EvictionError> {
        let graces = self.eviction_soft_grace_period.as_ref().map_or_else(BTreeMap::new, |all| all.0.clone());
        let thresholds =
            |all: &Option<Thresholds>| all.as_ref().map_or_else(BTreeMap::new, |all| all.0.clone());
        let mut soft = BTreeMap::new();
        for (signal, least) in thresholds(&self.eviction_soft) {
            match graces.get(&signal).copied() {
                Some(grace) => {
                    soft.insert(signal, SoftThreshold { least, grace });
                }
                None if least.is_off() => {}
                None => return Err(EvictionError::NoGrace { signal }),
            }
        }
        Ok(EvictionPolicy {
            hard: self.eviction_hard.0.clone(),
            soft,
            reclaim: thresholds(&self.eviction_minimum_reclaim),
            max_pod_grace: self.eviction_max_pod_grace_period,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::eviction::Threshold;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Options {
        #[command(flatten)]
        eviction: EvictionOptions,
    }

    fn policy(flags: &str) -> Result<EvictionPolicy, EvictionError> {
        let flags = ["coracle-agent"].into_iter().chain(flags.split_whitespace());
        Options::try_parse_from(flags).unwrap().eviction.policy()
    }

    #[test]
    fn every_soft_threshold_has_a_grace_period() {
        for (flags, want) in [
            ("", ""),
            ("--eviction-soft memory.available<1Gi --eviction-soft-grace-period memory.available=90s", ""),
            (
                "--eviction-soft memory.available<1Gi",
                "--eviction-soft: memory.available has no grace period in --eviction-soft-grace-period",
            ),
            (
                "--eviction-soft memory.available<1Gi,pid.available<5% --eviction-soft-grace-period memory.available=1s",
                "--eviction-soft: pid.available has no grace period in --eviction-soft-grace-period",
            ),
            ("--eviction-soft-grace-period nodefs.available=1m", ""),
            // Off, as for kubelets.
            ("--eviction-soft memory.available<100%,nodefs.available<0%", ""),
            ("--eviction-soft memory.available<100% --eviction-soft-grace-period memory.available=1s", ""),
            ("--eviction-minimum-reclaim pid.available=1%", ""),
        ] {
            let said = policy(flags).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(said, want, "{flags}");
        }
    }

    #[test]
    fn a_grace_period_without_a_soft_threshold_is_ignored() {
        let flags = "agent --eviction-soft memory.available<1Gi --eviction-soft-grace-period \
                     memory.available=1s,nodefs.available=1m";
        let options = Options::try_parse_from(flags.split_whitespace()).unwrap().eviction;
        assert_eq!(options.ignored(), ["nodefs.available"]);
        assert_eq!(options.policy().unwrap().soft.into_keys().collect::<Vec<_>>(), ["memory.available"]);
    }

    #[test]
    fn flags_make_a_policy() {
        let soft = policy(
            "--eviction-hard memory.available<100Mi --eviction-soft memory.available<1Gi \
             --eviction-soft-grace-period memory.available=1m30s --eviction-minimum-reclaim nodefs.available=5% \
             --eviction-max-pod-grace-period 20",
        );
        let memory = "memory.available".to_owned();
        let least = Threshold::Amount(1 << 30);
        let want = EvictionPolicy {
            hard: BTreeMap::from([(memory.clone(), Threshold::Amount(100 << 20))]),
            soft: BTreeMap::from([(memory, SoftThreshold { least, grace: Duration::from_secs(90) })]),
            reclaim: BTreeMap::from([("nodefs.available".to_owned(), Threshold::Percent(5.0))]),
            max_pod_grace: 20,
        };
        assert_eq!(soft, Ok(want));
        assert_eq!(policy("").unwrap().max_pod_grace, 0);
        assert_eq!(policy("--eviction-max-pod-grace-period -1").unwrap().max_pod_grace, -1);
    }
}
