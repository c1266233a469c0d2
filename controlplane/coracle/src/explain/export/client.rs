//! The connection to an OTLP receiver: gRPC over HTTP/2 or protobuf over HTTP/1.1. It is opened when it is needed, and kept.

use crate::explain::options::{OtlpOptions, OtlpProtocol};
use bytes::{BufMut, Bytes, BytesMut};
use coracle_apiserver::https_client::root_store;
use coracle_cli::causes;
use coracle_proto::otlp::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, TE};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The largest answer that is read.
const LIMIT: usize = 64 * 1024;
/// Codes of gRPC after which a request may be sent again: cancelled, deadline exceeded, resource exhausted, aborted, out of range,
/// unavailable, data loss.
const RETRIED: [u32; 7] = [1, 4, 8, 10, 11, 14, 15];

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What became of a request.
pub(super) enum Outcome {
    /// Taken, but for some spans.
    Accepted { rejected: u64, message: String },
    /// It will never be taken.
    Refused(String),
    /// It may be taken later; the receiver may say when.
    Later(Option<Duration>, String),
}

/// A stream of bytes, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A receiver.
pub(super) struct Client {
    endpoint: Uri,
    protocol: OtlpProtocol,
    headers: HeaderMap,
    tls: Option<TlsConnector>,
    connection: Option<Connection>,
}

impl Client {
    pub(super) fn new(options: &OtlpOptions) -> anyhow::Result<Self> {
        let tls = match options.endpoint.scheme_str() {
            Some("https") => Some(connector(options)?),
            _ => None,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            headers.insert(http::HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
        }
        Ok(Self {
            endpoint: options.endpoint.clone(),
            protocol: options.protocol,
            headers,
            tls,
            connection: None,
        })
    }

    /// Closes the connection; the next request opens another.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    pub(super) async fn send(&mut self, spans: &ExportTraceServiceRequest) -> Outcome {
        match self.exchange(spans).await {
            Ok(outcome) => outcome,
            Err(error) => {
                self.disconnect();
                Outcome::Later(None, causes::chain(&*error))
            }
        }
    }

    async fn exchange(&mut self, spans: &ExportTraceServiceRequest) -> Result<Outcome, BoxError> {
        let request = self.request(spans)?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let response = match &mut connection {
            Connection::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Connection::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let outcome = match self.protocol {
            OtlpProtocol::Grpc => grpc_outcome(response).await?,
            OtlpProtocol::Http => http_outcome(response).await?,
        };
        self.connection = Some(connection);
        Ok(outcome)
    }

    fn request(&self, spans: &ExportTraceServiceRequest) -> Result<Request<Full<Bytes>>, BoxError> {
        let mut request = match self.protocol {
            OtlpProtocol::Grpc => {
                let mut parts = self.endpoint.clone().into_parts();
                parts.path_and_query = Some(http::uri::PathAndQuery::from_static(GRPC_PATH));
                let mut body = BytesMut::with_capacity(spans.encoded_len() + 5);
                // Not compressed.
                body.put_u8(0);
                body.put_u32(u32::try_from(spans.encoded_len())?);
                spans.encode(&mut body)?;
                let mut request = Request::new(Full::new(body.freeze()));
                *request.uri_mut() = Uri::from_parts(parts)?;
                request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
                request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
                request
            }
            OtlpProtocol::Http => {
                let mut request = Request::new(Full::new(Bytes::from(spans.encode_to_vec())));
                let path = self.endpoint.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
                *request.uri_mut() = path.parse()?;
                let host = self.endpoint.authority().map_or("", http::uri::Authority::as_str);
                request.headers_mut().insert(HOST, HeaderValue::from_str(host)?);
                request
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
                request
            }
        };
        *request.method_mut() = Method::POST;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }

    async fn connect(&self) -> Result<Connection, BoxError> {
        // An IPv6 address stands in brackets.
        let host = self.endpoint.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.endpoint.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => Box::new(tls.connect(ServerName::try_from(host.to_owned())?, stream).await?),
            None => Box::new(stream),
        };
        let stream = TokioIo::new(stream);
        Ok(match self.protocol {
            OtlpProtocol::Grpc => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(connection);
                Connection::Http2(sender)
            }
            OtlpProtocol::Http => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                Connection::Http1(sender)
            }
        })
    }
}

fn connector(options: &OtlpOptions) -> anyhow::Result<TlsConnector> {
    let roots = root_store(options.authority.as_deref())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let protocol: &[u8] = match options.protocol {
        OtlpProtocol::Grpc => b"h2",
        OtlpProtocol::Http => b"http/1.1",
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn grpc_outcome(response: Response<Incoming>) -> Result<Outcome, BoxError> {
    let (head, body) = response.into_parts();
    let pause = pause(&head.headers);
    if head.status != 200 {
        return Ok(by_status(head.status.as_u16(), pause));
    }
    let body = Limited::new(body, LIMIT).collect().await?;
    // An answer without a message has its status in the headers.
    let status =
        |map: &HeaderMap, name: &str| map.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let of = |name: &str| {
        body.trailers().and_then(|trailers| status(trailers, name)).or_else(|| status(&head.headers, name))
    };
    let code = of("grpc-status").and_then(|code| code.parse().ok()).unwrap_or(2);
    let message = of("grpc-message").unwrap_or_default();
    if code != 0 {
        let why = format!("gRPC status {code} {message}");
        return Ok(if RETRIED.contains(&code) { Outcome::Later(pause, why) } else { Outcome::Refused(why) });
    }
    let body = body.to_bytes();
    Ok(accepted(body.get(5..).unwrap_or_default()))
}

async fn http_outcome(response: Response<Incoming>) -> Result<Outcome, BoxError> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LIMIT).collect().await?.to_bytes();
    if head.status.is_success() {
        return Ok(accepted(&body));
    }
    Ok(by_status(head.status.as_u16(), pause(&head.headers)))
}

fn by_status(code: u16, pause: Option<Duration>) -> Outcome {
    let why = format!("HTTP status {code}");
    match code {
        429 | 502 | 503 | 504 => Outcome::Later(pause, why),
        _ => Outcome::Refused(why),
    }
}

/// What the message of an answer says; one that is none says nothing.
fn accepted(message: &[u8]) -> Outcome {
    let answer = ExportTraceServiceResponse::decode(message).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    Outcome::Accepted {
        rejected: partial.rejected_spans.try_into().unwrap_or(0),
        message: partial.error_message,
    }
}

fn pause(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
