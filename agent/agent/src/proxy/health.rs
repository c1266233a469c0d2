//! `healthCheckNodePort`: tells load balancers by HTTP whether this node has endpoints of a service.

use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::healthz::ProxyHealth;
use crate::cluster::Name;

/// Status lines of answers.
pub(super) const OK: &str = "200 OK";
/// The proxy or the service cannot take connections.
pub(super) const UNAVAILABLE: &str = "503 Service Unavailable";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Answers every request at an address with a whole response, made from the path.
pub(super) async fn serve(
    address: SocketAddr,
    respond: impl Fn(&str) -> String + Clone + Send + Sync + 'static,
) {
    let listener = loop {
        let bound = match TcpListener::bind(address).await {
            // Without IPv6.
            Err(_) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        };
        match bound {
            Ok(listener) => break listener,
            Err(error) => {
                tracing::warn!(%address, error = %causes::chain(&error), "health check port not bound, will retry");
                tokio::time::sleep(REQUEST_TIMEOUT).await;
            }
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let respond = respond.clone();
                tokio::spawn(async move {
                    // A client that goes away is its own business.
                    let _ = tokio::time::timeout(REQUEST_TIMEOUT, reply(stream, respond)).await;
                });
            }
            Err(error) => {
                tracing::warn!(%address, error = %causes::chain(&error), "health check not answered");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn reply(mut stream: TcpStream, respond: impl Fn(&str) -> String) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 512];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < 8192 {
        let n = stream.read(&mut part).await?;
        if n == 0 {
            break;
        }
        request.extend_from_slice(&part[..n]);
    }
    // `GET /path HTTP/1.1`.
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let target = line.split(' ').nth(1).unwrap_or_default();
    let text = respond(target.split('?').next().unwrap_or_default());
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
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
