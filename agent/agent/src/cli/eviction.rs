//! Options about evictions.

use std::collections::BTreeMap;
use std::time::Duration;

use super::values::{self, Graces, Thresholds};
use crate::config::eviction::{EvictionPolicy, SoftThreshold};

/// Options about evictions.
#[derive(Debug, clap::Args)]
pub struct EvictionOptions {
    /// Hard eviction thresholds: pods are evicted while less is free.
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
    /// How long less than each soft threshold must be free, such as memory.available=90s.
    #[arg(long, value_parser = values::graces)]
    pub eviction_soft_grace_period: Option<Graces>,
    /// How much more than a threshold must be free until a shortage is over, such as memory.available=200Mi,nodefs.available=5%.
    #[arg(long, value_parser = values::reclaims)]
    pub eviction_minimum_reclaim: Option<Thresholds>,
    /// Most seconds that pods have to end when they are evicted for a soft threshold; negative for as many as they ask for.
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
    /// It would have no effect.
    #[error("--eviction-soft-grace-period: {signal} has no threshold in --eviction-soft")]
    NoThreshold {
        /// The signal.
        signal: String,
    },
}

impl EvictionOptions {
    /// When pods are evicted.
    pub fn policy(&self) -> Result<EvictionPolicy, EvictionError> {
        let mut graces =
            self.eviction_soft_grace_period.as_ref().map_or_else(BTreeMap::new, |all| all.0.clone());
        let thresholds =
            |all: &Option<Thresholds>| all.as_ref().map_or_else(BTreeMap::new, |all| all.0.clone());
        let mut soft = BTreeMap::new();
        for (signal, least) in thresholds(&self.eviction_soft) {
            match graces.remove(&signal) {
                Some(grace) => {
                    soft.insert(signal, SoftThreshold { least, grace });
                }
                None if least.is_off() => {}
                None => return Err(EvictionError::NoGrace { signal }),
            }
        }
        if let Some((signal, _)) = graces.pop_first() {
            return Err(EvictionError::NoThreshold { signal });
        }
        Ok(EvictionPolicy {
            hard: self.eviction_hard.0.clone(),
            soft,
            reclaim: thresholds(&self.eviction_minimum_reclaim),
            max_pod_grace: u32::try_from(self.eviction_max_pod_grace_period).ok(),
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
    fn every_soft_threshold_has_a_grace_period_and_every_grace_period_a_threshold() {
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
            (
                "--eviction-soft-grace-period nodefs.available=1m",
                "--eviction-soft-grace-period: nodefs.available has no threshold in --eviction-soft",
            ),
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
            max_pod_grace: Some(20),
        };
        assert_eq!(soft, Ok(want));
        assert_eq!(policy("").unwrap().max_pod_grace, Some(0));
        assert_eq!(policy("--eviction-max-pod-grace-period -1").unwrap().max_pod_grace, None);
    }
}
