//! Exec, attach and port-forward for CRI clients: a request is answered with a URL on loopback, which then carries the
//! streams. A URL is random and valid for one minute and one connection.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use coracle_proto::cri;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::runtime::Execs;
use crate::stamp::new_id;
use crate::streams::command::{self, RequestedStreams, Verb};
use crate::streams::handshake::{Purpose, negotiate};
use crate::streams::port_forward::{self, Target};

/// How long a URL is valid.
const URL_TTL: Duration = Duration::from_secs(60);

/// The request behind a URL.
#[derive(Debug, Clone)]
enum PendingStream {
    Exec(cri::ExecRequest),
    Attach(cri::AttachRequest),
    PortForward(cri::PortForwardRequest),
}

impl PendingStream {
    fn purpose(&self) -> Purpose {
        match self {
            Self::Exec(_) | Self::Attach(_) => Purpose::Command,
            Self::PortForward(_) => Purpose::Ports,
        }
    }
}

/// The streaming server of a CRI socket.
pub struct Streaming {
    address: SocketAddr,
    runtime: Arc<dyn Execs>,
    waiting: Mutex<HashMap<String, (Instant, PendingStream)>>,
}

impl Streaming {
    /// Listens on a free port of loopback; connections are taken by [`Streaming::accept`].
    pub async fn listen(runtime: Arc<dyn Execs>) -> std::io::Result<(Arc<Self>, TcpListener)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let streaming =
            Arc::new(Self { address: listener.local_addr()?, runtime, waiting: Mutex::default() });
        Ok((streaming, listener))
    }

    /// URL of an exec.
    pub fn exec(&self, request: cri::ExecRequest) -> String {
        self.url("exec", PendingStream::Exec(request))
    }

    /// URL of an attach.
    pub fn attach(&self, request: cri::AttachRequest) -> String {
        self.url("attach", PendingStream::Attach(request))
    }

    /// URL of a port-forward.
    pub fn port_forward(&self, request: cri::PortForwardRequest) -> String {
        self.url("portforward", PendingStream::PortForward(request))
    }

    fn url(&self, verb: &str, wanted: PendingStream) -> String {
        let token = new_id();
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, (since, _)| since.elapsed() < URL_TTL);
        waiting.insert(token.clone(), (Instant::now(), wanted));
        format!("http://{}/{verb}/{token}", self.address)
    }

    /// Accepts connections until the process ends.
    pub async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors: waits until some are closed.
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
                    // Closes connections without a request after a timeout.
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades(),
            );
        }
    }

    fn handle(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let token = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let Some(purpose) = self.waiting.lock().get(&token).map(|(_, wanted)| wanted.purpose()) else {
            return plain(StatusCode::NOT_FOUND, "unknown or used token");
        };
        let accepted = match negotiate(purpose, request.headers()) {
            Ok(accepted) => accepted,
            Err(refused) => return plain(refused.status, refused.message),
        };
        let Some((since, wanted)) = self.waiting.lock().remove(&token) else {
            return plain(StatusCode::NOT_FOUND, "unknown or used token");
        };
        if since.elapsed() > URL_TTL {
            return plain(StatusCode::NOT_FOUND, "the token has expired");
        }
        let query: Vec<(String, String)> =
            form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        let upgraded = hyper::upgrade::on(&mut request);
        let (runtime, framing) = (self.runtime.clone(), accepted.framing);
        tokio::spawn(async move {
            let Ok(upgraded) = upgraded.await else { return };
            let io = TokioIo::new(upgraded);
            match wanted {
                PendingStream::Exec(r) => {
                    let asked = RequestedStreams {
                        stdin: r.stdin,
                        stdout: r.stdout,
                        stderr: r.stderr && !r.tty,
                        tty: r.tty,
                    };
                    command::serve(io, framing, asked, Verb::Exec, runtime.exec(r)).await;
                }
                PendingStream::Attach(r) => {
                    let asked = RequestedStreams {
                        stdin: r.stdin,
                        stdout: r.stdout,
                        stderr: r.stderr && !r.tty,
                        tty: r.tty,
                    };
                    command::serve(io, framing, asked, Verb::Attach, runtime.attach(r)).await;
                }
                PendingStream::PortForward(r) => {
                    let pairs = query.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                    let asked = port_forward::asked(pairs).unwrap_or_default();
                    let listed = r.port.iter().filter_map(|port| u16::try_from(*port).ok()).collect();
                    let target = Target {
                        runtime,
                        pod: r.pod_sandbox_id.clone(),
                        sandbox: r.pod_sandbox_id,
                        uid: String::new(),
                    };
                    port_forward::serve(io, framing, target, if asked.is_empty() { listed } else { asked })
                        .await;
                }
            }
        });
        let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, "");
        *response.headers_mut() = accepted.headers;
        response
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}
