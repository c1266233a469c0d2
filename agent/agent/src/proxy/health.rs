//! `healthCheckNodePort`: tells load balancers by HTTP whether this node has endpoints of a service.

use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::Name;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

type Answer = Arc<RwLock<(Name, usize)>>;

/// The listeners, by port. Dropping it closes them.
pub struct Health {
    supervisor: Supervisor,
    ports: HashMap<u16, (Answer, tokio::task::AbortHandle)>,
}

impl Drop for Health {
    fn drop(&mut self) {
        self.ports.values().for_each(|(_, task)| task.abort());
    }
}

impl Health {
    /// No listeners yet; the supervisor keeps them running.
    pub fn new(supervisor: Supervisor) -> Self {
        Health { supervisor, ports: HashMap::new() }
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
                let shown = answer.clone();
                let task = self.supervisor.spawn("health check ports", move || serve(port, shown.clone()));
                self.ports.insert(port, (answer, task.abort_handle()));
            }
        }
    }
}

async fn serve(port: u16, answer: Answer) {
    let listener = loop {
        let bound = match TcpListener::bind(("::", port)).await {
            Ok(listener) => Ok(listener),
            // Without IPv6.
            Err(_) => TcpListener::bind(("0.0.0.0", port)).await,
        };
        match bound {
            Ok(listener) => break listener,
            Err(error) => {
                tracing::warn!(port, error = %causes::chain(&error), "health check port not bound, will retry");
                tokio::time::sleep(REQUEST_TIMEOUT).await;
            }
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let answer = answer.clone();
                tokio::spawn(async move {
                    // A client that goes away is its own business.
                    let _ = tokio::time::timeout(REQUEST_TIMEOUT, reply(stream, &answer)).await;
                });
            }
            Err(error) => {
                tracing::warn!(port, error = %causes::chain(&error), "health check not answered");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn reply(mut stream: TcpStream, answer: &Answer) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 512];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < 8192 {
        let n = stream.read(&mut part).await?;
        if n == 0 {
            break;
        }
        request.extend_from_slice(&part[..n]);
    }
    let text = response(&answer.read());
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

fn response((name, count): &(Name, usize)) -> String {
    let status = if *count > 0 { "200 OK" } else { "503 Service Unavailable" };
    let body = serde_json::json!({
        "service": {"namespace": &*name.namespace, "name": &*name.name},
        "localEndpoints": count,
        "serviceProxyHealthy": true,
    })
    .to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         X-Load-Balancing-Endpoint-Weight: {count}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
