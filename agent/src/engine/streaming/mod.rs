//! Exec, attach and port-forward for CRI clients: a request is answered with a URL on loopback, which then carries the
//! streams. A URL holds for a minute and for one connection, and nobody can guess it.

// One exec or attach over WebSocket channels.
pub mod session;
// Forwarded ports over WebSocket channels.
mod ports;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use coracle_proto::cri;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::runtime::Runtime;

/// How long a URL waits for its client.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a URL stands for.
#[derive(Debug, Clone)]
enum Wanted {
    Exec(cri::ExecRequest),
    Attach(cri::AttachRequest),
    PortForward(cri::PortForwardRequest),
}

/// A WebSocket after its handshake.
pub type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// The streaming server of a CRI socket.
pub struct Streaming {
    address: SocketAddr,
    runtime: Arc<dyn Runtime>,
    waiting: Mutex<HashMap<String, (Instant, Wanted)>>,
}

impl Streaming {
    /// Listens on a free port of loopback.
    pub async fn start(runtime: Arc<dyn Runtime>) -> std::io::Result<Arc<Self>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let streaming =
            Arc::new(Self { address: listener.local_addr()?, runtime, waiting: Mutex::default() });
        tokio::spawn(streaming.clone().accept(listener));
        Ok(streaming)
    }

    /// URL of an exec.
    pub fn exec(&self, request: cri::ExecRequest) -> String {
        self.url("exec", Wanted::Exec(request))
    }

    /// URL of an attach.
    pub fn attach(&self, request: cri::AttachRequest) -> String {
        self.url("attach", Wanted::Attach(request))
    }

    /// URL of a port-forward.
    pub fn port_forward(&self, request: cri::PortForwardRequest) -> String {
        self.url("portforward", Wanted::PortForward(request))
    }

    fn url(&self, verb: &str, wanted: Wanted) -> String {
        let token = super::new_id();
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, (since, _)| since.elapsed() < PATIENCE);
        waiting.insert(token.clone(), (Instant::now(), wanted));
        format!("http://{}/{verb}/{token}", self.address)
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors: others will be closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let streaming = self.clone();
            let service = hyper::service::service_fn(move |request| {
                let streaming = streaming.clone();
                async move { Ok::<_, Infallible>(streaming.handle(request)) }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades(),
            );
        }
    }

    fn handle(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let token = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let upgrade = request.headers().get(UPGRADE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let key = request.headers().get(SEC_WEBSOCKET_KEY).cloned();
        let (true, Some(key)) = (upgrade.eq_ignore_ascii_case("websocket"), key) else {
            return plain(StatusCode::BAD_REQUEST, "unable to upgrade: only WebSocket is spoken here");
        };
        let Some((since, wanted)) = self.waiting.lock().remove(&token) else {
            return plain(StatusCode::NOT_FOUND, "unknown or used token");
        };
        if since.elapsed() > PATIENCE {
            return plain(StatusCode::NOT_FOUND, "the token has expired");
        }
        let offered: Vec<String> = request
            .headers()
            .get_all(SEC_WEBSOCKET_PROTOCOL)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(',').map(|p| p.trim().to_owned()))
            .collect();
        let Some(protocol) = session::choose(&offered) else {
            return plain(StatusCode::FORBIDDEN, "no protocol in common");
        };
        let ports = ports::asked(request.uri().query().unwrap_or_default());
        let upgraded = hyper::upgrade::on(&mut request);
        let runtime = self.runtime.clone();
        tokio::spawn(async move {
            let Ok(upgraded) = upgraded.await else { return };
            let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
            match wanted {
                Wanted::Exec(request) => session::serve(socket, protocol, runtime.exec(request).await).await,
                Wanted::Attach(request) => {
                    session::serve(socket, protocol, runtime.attach(request).await).await;
                }
                Wanted::PortForward(request) => ports::serve(socket, &*runtime, request, ports).await,
            }
        });
        let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, "");
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        response
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}
