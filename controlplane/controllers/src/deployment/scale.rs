//! Sizes of ReplicaSets: how many pods each may have now.

use super::view::{DESIRED, Deployment, MAX, Set};
use std::cmp::Reverse;

/// People may ask for as many pods as a number can say: sums stay at the largest number then.
fn sum(sizes: impl Iterator<Item = i32>) -> i32 {
    sizes.fold(0, i32::saturating_add)
}

/// How many pods there are or will be: a set that was made smaller counts until its pods are given up, so that the
/// surge holds for pods and not only for intentions.
pub fn present(sets: &[Set]) -> i32 {
    let pods = |s: &Set| s.spec.replicas.max(i32::try_from(s.status.replicas).unwrap_or(i32::MAX));
    sum(sets.iter().map(pods))
}

/// The size of the new set after growing as far as the surge allows.
pub fn grown(deployment: &Deployment, current: i32, total: i32) -> i32 {
    if !deployment.rolling() {
        return deployment.spec.replicas;
    }
    let room = deployment.ceiling().saturating_sub(total);
    if room <= 0 {
        return current;
    }
    current.saturating_add(room.min(deployment.spec.replicas.saturating_sub(current)))
}

/// Shrinks old sets as far as availability allows: unavailable pods first, they are no loss.
pub fn shrink_old(deployment: &Deployment, new: &Set, old: &mut [&mut Set]) {
    let total = sum(old.iter().map(|s| s.spec.replicas).chain([new.spec.replicas]));
    // What a set was told to give up is no longer counted on, although its status may still tell of it.
    let available =
        |set: &Set| i32::try_from(set.status.available_replicas).unwrap_or(i32::MAX).min(set.spec.replicas);
    let new_unavailable = new.spec.replicas.saturating_sub(available(new));
    let mut may_go = total.saturating_sub(deployment.floor()).saturating_sub(new_unavailable);
    if may_go <= 0 {
        return;
    }
    old.sort_by(|a, b| (a.created, a.name()).cmp(&(b.created, b.name())));
    for set in old.iter_mut() {
        let unhealthy = set.spec.replicas.saturating_sub(available(set)).clamp(0, may_go.max(0));
        set.spec.replicas -= unhealthy;
        may_go -= unhealthy;
    }
    let all_available = sum(old.iter().map(|s| available(s)).chain([available(new)]));
    let mut excess = all_available.saturating_sub(deployment.floor());
    for set in old.iter_mut() {
        let gone = set.spec.replicas.min(excess.max(0));
        set.spec.replicas -= gone;
        excess -= gone;
    }
}

/// Whether the Deployment was scaled since its sets were.
pub fn scaled<'a>(deployment: &Deployment, mut sets: impl Iterator<Item = &'a Set>) -> bool {
    sets.any(|s| s.spec.replicas > 0 && s.noted(DESIRED).is_some_and(|d| d != deployment.spec.replicas))
}

/// Brings the sets to the Deployment's size without changing which template wins: the only active one takes all; in
/// the middle of a rollout each takes its share. `sets` holds the old ones and then, if there, the new one.
pub fn spread(deployment: &Deployment, sets: &mut [Set], new: Option<usize>) {
    let wanted = deployment.spec.replicas;
    let active: Vec<usize> = (0..sets.len()).filter(|i| sets[*i].spec.replicas > 0).collect();
    match active.len() {
        0 => {
            let newest = || (0..sets.len()).max_by_key(|i| (sets[*i].created, Reverse(sets[*i].name())));
            if let Some(only) = new.or_else(newest) {
                sets[only].spec.replicas = wanted;
            }
        }
        1 => sets[active[0]].spec.replicas = wanted,
        _ if new.is_some_and(|n| saturated(deployment, &sets[n])) => {
            for i in active.into_iter().filter(|i| Some(*i) != new) {
                sets[i].spec.replicas = 0;
            }
        }
        _ if deployment.rolling() => proportional(deployment, sets, active),
        _ => {}
    }
}

fn saturated(deployment: &Deployment, set: &Set) -> bool {
    let wanted = deployment.spec.replicas;
    set.spec.replicas == wanted
        && set.noted(DESIRED) == Some(wanted)
        && set.status.available_replicas == i64::from(wanted)
}

/// Shares what is to be added or removed among the active sets by their sizes, larger first.
fn proportional(deployment: &Deployment, sets: &mut [Set], mut active: Vec<usize>) {
    let total = sum(active.iter().map(|i| sets[*i].spec.replicas));
    let allowed = if deployment.spec.replicas > 0 { deployment.ceiling() } else { 0 };
    let change = allowed.saturating_sub(total);
    if change == 0 {
        return;
    }
    active.sort_by(|a, b| {
        let (a, b) = (&sets[*a], &sets[*b]);
        let by_age = (a.created, a.name()).cmp(&(b.created, b.name()));
        let by_age = if change > 0 { by_age.reverse() } else { by_age };
        b.spec.replicas.cmp(&a.spec.replicas).then(by_age)
    });
    let mut done = 0;
    for i in &active {
        let part = fraction(deployment, &sets[*i]);
        let left = change.saturating_sub(done);
        let part = if change > 0 { part.min(left).max(0) } else { part.max(left).min(0) };
        sets[*i].spec.replicas = sets[*i].spec.replicas.saturating_add(part);
        done = done.saturating_add(part);
    }
    let largest = &mut sets[active[0]].spec.replicas;
    *largest = largest.saturating_add(change.saturating_sub(done)).max(0);
}

/// How much a set grows or shrinks to keep its share of the Deployment.
fn fraction(deployment: &Deployment, set: &Set) -> i32 {
    let size = set.spec.replicas;
    if deployment.spec.replicas == 0 {
        return size.saturating_neg();
    }
    let before = set
        .noted(MAX)
        .filter(|m| *m > 0)
        .map(i64::from)
        .or(Some(deployment.status.replicas).filter(|r| *r > 0));
    let Some(before) = before else { return 0 };
    let exact = f64::from(size) * f64::from(deployment.ceiling()) / before as f64;
    (exact.round() as i32).saturating_sub(size)
}
