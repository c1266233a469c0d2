//! When nodes were last heard of, by the monotonic clock of this server. A heartbeat counts from when it was seen: clocks of
//! nodes are not compared with the own one, and a wall clock that is set does not silence a node.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Instant;

/// What is known of one node.
struct Heartbeat {
    /// Its status as last seen.
    status: Option<String>,
    at: Instant,
}

/// The last heartbeats.
#[derive(Default)]
pub struct Heartbeats {
    nodes: Mutex<HashMap<String, Heartbeat>>,
    /// When a Lease was last seen to change. Separate: Leases come before their nodes and stay after them.
    renewals: Mutex<HashMap<String, Instant>>,
}

impl Heartbeats {
    /// Notes that a node has renewed its Lease.
    pub fn renewed(&self, node: &str, now: Instant) {
        let mut renewals = self.renewals.lock();
        match renewals.get_mut(node) {
            Some(at) => *at = now,
            None => {
                renewals.insert(node.to_owned(), now);
            }
        }
    }

    /// Forgets the Lease of a node.
    pub fn lease_deleted(&self, node: &str) {
        self.renewals.lock().remove(node);
    }

    /// Whether the node has been seen before.
    pub fn knows(&self, node: &str) -> bool {
        self.nodes.lock().contains_key(node)
    }

    /// Forgets a node.
    pub fn forget(&self, node: &str) {
        self.nodes.lock().remove(node);
    }

    /// When the node was last heard of: now, if its status has changed since the last look or if this is the first one.
    pub fn last(&self, node: &str, status: Option<&str>, now: Instant) -> Instant {
        let mut nodes = self.nodes.lock();
        let new = || Heartbeat { status: status.map(str::to_owned), at: now };
        let heartbeat = nodes.entry(node.to_owned()).or_insert_with(new);
        if heartbeat.status.as_deref() != status {
            *heartbeat = new();
        }
        if let Some(renewed) = self.renewals.lock().get(node) {
            heartbeat.at = heartbeat.at.max(*renewed);
        }
        heartbeat.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn heartbeats_count_from_when_they_are_seen() {
        let (heartbeats, start) = (Heartbeats::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        heartbeats.renewed("n", at(0));
        assert!(!heartbeats.knows("n"), "a Lease is no node");
        assert_eq!(heartbeats.last("n", Some("t1"), at(5)), at(5), "the first look");
        assert!(heartbeats.knows("n"));
        assert_eq!(heartbeats.last("n", Some("t1"), at(10)), at(5));
        heartbeats.renewed("n", at(20));
        assert_eq!(heartbeats.last("n", Some("t1"), at(40)), at(20), "not when it was looked at");
        // The node's clock is set back.
        assert_eq!(heartbeats.last("n", Some("t0"), at(41)), at(41));
        heartbeats.lease_deleted("n");
        assert_eq!(heartbeats.last("n", Some("t0"), at(90)), at(41));
        heartbeats.forget("n");
        assert_eq!(heartbeats.last("n", None, at(91)), at(91), "another node of the name");
    }
}
