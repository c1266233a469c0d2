//! The service account `default` and the ConfigMap `kube-root-ca.crt` of every namespace.

use crate::root_ca::RootCa;
use async_trait::async_trait;
use coracle_fields::core::v1::{ConfigMap, ServiceAccount};
use coracle_fields::{Made, make};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_proto::status::ApiError;
use jiff::Timestamp;

const ACCOUNTS: &str = "service-account-controller";
const PUBLISHER: &str = "root-ca-cert-publisher";
const MAP: &str = "kube-root-ca.crt";

struct Accounts {
    namespaces: Resource,
    accounts: Resource,
}

struct Publisher {
    namespaces: Resource,
    maps: Resource,
    ca: RootCa,
}

/// Starts both; `ca` is what is published.
pub fn start(setup: &mut Setup<'_>, ca: RootCa) {
    let namespaces = setup.resource(ACCOUNTS, "", "namespaces");
    let accounts = setup.resource(ACCOUNTS, "", "serviceaccounts");
    let mut handlers = setup.enqueue_on_change(&namespaces);
    handlers.on_change(&accounts.kind, &accounts.cache, |change, add| {
        if let (Some(old), None) = (change.old, change.new) {
            add(Name::new("", &old.meta.namespace));
        }
    });
    let queue = handlers.queue.clone();
    setup.run(Accounts { namespaces, accounts }, &queue, 1);

    let namespaces = setup.resource(PUBLISHER, "", "namespaces");
    let maps = setup.resource(PUBLISHER, "", "configmaps");
    let mut handlers = setup.enqueue_on_change(&namespaces);
    handlers.on_change(&maps.kind, &maps.cache, |change, add| {
        if let Some(map) = change.object().filter(|m| m.meta.name == MAP) {
            add(Name::new("", &map.meta.namespace));
        }
    });
    let queue = handlers.queue.clone();
    let parts = (ca.clone(), namespaces.cache.clone(), queue.clone());
    setup.spawn("root CA", move || {
        let (ca, namespaces, queue) = parts.clone();
        ca.on_change(move || namespaces.list(None).iter().for_each(|one| queue.add(Name::of(one))))
    });
    setup.run(Publisher { namespaces, maps, ca }, &queue, 1);
}

fn settled(result: Result<impl Sized, ApiError>) -> Result<Requeue, Failure> {
    match result {
        Err(error) if !error.is_already_exists() && !error.is_namespace_terminating() => Err(error.into()),
        _ => Ok(Requeue::No),
    }
}

#[async_trait]
impl Controller for Accounts {
    fn name(&self) -> &'static str {
        ACCOUNTS
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let namespace = self.namespaces.get(name).filter(|n| n.meta.deletion_timestamp.is_none());
        if namespace.is_none() || self.accounts.get(&Name::new(&name.name, "default")).is_some() {
            return Ok(Requeue::No);
        }
        let body = make!(ServiceAccount { metadata: { name: "default", namespace: &name.name } });
        settled(self.accounts.create(&name.name, body).await)
    }
}

#[async_trait]
impl Controller for Publisher {
    fn name(&self) -> &'static str {
        PUBLISHER
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        if self.namespaces.get(name).is_none_or(|n| n.meta.deletion_timestamp.is_some()) {
            return Ok(Requeue::No);
        }
        let Some(map) = self.maps.get(&Name::new(&name.name, MAP)) else {
            return settled(self.maps.create(&name.name, published(&self.ca.pem(), &name.name)).await);
        };
        let mut body = map.copy::<ConfigMap>();
        let wanted = published(&self.ca.pem(), &name.name);
        if body.view().data().to_value() == wanted.view().data().to_value() {
            return Ok(Requeue::No);
        }
        body.edit().data().set(wanted.view().data());
        settled(self.maps.update(body).await)
    }
}

fn published(ca: &str, namespace: &str) -> Made<ConfigMap> {
    let description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
        endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
        distributions of Kubernetes clusters.";
    make!(ConfigMap {
        metadata: { name: MAP, namespace, annotations: [("kubernetes.io/description", description)] },
        data: [("ca.crt", ca)],
    })
}
