//! Topology aware hints (`service.kubernetes.io/topology-mode: Auto`): distributes a service's endpoints over zones by
//! the cpus of their nodes. No clock, no tasks.

use coracle_fields::{core::v1, fields};
use coracle_informer::conditions::{self, Condition};
use coracle_kinds::object::Object;
use coracle_proto::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// Annotations that switch it on, the deprecated one first.
const ANNOTATIONS: [&str; 2] =
    ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];
/// Nodes with one of these labels do not count.
const EXCLUDED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
/// By how much an endpoint may get more than its share, as a part of it.
const OVERLOAD: f64 = 0.2;

fields! {
    struct NodeFields: v1::Node {
        status: NodeStatus,
    }

    struct NodeStatus: v1::NodeStatus {
        allocatable: BTreeMap<String, Value>,
        conditions: Vec<Condition>,
    }
}

/// Whether annotations of a service ask for it.
pub fn is_auto(annotations: &BTreeMap<String, String>) -> bool {
    let value = ANNOTATIONS.iter().find_map(|key| annotations.get(*key));
    value.is_some_and(|value| value == "Auto" || value == "auto")
}

/// What a node counts for: zone and thousandths of cpus, either of which may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    zone: String,
    cpu: i64,
}

/// The share of a node; `None` if it does not count.
pub fn share(node: &Object) -> Option<Share> {
    let labels = &node.meta.labels;
    let NodeFields { status } = node.typed().ok()?;
    if EXCLUDED.iter().any(|label| labels.contains_key(*label))
        || !conditions::is_true(&status.conditions, "Ready")
    {
        return None;
    }
    let cpu = status.allocatable.get("cpu").map(|value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let cpu = cpu.and_then(|text| text.parse::<Quantity>().ok()).map_or(0, |cpu| cpu.milli_value());
    Some(Share { zone: labels.get(super::ZONE).cloned().unwrap_or_default(), cpu })
}

/// Why no endpoint gets a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoHints {
    /// Zones cannot be compared.
    #[error("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes")]
    Nodes,
    /// An endpoint is in no zone.
    #[error("One or more endpoints do not have a zone specified")]
    Zone,
    /// There are fewer endpoints than zones.
    #[error("Insufficient number of endpoints ({endpoints} endpoints, {zones} zones)")]
    Few {
        /// Ready endpoints.
        endpoints: usize,
        /// Zones with nodes.
        zones: usize,
    },
    /// Some endpoints would get too much.
    #[error(
        "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold ({endpoints} endpoints, {zones} zones)"
    )]
    Overload {
        /// Ready endpoints.
        endpoints: usize,
        /// Zones with nodes.
        zones: usize,
    },
}

/// The part of all cpus that each zone has; empty where zones cannot be told apart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ZoneRatios(BTreeMap<String, f64>);

impl ZoneRatios {
    /// From the shares of all nodes.
    pub fn of(shares: impl Iterator<Item = Share>) -> Self {
        let mut zones: BTreeMap<String, i64> = BTreeMap::new();
        for Share { zone, cpu } in shares {
            if zone.is_empty() || cpu <= 0 {
                return Self::default();
            }
            *zones.entry(zone).or_default() += cpu;
        }
        let all: i64 = zones.values().sum();
        if zones.len() < 2 {
            return Self::default();
        }
        Self(zones.into_iter().map(|(zone, cpu)| (zone, cpu as f64 / all as f64)).collect())
    }

    /// For which zone each of these ready endpoints is, given the zone that it is in. An error if they cannot be distributed
    /// without overloading some: then none gets a hint.
    pub fn assign(&self, endpoints: &[Option<String>]) -> Result<Vec<String>, NoHints> {
        let (zones, number) = (self.0.len(), endpoints.len());
        if zones == 0 {
            return Err(NoHints::Nodes);
        }
        if zones > number {
            return Err(NoHints::Few { endpoints: number, zones });
        }
        let count = number as f64;
        let minimum = |ratio: f64| (ratio * count / (1.0 + OVERLOAD)).ceil();
        if self.0.values().map(|ratio| minimum(*ratio)).sum::<f64>() > count {
            return Err(NoHints::Overload { endpoints: number, zones });
        }
        let mut hints: Vec<String> = endpoints.iter().cloned().collect::<Option<_>>().ok_or(NoHints::Zone)?;
        let (mut giving, mut receiving) = (BTreeMap::new(), BTreeMap::new());
        for (zone, ratio) in &self.0 {
            let has = hints.iter().filter(|hint| *hint == zone).count() as f64;
            let wants = (ratio * count).max(minimum(*ratio));
            if has > wants {
                giving.insert(zone.clone(), has - wants);
            } else {
                receiving.insert(zone.clone(), wants - has);
            }
        }
        while let (Some((from, gives)), Some((to, takes))) = (most(&giving), most(&receiving)) {
            if (gives < 1.0 && takes < 1.0) || gives < 0.5 || takes < 0.5 {
                break;
            }
            if let Some(hint) = hints.iter_mut().find(|hint| **hint == from) {
                *hint = to.clone();
            }
            giving.entry(from).and_modify(|left| *left -= 1.0);
            receiving.entry(to).and_modify(|left| *left -= 1.0);
        }
        Ok(hints)
    }
}

/// The zone with the largest number above zero.
fn most(zones: &BTreeMap<String, f64>) -> Option<(String, f64)> {
    let above = zones.iter().filter(|(_, number)| **number > 0.0);
    above.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0))).map(|(zone, number)| (zone.clone(), *number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    fn ratios(zones: &[(&str, i64)]) -> ZoneRatios {
        ZoneRatios::of(zones.iter().map(|(zone, cpu)| Share { zone: (*zone).to_owned(), cpu: *cpu }))
    }

    #[test]
    fn topology_mode_auto_distributes_endpoints_by_cpus() {
        let equal = ratios(&[("a", 4000), ("b", 2000), ("b", 2000)]);
        let large = ratios(&[("a", 6000), ("b", 2000)]);
        for (ratios, endpoints, want) in [
            (&equal, "aabb", Ok("aabb")),
            // Each zone has half of the cpus, and gets half of the endpoints.
            (&equal, "aaab", Ok("baab")),
            (&equal, "aaaa", Ok("bbaa")),
            (&large, "aabb", Ok("aaab")),
            (&equal, "a", Err(NoHints::Few { endpoints: 1, zones: 2 })),
            // Of three, one alone would take the connections of half of the cpus.
            (&equal, "aab", Err(NoHints::Overload { endpoints: 3, zones: 2 })),
            (&equal, "aa?b", Err(NoHints::Zone)),
            (&ratios(&[("a", 4000)]), "aabb", Err(NoHints::Nodes)),
            (&ratios(&[("a", 4000), ("", 1)]), "aabb", Err(NoHints::Nodes)),
            (&ratios(&[("a", 4000), ("b", 0)]), "aabb", Err(NoHints::Nodes)),
        ] {
            let zones = |text: &str| -> Vec<Option<String>> {
                text.chars().map(|zone| (zone != '?').then(|| zone.to_string())).collect()
            };
            let got = ratios.assign(&zones(endpoints)).map(|hints| hints.concat());
            assert_eq!(got.as_deref(), want.as_ref().map(|hints| *hints), "{endpoints} {ratios:?}");
        }
    }

    #[test]
    fn nodes_count_when_they_are_ready_and_not_of_the_control_plane() {
        let node = |ready: &str, labels: Value| {
            object(
                json!({"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"cpu": "1500m"},
                "conditions": [{"type": "Ready", "status": ready}]}}),
            )
        };
        let zone = json!({"topology.kubernetes.io/zone": "a"});
        assert_eq!(share(&node("True", zone.clone())), Some(Share { zone: "a".to_owned(), cpu: 1500 }));
        assert_eq!(share(&node("False", zone)), None);
        assert_eq!(share(&node("True", json!({"node-role.kubernetes.io/control-plane": ""}))), None);
        assert_eq!(share(&node("True", json!({}))), Some(Share { zone: String::new(), cpu: 1500 }));
        let auto = |key: &str, value: &str| is_auto(&BTreeMap::from([(key.to_owned(), value.to_owned())]));
        assert!(auto("service.kubernetes.io/topology-mode", "Auto"));
        assert!(auto("service.kubernetes.io/topology-aware-hints", "auto"));
        assert!(!auto("service.kubernetes.io/topology-mode", "Disabled"));
    }
}
