use super::*;
use crate::config::eviction::{SoftThreshold, Threshold};

const MEMORY: &str = "memory.available";
const NODE: &str = "nodefs.available";

fn amounts(amounts: &[(&str, i64)]) -> BTreeMap<String, Threshold> {
    amounts.iter().map(|(signal, amount)| ((*signal).to_owned(), Threshold::Amount(*amount))).collect()
}

fn soft(all: &[(&str, i64, u64)]) -> BTreeMap<String, SoftThreshold> {
    let one = |(signal, least, grace): &(&str, i64, u64)| {
        let least = Threshold::Amount(*least);
        ((*signal).to_owned(), SoftThreshold { least, grace: Duration::from_secs(*grace) })
    };
    all.iter().map(one).collect()
}

/// What is free of one signal at some seconds, and which thresholds of it make pods go then.
fn follow(policy: &EvictionPolicy, signal: &'static str, steps: &[(u64, i64, &[&str])]) {
    let (start, mut watch) = (Instant::now(), EvictionWatch::default());
    for (at, free, want) in steps {
        let signals = Signals::from([(signal, (*free, 1000))]);
        let met = watch.observe(&signals, policy, start + Duration::from_secs(*at));
        let kinds: Vec<_> = met.iter().map(|met| if met.is_soft { "soft" } else { "hard" }).collect();
        assert_eq!(kinds, *want, "{free} free after {at} s");
    }
}

#[test]
fn thresholds_are_met_by_amount_and_by_percent() {
    let mut hard = amounts(&[(MEMORY, 100 << 20)]);
    hard.insert(NODE.to_owned(), Threshold::Percent(10.0));
    let policy = EvictionPolicy { hard, ..EvictionPolicy::default() };
    let at = Instant::now();
    let short = Met { signal: MEMORY, least: 100 << 20, free: 99 << 20, is_soft: false };
    let signals = Signals::from([(MEMORY, (99 << 20, 1 << 30)), (NODE, (11, 100))]);
    assert_eq!(EvictionWatch::default().observe(&signals, &policy, at), [short]);
    let full = Met { signal: NODE, least: 10, free: 9, is_soft: false };
    let signals = Signals::from([(MEMORY, (100 << 20, 1 << 30)), (NODE, (9, 100))]);
    assert_eq!(EvictionWatch::default().observe(&signals, &policy, at), [full]);
}

#[test]
fn a_soft_threshold_counts_after_its_grace_period_without_a_break() {
    let policy = EvictionPolicy {
        hard: amounts(&[(MEMORY, 100)]),
        soft: soft(&[(MEMORY, 300, 60)]),
        ..EvictionPolicy::default()
    };
    follow(
        &policy,
        MEMORY,
        &[
            (0, 299, &[]),
            (59, 200, &[]),
            (60, 299, &["soft"]),
            (70, 150, &["soft"]),
            // A break: the period begins again.
            (80, 300, &[]),
            (90, 299, &[]),
            (149, 299, &[]),
            (150, 299, &["soft"]),
        ],
    );
    // The hard one does not wait, and goes first.
    follow(&policy, MEMORY, &[(0, 99, &["hard"]), (10, 200, &[]), (60, 99, &["hard", "soft"])]);
}

#[test]
fn a_soft_threshold_without_a_grace_period_is_a_hard_one() {
    let policy = EvictionPolicy { soft: soft(&[(MEMORY, 300, 0)]), ..EvictionPolicy::default() };
    follow(&policy, MEMORY, &[(0, 299, &["hard"]), (1, 300, &[])]);
}

#[test]
fn a_shortage_ends_when_the_minimum_was_reclaimed() {
    let policy = EvictionPolicy {
        hard: amounts(&[(MEMORY, 100)]),
        soft: soft(&[(NODE, 300, 60)]),
        reclaim: BTreeMap::from([
            (MEMORY.to_owned(), Threshold::Amount(50)),
            (NODE.to_owned(), Threshold::Percent(10.0)),
        ]),
        ..EvictionPolicy::default()
    };
    follow(
        &policy,
        MEMORY,
        &[
            (0, 120, &[]),
            (10, 99, &["hard"]),
            (20, 120, &["hard"]),
            (30, 149, &["hard"]),
            (40, 150, &[]),
            (50, 120, &[]),
        ],
    );
    // More is asked for only of a threshold that made pods go.
    follow(
        &policy,
        NODE,
        &[
            (0, 299, &[]),
            (30, 350, &[]),
            (40, 299, &[]),
            (100, 299, &["soft"]),
            (110, 399, &["soft"]),
            (120, 400, &[]),
            (130, 399, &[]),
        ],
    );
}

#[test]
fn memory_comes_first_and_hard_thresholds_before_soft_ones() {
    let policy = EvictionPolicy {
        hard: amounts(&[("imagefs.available", 100), (MEMORY, 50)]),
        soft: soft(&[(MEMORY, 100, 1), ("containerfs.available", 100, 1)]),
        ..EvictionPolicy::default()
    };
    let signals = Signals::from(
        [MEMORY, NODE, "imagefs.available", "containerfs.available"].map(|signal| (signal, (49, 1000))),
    );
    let (start, mut watch) = (Instant::now(), EvictionWatch::default());
    watch.observe(&signals, &policy, start);
    let met = watch.observe(&signals, &policy, start + Duration::from_secs(1));
    let order: Vec<_> = met.iter().map(|met| (met.signal, met.is_soft)).collect();
    assert_eq!(
        order,
        [(MEMORY, false), (MEMORY, true), ("imagefs.available", false), ("containerfs.available", true)]
    );
}

#[test]
fn memory_of_all_pods_together_is_memory_of_the_node() {
    let policy = EvictionPolicy { hard: amounts(&[(MEMORY, 100)]), ..EvictionPolicy::default() };
    let (now, mut watch) = (Instant::now(), EvictionWatch::default());
    for (free, of_pods, want) in
        [(100, 100, &[][..]), (100, 99, &[ALLOCATABLE_MEMORY]), (99, 98, &[MEMORY, ALLOCATABLE_MEMORY])]
    {
        let signals = Signals::from([(MEMORY, (free, 1000)), (ALLOCATABLE_MEMORY, (of_pods, 500))]);
        let met: Vec<_> = watch.observe(&signals, &policy, now).iter().map(|met| met.signal).collect();
        assert_eq!(met, want, "{free} and {of_pods} are free");
        assert_eq!(watch.pressure(Duration::from_secs(1), now).memory, !want.is_empty());
    }
}

#[test]
fn conditions_are_true_before_the_grace_period_is_over_and_for_a_while_after() {
    let policy = EvictionPolicy {
        soft: soft(&[(MEMORY, 300, 60), ("imagefs.inodesFree", 300, 60)]),
        hard: BTreeMap::from([("pid.available".to_owned(), Threshold::Percent(100.0))]),
        ..EvictionPolicy::default()
    };
    let (start, mut watch) = (Instant::now(), EvictionWatch::default());
    for (at, memory, inodes, want) in [
        (0, 299, 300, (true, false)),
        (10, 300, 299, (true, true)),
        (39, 300, 300, (true, true)),
        (40, 300, 300, (false, true)),
        (50, 300, 300, (false, false)),
    ] {
        let now = start + Duration::from_secs(at);
        let amounts = [(MEMORY, memory), ("imagefs.inodesFree", inodes), ("pid.available", 1)];
        let signals = Signals::from(amounts.map(|(signal, free)| (signal, (free, 1000))));
        assert!(watch.observe(&signals, &policy, now).is_empty(), "{at} s");
        let pressure = watch.pressure(Duration::from_secs(40), now);
        assert_eq!((pressure.memory, pressure.disk, pressure.pids), (want.0, want.1, false), "{at} s");
    }
}
