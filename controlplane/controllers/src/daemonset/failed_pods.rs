//! How long failed pods of a DaemonSet stay on their node: a node that rejects a pod would otherwise get the next one at once. No
//! clock, no tasks.

use coracle_informer::time;
use jiff::Timestamp;
use std::collections::HashMap;

/// The delay after the first deletion, doubled with each further one, and the longest, in seconds.
const FIRST_DELAY: i64 = 1;
const LONGEST_DELAY: i64 = 15 * 60;
/// A node without failures for so long starts again with the first delay.
const FORGOTTEN_AFTER: i64 = 2 * LONGEST_DELAY;

#[derive(Debug, Clone, Copy)]
struct Deleted {
    at: Timestamp,
    delay: i64,
}

/// Which failed pods were deleted lately, by DaemonSet, generation and node.
#[derive(Debug, Default)]
pub struct FailedPods {
    deleted: HashMap<(String, i64, String), Deleted>,
}

impl FailedPods {
    /// Asks to delete a failed pod. Returns until when it has to stay; if nothing is returned, its deletion counts.
    pub fn hold(&mut self, set: (&str, i64), node: &str, now: Timestamp) -> Option<Timestamp> {
        self.deleted.retain(|_, last| time::after(last.at, FORGOTTEN_AFTER) >= now);
        let key = (set.0.to_owned(), set.1, node.to_owned());
        let delay = match self.deleted.get(&key) {
            Some(last) => {
                let until = time::after(last.at, last.delay);
                if now < until {
                    return Some(until);
                }
                (last.delay * 2).min(LONGEST_DELAY)
            }
            None => FIRST_DELAY,
        };
        self.deleted.insert(key, Deleted { at: now, delay });
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn failed_pods_are_deleted_with_backoff_per_node_and_generation() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds: i64| time::after(start, seconds);
        let mut pods = FailedPods::default();
        let mut hold = |set, node, seconds| pods.hold(set, node, at(seconds));
        assert_eq!(hold(("u", 1), "n", 0), None);
        assert_eq!(hold(("u", 1), "n", 0), Some(at(1)));
        assert_eq!(hold(("u", 1), "m", 0), None, "another node");
        assert_eq!(hold(("u", 2), "n", 0), None, "a new template");
        assert_eq!(hold(("u", 1), "n", 1), None);
        assert_eq!(hold(("u", 1), "n", 2), Some(at(3)), "doubled");
        let mut now = 3;
        for _ in 0..20 {
            assert_eq!(hold(("u", 1), "n", now), None);
            now += LONGEST_DELAY;
        }
        assert_eq!(hold(("u", 1), "n", now - 1), Some(at(now)), "never longer");
        now += FORGOTTEN_AFTER;
        assert_eq!(hold(("u", 1), "n", now), None);
        assert_eq!(hold(("u", 1), "n", now), Some(at(now + FIRST_DELAY)), "forgotten");
    }
}
