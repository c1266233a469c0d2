//! The node's own HTTPS API, as the kubelet's clients know it: logs, exec, attach, port-forward, pods, usage, metrics.

// Certificates.
pub mod tls;
// Who may ask.
pub mod access;
// Answers.
pub mod answer;
// What containers wrote.
pub mod logs;
// Exec, attach and port-forward.
pub mod streams;
// Connections towards a server that cannot dial the node.
pub mod tunnel;
// Raw connections for the API server's proxy.
pub mod dial;
// The state of a container as an archive.
pub mod checkpoint;
// Lists of pods.
pub mod pods;
// Settings.
pub mod configz;
// Usage and metrics.
pub mod metrics;
// Volumes of the cluster on this node.
pub mod volumes;
// Files of the host's log directory.
pub mod files;

use coracle_proto::exposition::Form;
use http::header::ACCEPT;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::context::Context;
use crate::usage::Usage;
use access::{Access, Peer};
use answer::{Answer, text};

/// A client that does not finish its handshake or its headers holds a descriptor.
const SLOW_CLIENT: Duration = Duration::from_secs(30);
/// Between attempts to listen: the agent before this one may still hold the port.
const RETRY: Duration = Duration::from_secs(1);

/// The server.
pub struct NodeApi {
    context: Arc<Context>,
    usage: Usage,
    access: Access,
    tls: TlsAcceptor,
}

impl NodeApi {
    /// With its certificate and its idea of who may ask.
    pub fn new(context: Arc<Context>, usage: Usage, access: Access, tls: TlsAcceptor) -> Arc<Self> {
        Arc::new(Self { context, usage, access, tls })
    }

    /// Serves until the process ends.
    pub async fn serve(self: Arc<Self>) {
        let listener = self.listen().await;
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors: others will be closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            tokio::spawn(self.clone().connection(stream));
        }
    }

    async fn listen(&self) -> TcpListener {
        let port = self.context.config.api_port;
        loop {
            let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            let old = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            // A kernel without IPv6 has no `::`.
            match TcpListener::bind(&[both, old][..]).await {
                Ok(listener) => return listener,
                Err(error) => tracing::warn!(port, %error, "node API does not listen, will retry"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn connection(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let Ok(Ok(stream)) = tokio::time::timeout(SLOW_CLIENT, self.tls.accept(stream)).await else { return };
        let peer = Peer::of(stream.get_ref().1);
        let service = hyper::service::service_fn(move |request| {
            let (api, peer) = (self.clone(), peer.clone());
            async move { Ok::<_, Infallible>(api.handle(&peer, request).await) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(SLOW_CLIENT);
        let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    }

    async fn handle(&self, peer: &Peer, request: Request<Incoming>) -> Answer {
        if let Err(refused) = self.access.authorize(peer, &request).await {
            return refused;
        }
        let path = request.uri().path().trim_matches('/').to_owned();
        let parts: Vec<&str> = path.split('/').collect();
        let context = &self.context;
        match (request.method(), parts.as_slice()) {
            (&Method::GET, ["healthz", ..]) => text(StatusCode::OK, "ok"),
            (&Method::GET, ["pods"]) => pods::pods(context),
            (&Method::GET, ["runningpods"]) => pods::running(context),
            (&Method::GET, ["configz"]) => configz::configz(context),
            (&Method::GET, ["containerLogs", namespace, pod, container]) => {
                logs::handle(context, (namespace, pod, container), &request).await
            }
            (&Method::GET, ["stats", "summary"]) => metrics::stats(context, &self.usage),
            (&Method::GET, ["metrics"]) => metrics::agent(context, form(&request)),
            (&Method::GET, ["metrics", "resource"]) => metrics::resource(&self.usage, form(&request)),
            (&Method::GET, ["metrics", "cadvisor"]) => metrics::cadvisor(&self.usage, form(&request)),
            (&Method::GET, ["metrics", "probes"]) => metrics::probes(context, form(&request)),
            (&Method::GET, ["logs", ..]) => files::handle(&path["logs".len()..]),
            (&Method::GET | &Method::POST, ["exec", namespace, pod, container])
            | (&Method::GET | &Method::POST, ["exec", namespace, pod, _, container]) => {
                streams::exec(context, (namespace, pod, container), request)
            }
            (&Method::GET | &Method::POST, ["attach", namespace, pod, container])
            | (&Method::GET | &Method::POST, ["attach", namespace, pod, _, container]) => {
                streams::attach(context, (namespace, pod, container), request)
            }
            (&Method::GET | &Method::POST, ["portForward", namespace, pod])
            | (&Method::GET | &Method::POST, ["portForward", namespace, pod, _]) => {
                streams::port_forward(context, (namespace, pod), request)
            }
            (&Method::POST, ["run", namespace, pod, container])
            | (&Method::POST, ["run", namespace, pod, _, container]) => {
                streams::run(context, (namespace, pod, container), &request).await
            }
            (&Method::POST, ["checkpoint", namespace, pod, container]) => {
                checkpoint::handle(context, (namespace, pod, container), &request).await
            }
            (&Method::DELETE, ["volumes", volume]) => volumes::remove(context, volume).await,
            (&Method::GET, ["dial", address]) => dial::handle(context, address, request).await,
            _ => text(StatusCode::NOT_FOUND, "404 page not found"),
        }
    }
}

/// How a client wants to read metrics.
fn form<B>(request: &Request<B>) -> Form {
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    Form::accepted(accept.unwrap_or_default())
}

/// Pairs of a request's query.
fn query<B>(request: &Request<B>) -> Vec<(String, String)> {
    form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).into_owned().collect()
}

fn first<'a>(query: &'a [(String, String)], key: &str) -> Option<&'a str> {
    query.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
}
