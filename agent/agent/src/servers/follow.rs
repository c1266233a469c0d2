//! Learns the servers from the EndpointSlices of `default/kubernetes`, and runs a monitor for each while there are several.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

use super::{Address, ServerList, Servers, monitor, spread};
use crate::cluster::{Name, Node, Protocol, Reflector, Slice};

/// How often nodes are counted, and monitors that ended are started again.
const LOOK: Duration = Duration::from_secs(15);

/// How long the name of the kubeconfig's server may take to resolve.
const RESOLVE: Duration = Duration::from_secs(2);

impl Servers {
    /// Follows the servers until the process ends.
    pub async fn follow(self, slices: Reflector<Slice>, nodes: Reflector<Node>) {
        let mut changes = slices.changes();
        let mut monitors = HashMap::new();
        let mut look = tokio::time::interval(LOOK);
        loop {
            self.run_monitors(&mut monitors);
            tokio::select! {
                _ = changes.next() => {}
                () = self.0.changed.notified() => {}
                _ = look.tick() => {
                    let mut count = 0;
                    nodes.any(|_, _| {
                        count += 1;
                        false
                    });
                    self.0.nodes.store(count, Ordering::Relaxed);
                    self.0.table.lock().spread = spread(count);
                }
            }
            if slices.is_synced() {
                self.learn(&published(&slices.group(&service()))).await;
            }
        }
    }

    /// Starts monitors of new servers and ends those of servers that left.
    fn run_monitors(&self, monitors: &mut HashMap<Address, AbortOnDropHandle<()>>) {
        let servers = self.monitored().unwrap_or_default();
        monitors.retain(|server, task| servers.contains(server) && !task.is_finished());
        for server in servers {
            let start = || AbortOnDropHandle::new(tokio::spawn(monitor::run(self.clone(), server.clone())));
            monitors.entry(server.clone()).or_insert_with(start);
        }
        if monitors.is_empty() {
            self.0.unfit.send_if_modified(|unfit| !std::mem::take(unfit).is_empty());
        }
    }

    /// Takes the published servers over, and keeps them for the next start.
    pub(super) async fn learn(&self, published: &[Address]) {
        let (learned, primary) = {
            let mut table = self.0.table.lock();
            if !self.may_learn() || !table.publish(published) {
                return;
            }
            (table.published(), table.primary())
        };
        if let Some(primary) = primary {
            let is_alias = is_alias(&primary, &learned).await;
            self.0.table.lock().is_alias = is_alias;
        }
        tracing::info!(servers = ?learned.iter().map(ToString::to_string).collect::<Vec<_>>(), "API servers of the cluster");
        let Some(path) = self.0.file.clone() else { return };
        let list = ServerList { given: self.0.given.clone(), learned };
        let written = tokio::task::spawn_blocking(move || list.write(&path)).await;
        if let Ok(Err(error)) = written {
            let error = coracle_cli::causes::chain(&error);
            tracing::warn!(error, "list of servers not written");
        }
    }
}

/// Whether a name leads to published servers and nowhere else.
async fn is_alias(name: &Address, published: &[Address]) -> bool {
    let looked_up = tokio::net::lookup_host(name.to_string());
    let Ok(Ok(found)) = tokio::time::timeout(RESOLVE, looked_up).await else { return false };
    let mut found = found.peekable();
    found.peek().is_some() && found.all(|address| published.contains(&address.into()))
}

/// The Service of the API servers.
pub fn service() -> Name {
    Name::new("default", "kubernetes")
}

/// The servers that slices list, in order.
fn published(slices: &[Arc<Slice>]) -> Vec<Address> {
    let mut all: Vec<SocketAddr> = Vec::new();
    for slice in slices {
        let port = slice.ports.iter().find(|port| &*port.name == "https").or(slice.ports.first());
        let Some(port) = port.filter(|port| port.protocol == Protocol::Tcp) else { continue };
        let ready = slice.endpoints.iter().filter(|endpoint| endpoint.ready);
        all.extend(ready.map(|endpoint| SocketAddr::new(endpoint.ip, port.port)));
    }
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(Address::from).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cluster::{FromWire as _, Slice};
    use serde_json::json;

    fn slice(ports: serde_json::Value, endpoints: serde_json::Value) -> Arc<Slice> {
        let labels = json!({"kubernetes.io/service-name": "kubernetes"});
        let wire = json!({"metadata": {"name": "s", "namespace": "default", "labels": labels},
            "addressType": "IPv4", "ports": ports, "endpoints": endpoints});
        Arc::new(Slice::from_wire(serde_json::from_value(wire).unwrap()).unwrap())
    }

    #[test]
    fn ready_endpoints_at_the_https_port_are_servers() {
        let https = json!([{"name": "metrics", "port": 9, "protocol": "TCP"},
            {"name": "https", "port": 6443, "protocol": "TCP"}]);
        let endpoints = json!([{"addresses": ["192.0.2.2"]}, {"addresses": ["192.0.2.1"]},
            {"addresses": ["192.0.2.3"], "conditions": {"ready": false}}]);
        let v6 = json!([{"addresses": ["2001:db8::1"]}, {"addresses": ["2001:db8::1"]}]);
        let unnamed = json!([{"name": "", "port": 443, "protocol": "TCP"}]);
        let udp = json!([{"name": "https", "port": 443, "protocol": "UDP"}]);
        let slices = [
            slice(https, endpoints),
            slice(unnamed, v6.clone()),
            slice(udp, json!([{"addresses": ["192.0.2.9"]}])),
            slice(json!([]), v6),
        ];
        let found: Vec<String> = published(&slices).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1:6443", "192.0.2.2:6443", "[2001:db8::1]:443"]);
        assert!(published(&[]).is_empty());
    }
}
