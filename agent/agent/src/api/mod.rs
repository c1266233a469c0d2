//! The node API (HTTPS), compatible with the kubelet's: logs, exec, attach, port-forward, pods, usage, metrics.

// Certificates.
pub mod tls;
// Authentication and authorization.
pub mod auth;
// Rate limit of token reviews.
mod review_limit;
// Responses.
pub mod response;
// Parts of requests.
pub mod query;
// Pods and containers that requests are about.
pub mod containers;
// Container logs.
pub mod logs;
// Exec, attach and port-forward.
pub mod streams;
// Tunnels to an API server that cannot dial the node.
pub mod tunnel;
// Raw connections for the API server's proxy.
pub mod dial;
// Container checkpoints.
pub mod checkpoint;
// Lists of pods.
pub mod pods;
// `/configz`.
pub mod configz;
// Usage and metrics.
pub mod metrics;
// Removal of volumes.
pub mod volumes;
// PodResources, on a socket of the node.
pub mod pod_resources;
// Requests per second.
mod rate_limit;
// Files of the host's log directory.
pub mod files;

use coracle_cli::causes;
use coracle_cli::health::{self, Checks, HealthRequest, Scope};
use coracle_cli::supervise::{Supervisor, catch_panic_async};
use coracle_proto::exposition::Form;
use http::header::ACCEPT;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::config::NodeConfig;
use auth::{Admission, NodeAuth, Peer};
use containers::Containers;
use metrics::Metrics;
use query::query;
use response::{ApiResponse, text};
use tls::Tls;

/// Timeout of the TLS handshake and of request headers: slow clients hold descriptors.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay between attempts to listen: the previous agent may still hold the port.
const RETRY: Duration = Duration::from_secs(1);

/// The server.
pub struct NodeApi {
    config: Arc<NodeConfig>,
    containers: Containers,
    metrics: Metrics,
    access: NodeAuth,
    tls: Tls,
    checks: Checks,
}

impl NodeApi {
    /// A server with TLS and authorization; `serve` starts it.
    pub fn new(
        config: Arc<NodeConfig>,
        containers: Containers,
        metrics: Metrics,
        access: NodeAuth,
        tls: Tls,
    ) -> Arc<Self> {
        let checks = health_checks(&metrics.supervisor);
        Arc::new(Self { config, containers, metrics, access, tls, checks })
    }

    /// Serves until the process ends.
    pub async fn serve(self: Arc<Self>) {
        let listener = self.listen().await;
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                // Out of descriptors: waits until some are closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            // TCP keepalive: dead clients of an idle exec are detected within minutes.
            let _ = setsockopt(&stream, sockopt::KeepAlive, &true);
            let _ = setsockopt(&stream, sockopt::TcpKeepIdle, &30);
            let _ = setsockopt(&stream, sockopt::TcpKeepInterval, &15);
            tokio::spawn(self.clone().connection(stream, Some(from.ip())));
        }
    }

    async fn listen(&self) -> TcpListener {
        let port = self.config.api_port;
        loop {
            let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            let old = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            // A kernel without IPv6 has no `::`.
            match TcpListener::bind(&[both, old][..]).await {
                Ok(listener) => return listener,
                Err(error) => {
                    tracing::warn!(port, error = %causes::chain(&error), "node API port not bound, will retry")
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Serves one connection; `source` is its remote address, none for tunnels that this node opened.
    async fn connection(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        source: Option<IpAddr>,
    ) {
        let Ok(Ok(stream)) = tokio::time::timeout(HEADER_TIMEOUT, self.tls.acceptor().accept(stream)).await
        else {
            return;
        };
        let peer = self.tls.peer(stream.get_ref().1);
        let service = hyper::service::service_fn(move |request| {
            let (api, peer) = (self.clone(), peer.clone());
            async move {
                let answer = catch_panic_async(api.handle(&peer, source, request)).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(|panicked| {
                    api.metrics.supervisor.panicked("request", &panicked);
                    text(StatusCode::INTERNAL_SERVER_ERROR, "the agent has panicked")
                }))
            }
        });
        serve_http1(stream, service, HEADER_TIMEOUT).await;
    }

    async fn handle(&self, peer: &Peer, source: Option<IpAddr>, request: Request<Incoming>) -> ApiResponse {
        let admission = match self.access.authorize(peer, source, &request).await {
            Ok(admission) => admission,
            Err(refused) => return refused,
        };
        let path = request.uri().path().trim_matches('/').to_owned();
        let parts: Vec<&str> = path.split('/').collect();
        let (config, containers, metrics) = (&self.config, &self.containers, &self.metrics);
        match (request.method(), parts.as_slice()) {
            (&Method::GET, ["healthz"]) => self.health(None, admission, &request),
            (&Method::GET, ["healthz", check]) => self.health(Some(check), admission, &request),
            (&Method::GET, ["pods"]) => pods::pods(containers),
            (&Method::GET, ["runningpods"]) => pods::running(&containers.pods),
            (&Method::GET, ["configz"]) => configz::configz(config),
            (&Method::GET, ["containerLogs", namespace, pod, container]) => {
                logs::handle(containers, (namespace, pod, container), &request).await
            }
            (&Method::GET, ["stats", "summary"]) => metrics.stats(&containers.reporter),
            (&Method::GET, ["metrics"]) => metrics.agent(&containers.pods, form(&request)),
            (&Method::GET, ["metrics", "resource"]) => metrics.resource(form(&request)),
            (&Method::GET, ["metrics", "cadvisor"]) => metrics.cadvisor(form(&request)),
            (&Method::GET, ["metrics", "probes"]) => metrics.probes(form(&request)),
            (&Method::GET, ["logs", ..]) => files::handle(&path["logs".len()..]),
            (&Method::GET | &Method::POST, ["exec", namespace, pod, uid @ .., container])
                if uid.len() < 2 =>
            {
                streams::exec(containers, (namespace, pod, container), uid.first().copied(), request)
            }
            (&Method::GET | &Method::POST, ["attach", namespace, pod, uid @ .., container])
                if uid.len() < 2 =>
            {
                streams::attach(containers, (namespace, pod, container), uid.first().copied(), request)
            }
            (&Method::GET | &Method::POST, ["portForward", namespace, pod, uid @ ..]) if uid.len() < 2 => {
                streams::port_forward(containers, (namespace, pod), uid.first().copied(), request)
            }
            (&Method::POST, ["run", namespace, pod, uid @ .., container]) if uid.len() < 2 => {
                streams::run(containers, (namespace, pod, container), uid.first().copied(), &request).await
            }
            (&Method::POST, ["checkpoint", namespace, pod, container]) => {
                checkpoint::handle(containers, &config.root_dir, (namespace, pod, container), &request).await
            }
            (&Method::DELETE, ["volumes", volume]) => {
                volumes::remove(config.storage_dirs.clone(), volume).await
            }
            (&Method::GET, ["dial", address]) => {
                dial::handle(&config.ips, &containers.pods, address, request).await
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found"),
        }
    }
}

impl NodeApi {
    fn health(&self, only: Option<&str>, admission: Admission, request: &Request<Incoming>) -> ApiResponse {
        let (code, page) =
            health_page(&self.checks, &self.metrics.supervisor, only, admission, &query(request));
        text(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), page)
    }
}

/// What `/healthz` and the watchdog of the service manager ask: whether all tasks run.
pub fn health_checks(supervisor: &Supervisor) -> Checks {
    let checks = Checks::default();
    checks.add("ping", Scope::Live, || Ok(()));
    checks.add_tasks(supervisor.clone());
    checks
}

/// Status code and text of `/healthz`. Only authorized clients see reasons and pod names.
fn health_page(
    checks: &Checks,
    supervisor: &Supervisor,
    only: Option<&str>,
    admission: Admission,
    query: &[(String, String)],
) -> (u16, String) {
    let trusted = admission == Admission::Authorized;
    let question = HealthRequest {
        page: "healthz",
        only,
        verbose: query.iter().any(|(key, _)| key == "verbose"),
        exclude: query.iter().filter(|(k, _)| k == "exclude").map(|(_, v)| v.as_str()).collect(),
        trusted,
        remarks: health::quarantine_remarks(supervisor, trusted),
    };
    health::answer(&question, &checks.ask("healthz"))
}

/// Serves HTTP/1.1 until either side closes. Request headers must arrive within `header_timeout` of the start or of the
/// previous request; requests and upgraded streams have no time limit.
async fn serve_http1<S, F>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    service: S,
    header_timeout: Duration,
) where
    S: hyper::service::Service<Request<Incoming>, Response = ApiResponse, Error = Infallible, Future = F>,
    F: Future<Output = Result<ApiResponse, Infallible>>,
{
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(header_timeout);
    let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

/// Metrics format that the client accepts.
fn form<B>(request: &Request<B>) -> Form {
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    Form::accepted(accept.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_cli::supervise::Subject;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const TEST_TIMEOUT: Duration = Duration::from_millis(200);

    /// What a client reads until it is hung up on, after it said something; answers take three times as long as heads may.
    async fn heard(said: &str) -> String {
        let (mut client, server) = tokio::io::duplex(4096);
        let service = hyper::service::service_fn(|_: Request<Incoming>| async {
            tokio::time::sleep(3 * TEST_TIMEOUT).await;
            Ok::<_, Infallible>(text(StatusCode::OK, "late"))
        });
        let serving = tokio::spawn(serve_http1(server, service, TEST_TIMEOUT));
        client.write_all(said.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = client.read_to_string(&mut answer);
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("it is hung up").unwrap();
        serving.await.unwrap();
        answer
    }

    #[tokio::test]
    async fn strangers_learn_neither_names_of_pods_nor_reasons_from_the_health_page() {
        let (supervisor, checks) = (Supervisor::default(), Checks::default());
        let subject = || Subject::new("pods", "ns", "hidden-pod");
        let _ = supervisor.isolate_sync("pods", subject, || panic!("hidden text"));
        let page = |admission| {
            let query = [("verbose".to_owned(), String::new())];
            health_page(&checks, &supervisor, None, admission, &query).1
        };
        let (known, stranger) = (page(Admission::Authorized), page(Admission::Public));
        assert!(known.contains("hidden-pod") && known.contains("hidden text"), "{known}");
        assert!(stranger.contains("quarantine holds 1") && !stranger.contains("hidden"), "{stranger}");
        let failed = || Err(health::CheckError::Dead("hidden reason".into()));
        checks.add("disk", Scope::Live, failed);
        assert!(page(Admission::Authorized).contains("hidden reason"));
        assert!(!page(Admission::Public).contains("hidden"));
    }

    #[tokio::test]
    async fn silent_and_slow_clients_are_hung_up_on_and_requests_are_not_cut() {
        assert_eq!(heard("").await, "");
        assert_eq!(heard("GET / HTTP/1.1\r\nhost: a\r\nx-slow: ").await, "");
        let answer = heard("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("late"), "{answer}");
    }
}
