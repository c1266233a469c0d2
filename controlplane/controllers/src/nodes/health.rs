//! Node health: conditions and taints of nodes without heartbeats. No clock, no tasks.

use super::zones::Permission;
use coracle_fields::core::v1;
use coracle_fields::fields;
use coracle_informer::conditions::{self, Condition};
use coracle_informer::time;
use jiff::Timestamp;
use std::time::Duration;

/// How long a node may be silent.
pub const GRACE: Duration = Duration::from_secs(50);
/// A node that says it is not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// A node that says nothing.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// A node that an operator has declared gone.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

fields! {
    /// A taint.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Taint: v1::Taint, written {
        /// Key.
        pub key: String,
        /// Value.
        pub value: String,
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        pub effect: String,
        /// Since when, for `NoExecute`.
        pub time_added: Option<String>,
    }

    /// A node, as far as its health is concerned.
    #[derive(Debug, Clone)]
    pub struct Node: v1::Node {
        /// Wanted state.
        pub spec: Spec,
        /// Observed state.
        pub status: Status,
    }

    /// Taints and cordon.
    #[derive(Debug, Clone)]
    pub struct Spec: v1::NodeSpec {
        /// Taints.
        pub taints: Vec<Taint>,
        /// Whether it is cordoned.
        pub unschedulable: bool,
    }

    /// Conditions.
    #[derive(Debug, Clone)]
    pub struct Status: v1::NodeStatus {
        /// Conditions.
        pub conditions: Vec<Condition>,
    }

    /// A toleration.
    #[derive(Debug, Clone)]
    pub struct Toleration: v1::Toleration {
        key: String,
        operator: String,
        value: String,
        effect: String,
        toleration_seconds: Option<i64>,
    }
}

impl Node {
    /// Status of the `Ready` condition: `True`, `False` or `Unknown`; empty if there is none.
    pub fn readiness(&self) -> &str {
        conditions::find(&self.status.conditions, "Ready").map_or("", |c| c.status.as_str())
    }

    /// What changes with each sign of life in the status.
    pub fn heartbeat(&self) -> Option<&str> {
        conditions::find(&self.status.conditions, "Ready").and_then(|c| c.last_heartbeat_time.as_deref())
    }

    /// Whether it has failed.
    pub fn has_failed(&self) -> bool {
        matches!(self.readiness(), "False" | "Unknown")
    }

    /// Whether its pods are evicted because it has failed.
    pub fn is_evicted(&self) -> bool {
        let keys = [NOT_READY, UNREACHABLE];
        self.spec.taints.iter().any(|t| t.effect == "NoExecute" && keys.contains(&t.key.as_str()))
    }

    /// Whether it has a taint.
    pub fn tainted(&self, key: &str) -> bool {
        self.spec.taints.iter().any(|t| t.key == key)
    }
}

/// Conditions of a node that has been silent for too long: all unknown. `None` when they are so already.
pub fn silenced(node: &Node, now: Timestamp) -> Option<Vec<Condition>> {
    let mut all = node.status.conditions.clone();
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        match all.iter_mut().find(|c| c.kind == kind) {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                condition.status = "Unknown".into();
                condition.reason = "NodeStatusUnknown".into();
                condition.message = "Kubelet stopped posting node status.".into();
                condition.last_transition_time = Some(time::seconds(now));
            }
            None => {
                let message = "Kubelet never posted node status.";
                let new =
                    Condition::new(kind, true, "NodeStatusNeverUpdated", message, now).status("Unknown");
                all.push(new);
            }
        }
    }
    (all != node.status.conditions).then_some(all)
}

/// The taints a node should have. Taints that evict pods are added when that is permitted; those that are there follow the
/// condition of the node.
pub fn taints(node: &Node, evict: Permission, now: Timestamp) -> Option<Vec<Taint>> {
    let readiness = node.readiness();
    let evicts = match evict {
        Permission::Now => true,
        Permission::At(_) | Permission::Later => node.is_evicted(),
        Permission::Never => false,
    };
    let is = |kind: &str, status: &str| {
        conditions::find(&node.status.conditions, kind).is_some_and(|c| c.status == status)
    };
    let rules = [
        (NOT_READY, "NoSchedule", readiness == "False"),
        (UNREACHABLE, "NoSchedule", readiness == "Unknown"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule", is("MemoryPressure", "True")),
        ("node.kubernetes.io/disk-pressure", "NoSchedule", is("DiskPressure", "True")),
        ("node.kubernetes.io/pid-pressure", "NoSchedule", is("PIDPressure", "True")),
        ("node.kubernetes.io/network-unavailable", "NoSchedule", is("NetworkUnavailable", "True")),
        ("node.kubernetes.io/unschedulable", "NoSchedule", node.spec.unschedulable),
        (NOT_READY, "NoExecute", readiness == "False" && evicts),
        (UNREACHABLE, "NoExecute", readiness == "Unknown" && evicts),
    ];
    let mut taints = node.spec.taints.clone();
    for (key, effect, wanted) in rules {
        // A node that is new keeps what it was given until it speaks.
        if readiness.is_empty() && [NOT_READY, UNREACHABLE].contains(&key) {
            continue;
        }
        let there = taints.iter().any(|t| t.key == key && t.effect == effect);
        if wanted && !there {
            let time_added = Some(time::seconds(now));
            taints.push(Taint { key: key.into(), effect: effect.into(), time_added, ..Taint::default() });
        } else if !wanted && there {
            taints.retain(|t| !(t.key == key && t.effect == effect));
        }
    }
    (taints != node.spec.taints).then_some(taints)
}

impl Toleration {
    /// Whether it tolerates a taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let key = self.key.is_empty() || self.key == taint.key;
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let value = match self.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => self.value == taint.value,
            _ => false,
        };
        effect && value && key && (!self.key.is_empty() || self.operator == "Exists")
    }
}

/// When a pod must leave a node with these taints: `None` for never. A pod that came after a taint has its time from
/// then on.
pub fn leave_at(taints: &[Taint], tolerations: &[Toleration], since: Timestamp) -> Option<Timestamp> {
    let executing = taints.iter().filter(|t| t.effect == "NoExecute");
    let mut earliest: Option<Timestamp> = None;
    for taint in executing {
        let added = time::parse(taint.time_added.as_deref()).unwrap_or(since).max(since);
        let matching: Vec<&Toleration> = tolerations.iter().filter(|t| t.tolerates(taint)).collect();
        let until = if matching.is_empty() {
            Some(Timestamp::MIN)
        } else {
            let seconds = matching.iter().filter_map(|t| t.toleration_seconds).min();
            seconds.map(|s| time::after(added, s.max(0)))
        };
        earliest = match (earliest, until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    earliest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn node(ready: &str) -> Node {
        serde_json::from_value(json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}}))
            .unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        time::after(Timestamp::UNIX_EPOCH, seconds)
    }

    #[test]
    fn silence_makes_everything_unknown_once() {
        let mut node = node("True");
        let all = silenced(&node, at(0)).unwrap();
        assert_eq!(all.len(), 4);
        assert!(all.iter().all(|c| c.status == "Unknown"));
        assert_eq!(all[0].reason, "NodeStatusUnknown");
        assert_eq!(all[1].reason, "NodeStatusNeverUpdated");
        node.status.conditions = all;
        assert_eq!(silenced(&node, at(9)), None);
    }

    #[test]
    fn taints_follow_conditions() {
        let keys = |node: &Node, evict| -> Vec<String> {
            let all = taints(node, evict, at(0)).unwrap_or_else(|| node.spec.taints.clone());
            all.iter()
                .map(|t| format!("{}:{}", t.key.trim_start_matches("node.kubernetes.io/"), t.effect))
                .collect()
        };
        let now = Permission::Now;
        assert_eq!(keys(&node("True"), now), Vec::<String>::new());
        assert_eq!(keys(&node("False"), now), ["not-ready:NoSchedule", "not-ready:NoExecute"]);
        assert_eq!(keys(&node("Unknown"), now), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
        for not_yet in [Permission::At(at(9)), Permission::Later, Permission::Never] {
            assert_eq!(keys(&node("Unknown"), not_yet), ["unreachable:NoSchedule"], "{not_yet:?}");
        }
        let mut evicted = node("Unknown");
        evicted.spec.taints = taints(&node("False"), now, at(0)).unwrap();
        assert_eq!(
            keys(&evicted, Permission::Later),
            ["unreachable:NoSchedule", "unreachable:NoExecute"],
            "one taint follows the other at once"
        );
        assert_eq!(
            keys(&evicted, Permission::Never),
            ["unreachable:NoSchedule"],
            "nobody is evicted while all are down"
        );
        let mut back = node("True");
        back.spec.taints = taints(&node("False"), now, at(0)).unwrap();
        back.spec.taints.push(Taint { key: "mine".into(), effect: "NoExecute".into(), ..Taint::default() });
        assert_eq!(keys(&back, Permission::Later), ["mine:NoExecute"]);
    }

    #[test]
    fn tolerations_buy_time() {
        let taint = |key: &str| Taint {
            key: key.into(),
            effect: "NoExecute".into(),
            time_added: Some("1970-01-01T00:01:40Z".into()),
            ..Taint::default()
        };
        let tolerations = |value| -> Vec<Toleration> { serde_json::from_value(value).unwrap() };
        let exists = |seconds: Option<i64>| {
            tolerations(
                json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]),
            )
        };
        assert_eq!(leave_at(&[taint("a")], &[], at(0)), Some(Timestamp::MIN));
        assert_eq!(leave_at(&[taint("a")], &exists(None), at(0)), None);
        assert_eq!(leave_at(&[taint("a")], &exists(Some(300)), at(0)), Some(at(400)));
        assert_eq!(leave_at(&[taint("a")], &exists(Some(300)), at(200)), Some(at(500)), "the pod came later");
        assert_eq!(leave_at(&[taint("a"), taint("b")], &exists(Some(300)), at(0)), Some(Timestamp::MIN));
        assert_eq!(leave_at(&[taint("b")], &tolerations(json!([{"operator": "Exists"}])), at(0)), None);
        let schedule = Taint { effect: "NoSchedule".into(), ..taint("a") };
        assert_eq!(leave_at(&[schedule], &[], at(0)), None);
    }
}
