//! `healthCheckNodePort`: tells load balancers by HTTP whether this node has endpoints of a service.

use coracle_cli::supervise::Supervisor;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use super::health_listener::{OK, UNAVAILABLE, serve};
use super::healthz::ProxyHealth;
use crate::cluster::Name;

type Answer = Arc<RwLock<(Name, usize)>>;

/// The listeners, by port. Dropping it closes them.
pub struct Health {
    supervisor: Supervisor,
    proxy: ProxyHealth,
    ports: HashMap<u16, (Answer, tokio::task::AbortHandle)>,
}

impl Drop for Health {
    fn drop(&mut self) {
        self.ports.values().for_each(|(_, task)| task.abort());
    }
}

impl Health {
    /// No listeners yet; the supervisor keeps them running.
    pub fn new(supervisor: Supervisor, proxy: ProxyHealth) -> Self {
        Health { supervisor, proxy, ports: HashMap::new() }
    }

    /// Brings a service's listener up to date; with no port it has none.
    pub fn update(&mut self, name: &Name, wanted: Option<(u16, usize)>) {
        let port = wanted.map(|(port, _)| port);
        self.ports.retain(|at, (answer, task)| {
            let keep = Some(*at) == port || answer.read().0 != *name;
            if !keep {
                task.abort();
            }
            keep
        });
        let Some((port, count)) = wanted else { return };
        match self.ports.get(&port) {
            Some((answer, _)) => *answer.write() = (name.clone(), count),
            None => {
                let answer = Arc::new(RwLock::new((name.clone(), count)));
                let (shown, proxy) = (answer.clone(), self.proxy.clone());
                let task = self.supervisor.spawn("health check ports", move || {
                    let (shown, proxy) = (shown.clone(), proxy.clone());
                    let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
                    serve((any, port).into(), move |_| response(&shown.read(), proxy.is_healthy()))
                });
                self.ports.insert(port, (answer, task.abort_handle()));
            }
        }
    }
}

/// A node without endpoints, or whose rules are out of date, gets no connections.
fn response((name, count): &(Name, usize), proxy_is_healthy: bool) -> String {
    let status = if *count > 0 && proxy_is_healthy { OK } else { UNAVAILABLE };
    let body = serde_json::json!({
        "service": {"namespace": &*name.namespace, "name": &*name.name},
        "localEndpoints": count,
        "serviceProxyHealthy": proxy_is_healthy,
    })
    .to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         X-Load-Balancing-Endpoint-Weight: {count}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
