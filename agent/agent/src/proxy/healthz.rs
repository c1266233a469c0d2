//! `/healthz` and `/livez` of the service proxy, on port 10256: whether its rules are up to date, and for `/healthz`
//! whether load balancers may use the node.

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

use super::health_listener::{self, OK, UNAVAILABLE};
use crate::cluster::{Name, Node, Reflector};

/// How long a change may wait for the kernel: twice kube-proxy's interval of syncs.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Progress {
    updated: Option<Timestamp>,
    /// When the oldest change arrived that is not in the kernel yet.
    queued: Option<Instant>,
}

/// Whether the rules follow the API. Clones share it.
#[derive(Clone, Default)]
pub struct ProxyHealth(Arc<Mutex<Progress>>);

impl ProxyHealth {
    /// A change arrived.
    pub fn queued(&self) {
        self.0.lock().queued.get_or_insert_with(Instant::now);
    }

    /// All changes are in the kernel.
    pub fn updated(&self) {
        *self.0.lock() = Progress { updated: Some(Timestamp::now()), queued: None };
    }

    /// Whether no change waits for too long. A proxy that is starting is healthy.
    pub fn is_healthy(&self) -> bool {
        let progress = self.0.lock();
        progress.updated.is_none() || progress.queued.is_none_or(|since| since.elapsed() < TIMEOUT)
    }

    /// The document, `node_eligible` where it counts; and whether it says that all is well.
    fn document(&self, node_eligible: Option<bool>) -> (bool, Value) {
        let healthy = self.is_healthy();
        let (now, updated) = (Timestamp::now(), self.0.lock().updated.unwrap_or_default());
        let is_well = healthy && node_eligible != Some(false);
        let family = json!({"lastUpdated": updated.to_string(), "healthy": healthy});
        let mut document = json!({
            // Recent while all is well, although nothing may have changed for long.
            "lastUpdated": if is_well { now } else { updated }.to_string(),
            "currentTime": now.to_string(),
            "healthy": healthy,
            "status": {"IPv4": family, "IPv6": family},
        });
        if let Some(eligible) = node_eligible {
            document["nodeEligible"] = json!(eligible);
        }
        (is_well, document)
    }

    fn respond(&self, path: &str, node_eligible: impl FnOnce() -> bool) -> String {
        let (is_well, document) = match path {
            "/healthz" => self.document(Some(node_eligible())),
            "/livez" => self.document(None),
            _ => return answer("404 Not Found", &json!({})),
        };
        answer(if is_well { OK } else { UNAVAILABLE }, &document)
    }
}

fn answer(status: &str, document: &Value) -> String {
    let body = document.to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Serves the health checks of the proxy, until the process ends.
pub async fn serve(address: SocketAddr, health: ProxyHealth, nodes: Reflector<Node>, node: String) {
    let respond = move |path: &str| {
        let eligible = || nodes.get(&Name::new("", &node)).is_some_and(|node| !node.is_leaving);
        health.respond(path, eligible)
    };
    health_listener::serve(address, respond).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(health: &ProxyHealth, path: &str, eligible: bool) -> String {
        let text = health.respond(path, || eligible);
        text.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn the_proxy_has_a_health_port() {
        let health = ProxyHealth::default();
        let codes = |health: &ProxyHealth, eligible| {
            ["/healthz", "/livez"].map(|path| status(health, path, eligible))
        };
        assert_eq!(codes(&health, true), ["200", "200"], "while it starts");
        health.updated();
        assert_eq!(codes(&health, true), ["200", "200"]);
        assert_eq!(codes(&health, false), ["503", "200"], "a node that leaves is alive");
        assert_eq!(status(&health, "/other", true), "404");
        health.queued();
        tokio::time::advance(TIMEOUT / 2).await;
        health.queued();
        assert_eq!(codes(&health, true), ["200", "200"]);
        tokio::time::advance(TIMEOUT / 2).await;
        assert_eq!(codes(&health, true), ["503", "503"], "the kernel takes no rules");
        health.updated();
        assert_eq!(codes(&health, true), ["200", "200"]);
        let (_, document) = health.document(Some(true));
        assert_eq!((&document["nodeEligible"], &document["healthy"]), (&json!(true), &json!(true)));
    }
}
