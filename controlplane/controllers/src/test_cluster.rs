//! A cluster for tests, with these controllers.

use super::{Options, start};
use coracle_testing as testing;
use std::ops::Deref;

/// A cluster with all controllers.
pub struct Cluster(testing::Cluster);

impl Deref for Cluster {
    type Target = testing::Cluster;

    fn deref(&self) -> &testing::Cluster {
        &self.0
    }
}

impl Cluster {
    /// A cluster whose pods start and become ready by themselves.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// The same with other options.
    pub async fn start_with(options: Options) -> Self {
        Self(Self::build(options).await.running_pods())
    }

    /// A cluster whose pods stay pending.
    pub async fn without_nodes() -> Self {
        Self(Self::build(Options::default()).await)
    }

    async fn build(options: Options) -> testing::Cluster {
        testing::Cluster::with(|parts| {
            let options = Options {
                ca: "PEM".into(),
                keys: Some(parts.keys.clone()),
                pod_ranges: vec!["10.42.0.0/16".parse().expect("a range")],
                charges: Some(parts.quota_charges.clone()),
                node_ports: Some(parts.node_ports.clone()),
                ignored_delays: Some(testing::FALLBACK),
                ..options
            };
            let client = parts.client.clone();
            start(&move |name: &str| client.controller(name), &options)
        })
        .await
    }

    /// Waits until something holds; panics with what there is when it does not for a minute.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        self.0.until(what, |_| holds(self)).await;
    }
}
