//! Options of kube-controller-manager for how fast pods are evicted from nodes that have failed.

use clap::Args;
use coracle_controllers::nodes::zones::Rates;
use serde::Deserialize;

/// How fast nodes are evicted.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeEvictionArgs {
    /// Nodes per second and zone from which pods are evicted when they fail; 0 for none. 0.1 by default.
    #[arg(long)]
    node_eviction_rate: Option<f64>,
    /// The same in a large zone of which many nodes have failed. 0.01 by default.
    #[arg(long)]
    secondary_node_eviction_rate: Option<f64>,
    /// A zone with more nodes is large; in a smaller one of which many nodes have failed none is evicted. 50 by default.
    #[arg(long)]
    large_cluster_size_threshold: Option<usize>,
    /// Share of failed nodes, at least three, from which many nodes of a zone have failed. 0.55 by default.
    #[arg(long)]
    unhealthy_zone_threshold: Option<f64>,
}

/// Why an option about node evictions makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NodeEvictionError {
    /// Not a rate.
    #[error("{option} {value} must be 0 or more")]
    Rate {
        /// Its name.
        option: &'static str,
        /// As given.
        value: f64,
    },
    /// Not a share.
    #[error("--unhealthy-zone-threshold {0} must be more than 0 and at most 1")]
    Share(f64),
}

impl NodeEvictionArgs {
    /// Whether an option of the file is one of these.
    pub fn has(key: &str) -> bool {
        matches!(
            key,
            "nodeEvictionRate"
                | "secondaryNodeEvictionRate"
                | "largeClusterSizeThreshold"
                | "unhealthyZoneThreshold"
        )
    }

    /// These options, with those of `file` for options that are not set.
    #[must_use]
    pub fn over(self, file: Self) -> Self {
        Self {
            node_eviction_rate: self.node_eviction_rate.or(file.node_eviction_rate),
            secondary_node_eviction_rate: self
                .secondary_node_eviction_rate
                .or(file.secondary_node_eviction_rate),
            large_cluster_size_threshold: self
                .large_cluster_size_threshold
                .or(file.large_cluster_size_threshold),
            unhealthy_zone_threshold: self.unhealthy_zone_threshold.or(file.unhealthy_zone_threshold),
        }
    }

    /// The rates in force.
    pub fn resolve(&self) -> Result<Rates, NodeEvictionError> {
        let mut rates = Rates::default();
        let rate = |option, value: f64| {
            let valid = value.is_finite() && value >= 0.0;
            if valid { Ok(Rates::interval(value)) } else { Err(NodeEvictionError::Rate { option, value }) }
        };
        if let Some(value) = self.node_eviction_rate {
            rates.normal = rate("--node-eviction-rate", value)?;
        }
        if let Some(value) = self.secondary_node_eviction_rate {
            rates.reduced = rate("--secondary-node-eviction-rate", value)?;
        }
        if let Some(share) = self.unhealthy_zone_threshold {
            if !(share > 0.0 && share <= 1.0) {
                return Err(NodeEvictionError::Share(share));
            }
            rates.disrupted_share = share;
        }
        rates.large_zone = self.large_cluster_size_threshold.unwrap_or(rates.large_zone);
        Ok(rates)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rates_of_evictions_are_those_of_the_options() {
        let default = Rates::default();
        assert_eq!(NodeEvictionArgs::default().resolve(), Ok(default));
        let file = NodeEvictionArgs {
            node_eviction_rate: Some(7.0),
            unhealthy_zone_threshold: Some(0.8),
            ..NodeEvictionArgs::default()
        };
        let given = NodeEvictionArgs { node_eviction_rate: Some(0.5), ..NodeEvictionArgs::default() };
        let rates = given.over(file).resolve().unwrap();
        assert_eq!(rates.normal.map(|interval| interval.as_secs()), Some(2));
        assert_eq!((rates.disrupted_share, rates.large_zone), (0.8, default.large_zone));
        let none =
            NodeEvictionArgs { secondary_node_eviction_rate: Some(0.0), ..NodeEvictionArgs::default() };
        assert_eq!(none.resolve().unwrap().reduced, None);
        for (rate, share) in [(-1.0, 0.5), (f64::NAN, 0.5), (1.0, 0.0), (1.0, 1.5), (1.0, f64::NAN)] {
            let wrong = NodeEvictionArgs {
                node_eviction_rate: Some(rate),
                unhealthy_zone_threshold: Some(share),
                ..NodeEvictionArgs::default()
            };
            assert!(wrong.resolve().is_err(), "{rate} {share}");
        }
    }
}
