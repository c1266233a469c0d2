//! Zones of nodes, and how fast the nodes of a zone are evicted: when many nodes of a zone fail at once the fault is likely not
//! theirs, and when all zones fail it is likely this server's. No clock, no tasks.

use coracle_informer::selector::Labels;
use jiff::{SignedDuration, Timestamp};
use std::collections::{HashMap, HashSet};

/// Nodes with this label do not count for the state of their zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// How fast nodes are evicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Time from one node of a zone to the next; none are evicted without.
    pub normal: Option<SignedDuration>,
    /// The same in a large zone of which many nodes have failed; none are evicted in a small one.
    pub reduced: Option<SignedDuration>,
    /// A zone with more nodes is large.
    pub large_zone: usize,
    /// Share of failed nodes, of which there are at least three, from which a zone is disrupted.
    pub disrupted_share: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            normal: Some(SignedDuration::from_secs(10)),
            reduced: Some(SignedDuration::from_secs(100)),
            large_zone: 50,
            disrupted_share: 0.55,
        }
    }
}

impl Rates {
    /// The time between two nodes for a number of nodes per second.
    pub fn interval(rate: f64) -> Option<SignedDuration> {
        (rate > 0.0).then(|| SignedDuration::try_from_secs_f64(1.0 / rate).unwrap_or(SignedDuration::MAX))
    }
}

/// Whether pods may be evicted from a node that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Now; the next node of its zone has to wait.
    Now,
    /// At this time, if no other node is faster.
    At(Timestamp),
    /// Not before the state of the zone changes.
    Later,
    /// Not at all, and what was begun ends: no node of any zone is ready.
    Never,
}

#[derive(Debug, Default)]
struct Zone {
    ready: usize,
    failed: usize,
    /// When the next node may be evicted.
    next: Timestamp,
    /// Time between two nodes; none if no node is to be evicted.
    interval: Option<SignedDuration>,
}

impl Zone {
    fn interval(&self, rates: &Rates) -> Option<SignedDuration> {
        let size = self.ready + self.failed;
        let disrupted = self.failed > 2 && self.failed as f64 / size as f64 >= rates.disrupted_share;
        match self.ready {
            // Zones that are down as a whole are evicted as fast as single nodes, because others are not down.
            0 => rates.normal,
            _ if !disrupted => rates.normal,
            _ => rates.reduced.filter(|_| size > rates.large_zone),
        }
    }

    fn is_down(&self) -> bool {
        self.ready == 0 && self.failed > 0
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Member {
    zone: String,
    ready: bool,
    counts: bool,
}

/// All zones.
#[derive(Debug, Default)]
pub struct Zones {
    rates: Rates,
    nodes: HashMap<String, Member>,
    zones: HashMap<String, Zone>,
}

impl Zones {
    /// No nodes yet.
    pub fn new(rates: Rates) -> Self {
        Self { rates, ..Self::default() }
    }

    /// Records a node. Returns whether that changes what is permitted to other nodes.
    pub fn set(&mut self, node: &str, labels: &Labels, ready: bool, now: Timestamp) -> bool {
        let new = Member { zone: key(labels), ready, counts: !labels.contains_key(EXCLUDED) };
        self.replace(node, Some(new), now)
    }

    /// Forgets a node. Returns whether that changes what is permitted to other nodes.
    pub fn remove(&mut self, node: &str, now: Timestamp) -> bool {
        self.replace(node, None, now)
    }

    fn replace(&mut self, node: &str, new: Option<Member>, now: Timestamp) -> bool {
        if self.nodes.get(node) == new.as_ref() {
            return false;
        }
        let were_down = self.all_down();
        let mut touched = Vec::new();
        if let Some(old) = self.nodes.remove(node) {
            let zone = self.zones.entry(old.zone.clone()).or_default();
            let count = if old.ready { &mut zone.ready } else { &mut zone.failed };
            *count = count.saturating_sub(usize::from(old.counts));
            touched.push(old.zone);
        }
        if let Some(new) = new {
            let zone = self.zones.entry(new.zone.clone()).or_default();
            let count = if new.ready { &mut zone.ready } else { &mut zone.failed };
            *count += usize::from(new.counts);
            touched.push(new.zone.clone());
            self.nodes.insert(node.to_owned(), new);
        }
        let mut changed = false;
        for name in touched {
            let Some(zone) = self.zones.get_mut(&name) else { continue };
            let interval = zone.interval(&self.rates);
            if interval != zone.interval {
                changed = true;
                // Whoever waits goes on waiting, at the new rate.
                if let Some(interval) = interval.filter(|_| zone.next > now) {
                    zone.next = now.saturating_add(interval).unwrap_or(Timestamp::MAX);
                }
                zone.interval = interval;
            }
        }
        if self.zones.values().any(|zone| zone.ready + zone.failed == 0) {
            let used: HashSet<&str> = self.nodes.values().map(|member| member.zone.as_str()).collect();
            self.zones.retain(|name, _| used.contains(name.as_str()));
        }
        changed || were_down != self.all_down()
    }

    /// Whether no node of any zone is ready.
    fn all_down(&self) -> bool {
        let mut counted = self.zones.values().filter(|z| z.ready + z.failed > 0).peekable();
        counted.peek().is_some() && counted.all(Zone::is_down)
    }

    /// Asks to evict a node that has failed and is not being evicted yet.
    pub fn ask(&mut self, node: &str, now: Timestamp) -> Permission {
        if self.all_down() {
            return Permission::Never;
        }
        let zone = self.nodes.get(node).and_then(|member| self.zones.get_mut(&member.zone));
        let Some(zone) = zone else { return Permission::Later };
        let Some(interval) = zone.interval else { return Permission::Later };
        let due = now.saturating_add(interval).unwrap_or(Timestamp::MAX);
        // A clock that was set back makes nobody wait longer than one interval.
        zone.next = zone.next.min(due);
        if now < zone.next {
            return Permission::At(zone.next);
        }
        zone.next = due;
        Permission::Now
    }

    /// Whether evictions that have begun go on.
    pub fn goes_on(&self) -> Permission {
        if self.all_down() { Permission::Never } else { Permission::Later }
    }
}

/// The zone of a node: its region and zone, by today's labels or the old ones.
fn key(labels: &Labels) -> String {
    let either =
        |old: &str, new: &str| labels.get(old).or_else(|| labels.get(new)).cloned().unwrap_or_default();
    let zone = either("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
    let region = either("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region");
    format!("{region}:\0:{zone}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn labels(zone: &str) -> Labels {
        Labels::from([("topology.kubernetes.io/zone".to_owned(), zone.to_owned())])
    }

    fn zones(nodes: &[(&str, usize, usize)]) -> Zones {
        let mut zones = Zones::default();
        for (zone, ready, failed) in nodes {
            for n in 0..ready + failed {
                zones.set(&format!("{zone}{n}"), &labels(zone), n >= *failed, at(0));
            }
        }
        zones
    }

    #[test]
    fn nodes_of_a_zone_are_evicted_one_after_the_other() {
        let mut zones = zones(&[("a", 5, 2), ("b", 5, 1)]);
        assert_eq!(zones.ask("a0", at(0)), Permission::Now);
        assert_eq!(zones.ask("a1", at(0)), Permission::At(at(10)));
        assert_eq!(zones.ask("b0", at(0)), Permission::Now, "another zone");
        assert_eq!(zones.ask("a1", at(10)), Permission::Now);
        assert_eq!(zones.ask("a0", at(-100)), Permission::At(at(-90)), "the clock was set back");
    }

    #[test]
    fn a_disrupted_zone_is_evicted_slowly_or_not_at_all() {
        let mut small = zones(&[("a", 2, 3), ("b", 1, 0)]);
        assert_eq!(small.ask("a0", at(0)), Permission::Later, "60% of a small zone");
        assert!(small.set("a0", &labels("a"), true, at(1)), "the others are looked at again");
        assert_eq!(small.ask("a1", at(1)), Permission::Now);
        assert_eq!(small.ask("a2", at(2)), Permission::At(at(11)));
        let mut large = zones(&[("a", 20, 40), ("b", 1, 0)]);
        assert_eq!(large.ask("a0", at(0)), Permission::Now);
        assert_eq!(large.ask("a1", at(0)), Permission::At(at(100)));
        let mut two = zones(&[("a", 1, 2)]);
        assert_eq!(two.ask("a0", at(0)), Permission::Now, "two failed nodes are no disruption");
    }

    #[test]
    fn rates_can_be_changed() {
        let rates =
            Rates { normal: Rates::interval(0.5), reduced: None, large_zone: 3, disrupted_share: 0.9 };
        let fill = |rates, ready, failed| {
            let mut zones = Zones::new(rates);
            for n in 0..ready + failed {
                zones.set(&format!("a{n}"), &labels("a"), n >= failed, at(0));
            }
            zones
        };
        let mut zones = fill(rates, 2, 3);
        assert_eq!(zones.ask("a0", at(0)), Permission::Now, "60% are no disruption");
        assert_eq!(zones.ask("a1", at(0)), Permission::At(at(2)));
        assert_eq!(fill(rates, 1, 9).ask("a0", at(0)), Permission::Later, "none in a disrupted zone");
        let never = Rates { normal: Rates::interval(0.0), ..rates };
        assert_eq!(fill(never, 2, 1).ask("a0", at(0)), Permission::Later);
    }

    #[test]
    fn a_lost_zone_is_evicted_and_a_lost_cluster_is_not() {
        let mut zones = zones(&[("a", 0, 4), ("b", 2, 0)]);
        assert_eq!(zones.ask("a0", at(0)), Permission::Now);
        assert_eq!(zones.ask("a1", at(0)), Permission::At(at(10)));
        assert!(!zones.set("b0", &labels("b"), false, at(1)));
        assert!(zones.set("b1", &labels("b"), false, at(1)), "no node is left");
        assert_eq!((zones.ask("a1", at(20)), zones.goes_on()), (Permission::Never, Permission::Never));
        assert!(zones.set("b1", &labels("b"), true, at(21)));
        assert_eq!((zones.ask("a1", at(21)), zones.goes_on()), (Permission::Now, Permission::Later));
    }

    #[test]
    fn nodes_move_leave_and_may_not_count() {
        let mut zones = zones(&[("a", 1, 1)]);
        let mut aside = labels("a");
        aside.insert(EXCLUDED.to_owned(), String::new());
        assert!(zones.set("a1", &aside, true, at(0)), "the ready node does not count");
        assert_eq!(zones.ask("a0", at(0)), Permission::Never);
        zones.set("a1", &labels("b"), true, at(0));
        assert_eq!(zones.ask("a0", at(0)), Permission::Now);
        assert!(zones.remove("a1", at(0)));
        assert_eq!((zones.zones.len(), zones.ask("a0", at(0))), (1, Permission::Never));
    }
}
