//! A cluster for tests, with these controllers.

use super::{Options, start};
use coracle_informer::identity::{Account, Identity};
use coracle_testing as testing;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

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

    /// The accounts of all controllers.
    pub async fn accounts() -> BTreeSet<Account> {
        // The controller of certificates is not started: it needs a signer.
        let accounts = Arc::new(Mutex::new(BTreeSet::from([Account::Service(crate::csr::NAME)])));
        let noted = accounts.clone();
        let note = move |identity: Identity| {
            noted.lock().insert(identity.account);
        };
        let _cluster = Self::build_noting(Options::default(), note).await;
        accounts.lock().clone()
    }

    async fn build(options: Options) -> testing::Cluster {
        Self::build_noting(options, |_| {}).await
    }

    /// Calls `note` with the identities of the controllers.
    async fn build_noting(
        options: Options,
        note: impl Fn(Identity) + Send + Sync + 'static,
    ) -> testing::Cluster {
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
            let factory = move |identity: Identity| {
                note(identity);
                identity.client(&client)
            };
            start(&factory, &options)
        })
        .await
    }

    /// Waits until something holds; panics with what there is when it does not for a minute.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        self.0.until(what, |_| holds(self)).await;
    }
}
