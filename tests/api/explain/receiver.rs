//! An OTLP receiver: gRPC and HTTP on one port.

use bytes::{BufMut, Bytes, BytesMut};
use coracle_proto::otlp::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use coracle_proto::otlp::common::v1::{KeyValue, any_value};
use coracle_proto::otlp::trace::v1::Span;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use prost::Message;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What came in.
#[derive(Default)]
pub struct Received {
    /// Spans with the name of their service.
    pub spans: Vec<(String, Span)>,
    /// Headers of the last request.
    pub headers: HeaderMap,
    /// Requests that are refused before one is taken.
    pub refusals: usize,
}

/// A running receiver; it ends with the process.
pub struct Receiver {
    /// `127.0.0.1:port`.
    pub address: String,
    pub received: Arc<Mutex<Received>>,
}

impl Receiver {
    /// Starts one that answers 503 a few times first.
    pub fn start(refusals: usize) -> Self {
        Self::start_at("127.0.0.1:0", refusals)
    }

    /// The same on an address.
    pub fn start_at(address: &str, refusals: usize) -> Self {
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received = Arc::new(Mutex::new(Received { refusals, ..Received::default() }));
        let shared = received.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    let shared = shared.clone();
                    tokio::spawn(async move {
                        let service = service_fn(move |request| take(request, shared.clone()));
                        let builder = Builder::new(TokioExecutor::new());
                        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                    });
                }
            });
        });
        Self { address, received }
    }

    /// The spans of a trace, by the name of their service.
    pub fn of_trace(&self, trace: &str) -> Vec<(String, Span)> {
        let received = self.received.lock().unwrap();
        received.spans.iter().filter(|(_, span)| hex(&span.trace_id) == trace).cloned().collect()
    }
}

async fn take(
    request: Request<Incoming>,
    received: Arc<Mutex<Received>>,
) -> Result<Response<Body>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let grpc = head.headers.get("content-type").is_some_and(|kind| kind == "application/grpc");
    let message = if grpc { body.slice(5..) } else { body };
    let request = ExportTraceServiceRequest::decode(message).unwrap();
    let mut received = received.lock().unwrap();
    received.headers = head.headers;
    if received.refusals > 0 {
        received.refusals -= 1;
        let mut refusal = Response::new(frames(Vec::new()));
        *refusal.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        return Ok(refusal);
    }
    for group in request.resource_spans {
        let attributes = group.resource.unwrap_or_default().attributes;
        let service = text(&attributes, "service.name").unwrap_or_default();
        let spans = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
        received.spans.extend(spans.map(|span| (service.clone(), span)));
    }
    let answer = ExportTraceServiceResponse::default().encode_to_vec();
    if !grpc {
        return Ok(Response::new(frames(vec![Frame::data(answer.into())])));
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(answer.len() as u32);
    framed.extend_from_slice(&answer);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let mut response = Response::new(frames(vec![Frame::data(framed.freeze()), Frame::trailers(trailers)]));
    response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    Ok(response)
}

fn frames(frames: Vec<Frame<Bytes>>) -> Body {
    StreamBody::new(futures::stream::iter(frames.into_iter().map(Ok::<_, Infallible>))).boxed_unsync()
}

/// An attribute that is a text.
pub fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = &attributes.iter().find(|attribute| attribute.key == key)?.value;
    match value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
