//! A key management service in upstream's KMS v2 protocol: it "seals" by exclusive or with its current key, which can be
//! changed.

use bytes::Bytes;
use coracle_store::encryption::kms::wire::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusResponse,
};
use futures::stream;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// What the service has and what it was asked.
#[derive(Default)]
pub struct State {
    /// The number of the key that seals.
    pub key: AtomicU8,
    /// Whether it refuses everything.
    pub away: AtomicBool,
    /// How often it sealed and opened.
    pub sealed: AtomicUsize,
    /// How often it opened.
    pub opened: AtomicUsize,
}

/// A running service; it ends with the process.
pub struct Kms {
    /// Its socket.
    pub socket: PathBuf,
    /// Its state.
    pub state: Arc<State>,
}

fn mixed(bytes: &[u8], key: u8) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ (0xa5 ^ key)).collect()
}

fn answer(state: &State, method: &str, message: &[u8]) -> Result<Vec<u8>, String> {
    if state.away.load(Ordering::SeqCst) {
        return Err("the service is away".into());
    }
    let key = state.key.load(Ordering::SeqCst);
    let key_id = format!("key-{key}");
    let annotations = BTreeMap::from([("coracle.example.com".to_owned(), vec![key])]);
    match method {
        "Status" => Ok(StatusResponse { version: "v2".into(), healthz: "ok".into(), key_id }.encode_to_vec()),
        "Encrypt" => {
            state.sealed.fetch_add(1, Ordering::SeqCst);
            let request = EncryptRequest::decode(message).map_err(|e| e.to_string())?;
            let ciphertext = mixed(&request.plaintext, key);
            Ok(EncryptResponse { ciphertext, key_id, annotations }.encode_to_vec())
        }
        "Decrypt" => {
            state.opened.fetch_add(1, Ordering::SeqCst);
            let request = DecryptRequest::decode(message).map_err(|e| e.to_string())?;
            let with = request.annotations.get("coracle.example.com").and_then(|a| a.first().copied());
            let with = with.ok_or("the annotation is missing")?;
            if request.key_id != format!("key-{with}") {
                return Err("another key".into());
            }
            Ok(DecryptResponse { plaintext: mixed(&request.ciphertext, with) }.encode_to_vec())
        }
        other => Err(format!("{other} is not known")),
    }
}

/// One gRPC exchange: a message with its length before it, and the outcome in trailers.
async fn exchange(
    request: Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut frames = Vec::new();
    let mut trailers = HeaderMap::new();
    match answer(&state, &method, body.get(5..).unwrap_or_default()) {
        Ok(message) => {
            let mut framed = vec![0];
            framed.extend(u32::try_from(message.len()).unwrap_or_default().to_be_bytes());
            framed.extend(message);
            frames.push(Ok(Frame::data(Bytes::from(framed))));
            trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        }
        Err(why) => {
            trailers.insert("grpc-status", http::HeaderValue::from_static("14"));
            trailers.insert("grpc-message", why.parse().expect("plain text"));
        }
    }
    frames.push(Ok(Frame::trailers(trailers)));
    let response = Response::builder().header("content-type", "application/grpc");
    Ok(response.body(StreamBody::new(stream::iter(frames))).expect("a response of ours is one"))
}

impl Kms {
    /// Starts one on a socket in `dir`.
    ///
    /// # Panics
    /// When it cannot.
    pub fn start(dir: &Path) -> Self {
        let socket = dir.join("kms.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = tokio::net::UnixListener::from_std(listener).expect("a listener");
                while let Ok((stream, _)) = listener.accept().await {
                    let state = shared.clone();
                    let service = service_fn(move |request| exchange(request, state.clone()));
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
                }
            });
        });
        Self { socket, state }
    }
}
