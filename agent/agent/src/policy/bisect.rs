//! Finds policies whose rules the kernel rejects, by bisection. Pure.
//!
//! The rules of a node are one transaction, so one rule that the kernel refuses would keep the policies of all pods from
//! changing. After a refusal the policies that may be the cause are denied: they isolate the pods that they select, but
//! allow nothing. Then halves of them are tried with their rules until the refused ones are found. A refused attempt
//! changes nothing, so the kernel always has the rules of the last accepted one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::model::Policy;
use crate::cluster::Name;

/// The most attempts of one search. Policies that are undecided then stay denied until the next search.
pub(super) const ATTEMPTS: usize = 32;
/// The pause before the next search for policies that stayed undecided.
const NEXT_SEARCH: Duration = Duration::from_secs(1);
/// The first and the longest pause before the rules of a refused policy are tried again.
const RETRY: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1800));

/// Policies by name.
pub(super) type Specs = BTreeMap<Name, Arc<Policy>>;

/// A policy that the kernel refused.
struct RejectedPolicy {
    /// As it was refused; a policy that changes is tried at once.
    policy: Arc<Policy>,
    times: u32,
    retry: Instant,
}

/// What is known of refusals from one change of the rules to the next.
#[derive(Default)]
pub(super) struct RejectedPolicies {
    /// Policies as the kernel has accepted them: they are not the first suspects.
    accepted: Specs,
    refused: BTreeMap<Name, RejectedPolicy>,
    next_search: Option<Instant>,
}

impl RejectedPolicies {
    /// Begins to give the kernel the rules of these policies.
    pub fn begin<E>(&mut self, policies: &Specs, now: Instant) -> Bisection<E> {
        self.refused.retain(|name, refused| policies.get(name) == Some(&refused.policy));
        let waits = |name: &Name| self.refused.get(name).is_some_and(|refused| refused.retry > now);
        let (denied, all): (BTreeSet<Name>, BTreeSet<Name>) = policies.keys().cloned().partition(waits);
        let is_accepted = |name: &Name| match (self.accepted.get(name), policies.get(name)) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new) || old == new,
            _ => false,
        };
        let suspects = all.iter().filter(|name| !is_accepted(name)).cloned().collect();
        Bisection {
            stage: Stage::Whole,
            denied,
            undecided: BTreeSet::new(),
            suspects,
            all,
            found: Vec::new(),
            left: ATTEMPTS,
        }
    }

    /// Remembers how a search ended; the policies that were not known to be refused, each with the kernel's error.
    pub fn finish<E>(&mut self, search: Bisection<E>, policies: Specs, now: Instant) -> Vec<(Name, E)> {
        let Bisection { denied, undecided, found, .. } = search;
        self.next_search = (!undecided.is_empty()).then(|| now + NEXT_SEARCH);
        self.refused.retain(|name, _| denied.contains(name) || undecided.contains(name));
        for (_, refused) in self.refused.iter_mut().filter(|(name, _)| undecided.contains(*name)) {
            refused.retry = now + NEXT_SEARCH;
        }
        let mut news = Vec::new();
        for (name, error) in found {
            let Some(policy) = policies.get(&name).cloned() else { continue };
            let times = self.refused.get(&name).map_or(0, |known| known.times) + 1;
            let retry = now + pause(times);
            self.refused.insert(name.clone(), RejectedPolicy { policy, times, retry });
            if times == 1 {
                news.push((name, error));
            }
        }
        self.accepted = policies;
        self.accepted.retain(|name, _| !denied.contains(name) && !undecided.contains(name));
        news
    }

    /// When denied policies are to be tried again, if there are any.
    pub fn due(&self) -> Option<Instant> {
        self.refused.values().map(|refused| refused.retry).chain(self.next_search).min()
    }
}

fn pause(times: u32) -> Duration {
    RETRY.0.saturating_mul(1 << times.saturating_sub(1).min(20)).min(RETRY.1)
}

/// What is tried next.
enum Stage {
    /// The rules of all policies but the denied ones.
    Whole,
    /// Without the rules of the undecided: is the refusal about one of them?
    Without,
    /// With the rules of one group of the undecided, the last.
    With(Vec<Vec<Name>>),
    Done,
}

/// A search for refused policies; without a refusal it is a single attempt.
pub(super) struct Bisection<E> {
    stage: Stage,
    /// Refused before and not to be tried now, or found by this search.
    denied: BTreeSet<Name>,
    /// Denied until an attempt with their rules is accepted.
    undecided: BTreeSet<Name>,
    /// New or changed since the kernel accepted rules.
    suspects: BTreeSet<Name>,
    /// All that were not denied from the beginning.
    all: BTreeSet<Name>,
    found: Vec<(Name, E)>,
    left: usize,
}

impl<E> Bisection<E> {
    /// The policies to deny in the next attempt; `None` when there is none.
    pub fn attempt(&self) -> Option<BTreeSet<Name>> {
        match &self.stage {
            Stage::Whole => Some(self.denied.clone()),
            Stage::Without => Some(&self.denied | &self.undecided),
            Stage::With(groups) => {
                let mut denied = &self.denied | &self.undecided;
                for name in groups.last()? {
                    denied.remove(name);
                }
                Some(denied)
            }
            Stage::Done => None,
        }
    }

    /// Takes the outcome of an attempt. Fails when the kernel refuses rules whatever the policies are.
    pub fn answer(&mut self, outcome: Result<(), E>) -> Result<(), E> {
        self.left = self.left.saturating_sub(1);
        self.stage = match (std::mem::replace(&mut self.stage, Stage::Done), outcome) {
            (Stage::Done, outcome) => return outcome,
            (Stage::Whole, Ok(())) => Stage::Done,
            (Stage::Whole, Err(_)) => {
                // Pods that come and go change rules, too: then any policy may be the cause.
                let suspects = if self.suspects.is_empty() { &self.all } else { &self.suspects };
                self.undecided = suspects.clone();
                Stage::Without
            }
            (Stage::Without, Ok(())) => self.with(halves(self.undecided.iter().cloned().collect())),
            (Stage::Without, Err(error)) if self.undecided == self.all => return Err(error),
            (Stage::Without, Err(_)) => {
                self.undecided = self.all.clone();
                Stage::Without
            }
            (Stage::With(mut groups), outcome) => {
                let group = groups.pop().unwrap_or_default();
                match outcome {
                    Ok(()) => self.undecided = &self.undecided - &BTreeSet::from_iter(group),
                    Err(error) => match <[Name; 1]>::try_from(group) {
                        Ok([name]) => self.refuse(name, error),
                        Err(group) => groups.extend(halves(group)),
                    },
                }
                self.with(groups)
            }
        };
        Ok(())
    }

    fn with(&self, groups: Vec<Vec<Name>>) -> Stage {
        if groups.is_empty() || self.left == 0 { Stage::Done } else { Stage::With(groups) }
    }

    fn refuse(&mut self, name: Name, error: E) {
        self.undecided.remove(&name);
        self.denied.insert(name.clone());
        self.found.push((name, error));
    }

    /// How many policies are denied although the kernel may accept them.
    pub fn undecided(&self) -> usize {
        self.undecided.len()
    }
}

/// Policies of a namespace are neighbours, so those of one that writes many bad ones are soon apart from the others.
fn halves(mut names: Vec<Name>) -> Vec<Vec<Name>> {
    let second = names.split_off(names.len() / 2);
    [names, second].into_iter().filter(|half| !half.is_empty()).collect()
}
