//! Addresses of services, as containers are told them in environment variables: the smallest view that serves it.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::runtime::watcher;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::watch;

use crate::pod::service_env::{self, ServicePorts};
use crate::watching;

/// Services with a cluster IP, by namespace and name.
#[derive(Clone)]
pub struct Services {
    known: Arc<RwLock<HashMap<(String, String), ServicePorts>>>,
    synced: watch::Receiver<bool>,
}

impl Services {
    /// The view, and the task that keeps it.
    pub fn new(client: kube::Client) -> (Self, impl Future<Output = ()> + Send) {
        let known: Arc<RwLock<HashMap<(String, String), ServicePorts>>> = Arc::default();
        let (sender, synced) = watch::channel(false);
        let view = Services { known: known.clone(), synced };
        let task = async move {
            let api: Api<Service> = Api::all(client);
            let mut stream = watching::watch(api, watcher::Config::default());
            let mut listed = HashMap::new();
            while let Some(event) = stream.next().await {
                match event {
                    Ok(watcher::Event::Init) => listed = HashMap::new(),
                    Ok(watcher::Event::InitApply(service)) => {
                        listed.extend(entry(&service));
                    }
                    Ok(watcher::Event::InitDone) => {
                        *known.write() = std::mem::take(&mut listed);
                        sender.send_replace(true);
                    }
                    Ok(watcher::Event::Apply(service)) => {
                        known.write().remove(&key(&service));
                        known.write().extend(entry(&service));
                    }
                    Ok(watcher::Event::Delete(service)) => {
                        known.write().remove(&key(&service));
                    }
                    Err(error) => tracing::warn!(%error, "services are not followed, will retry"),
                }
            }
        };
        (view, task)
    }

    /// Variables for a pod: its namespace's services if it links them, and always the API server's.
    pub async fn variables(&self, namespace: &str, links: bool) -> BTreeMap<String, String> {
        let mut synced = self.synced.clone();
        // Upstream holds pods back until services were listed once; a server that is away must not hold restarts.
        let _ =
            tokio::time::timeout(std::time::Duration::from_secs(2), synced.wait_for(|synced| *synced)).await;
        let known = self.known.read();
        let api = known.get(&("default".to_owned(), "kubernetes".to_owned()));
        let own = known
            .iter()
            .filter(|((of, name), _)| links && of == namespace && !(of == "default" && name == "kubernetes"));
        service_env::variables(api.into_iter().chain(own.map(|(_, service)| service)))
    }
}

fn key(service: &Service) -> (String, String) {
    (
        service.metadata.namespace.clone().unwrap_or_default(),
        service.metadata.name.clone().unwrap_or_default(),
    )
}

fn entry(service: &Service) -> Option<((String, String), ServicePorts)> {
    let spec = service.spec.as_ref()?;
    let ip = spec.cluster_ip.clone().filter(|ip| !ip.is_empty() && ip != "None")?;
    let ports = spec.ports.iter().flatten().map(|port| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
        (port.name.clone().unwrap_or_default(), port.port, protocol)
    });
    let key = key(service);
    let ports = ServicePorts { name: key.1.clone(), ip, ports: ports.collect() };
    Some((key, ports))
}
