//! HTTPS calls to admission and conversion webhooks: by URL, or to the endpoints of a Service under the Service's name.

use crate::decode;
use crate::https_client::{KeyError, root_store};
use crate::nodes::connection::Io;
use crate::nodes::dial::{ClusterDialer, Endpoint};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use coracle_fields::apiextensions::v1::{ServiceReference, WebhookClientConfig};
use coracle_fields::core::v1::Service;
use coracle_fields::discovery::v1::EndpointSlice;
use coracle_fields::{Schema as _, View};
use coracle_kinds::object::Object;
use coracle_proto::decode::JsonError;
use coracle_trace::{TraceContext, current};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::{InvalidDnsNameError, ServerName};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

/// The largest answer that is read, unless more was asked.
const LIMIT: usize = 3 * 1024 * 1024;

/// Why a webhook did not answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Its configuration does not say how to ask it.
    #[error(transparent)]
    Config(#[from] ClientConfigError),
    /// It was asked in vain.
    #[error("failed to call webhook: {0}")]
    Failed(PostError),
}

impl CallError {
    /// The reason alone.
    pub fn why(&self) -> String {
        match self {
            Self::Failed(error) => error.to_string(),
            other => other.to_string(),
        }
    }
}

/// What is wrong with a `clientConfig`.
#[derive(Debug, thiserror::Error)]
pub enum ClientConfigError {
    /// A URL without TLS.
    #[error("a webhook's URL must begin with https://")]
    Scheme,
    /// A URL with a port that is none.
    #[error("clientConfig.url: {port:?} is not a port")]
    Port {
        /// What stands there.
        port: String,
    },
    /// A number that is no port.
    #[error("{field}: Invalid value: {value}: must be between 1 and 65535, inclusive")]
    PortRange {
        /// Where it stands.
        field: String,
        /// The number.
        value: i64,
    },
    /// A `caBundle` that is not base64.
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    /// A `caBundle` without certificates.
    #[error(
        "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block: {0}"
    )]
    Bundle(KeyError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// A review that was not answered.
#[derive(Debug, thiserror::Error)]
#[error("Post \"https://{host}{path}\": {error}")]
pub struct PostError {
    host: String,
    path: String,
    error: AskError,
}

/// Why nobody answered.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("context deadline exceeded")]
    Timeout,
    /// There is no address.
    #[error("{0}")]
    Nowhere(String),
    #[error(transparent)]
    Name(#[from] InvalidDnsNameError),
    #[error("dial tcp {host}:{port}: {error}")]
    Dial { host: String, port: u16, error: std::io::Error },
    #[error("{0}")]
    Handshake(String),
    #[error(transparent)]
    Exchange(#[from] hyper::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The answer broke off, or is too long.
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("the server answered {0}")]
    Status(StatusCode),
    #[error("couldn't decode the answer: {0}")]
    Decode(JsonError),
}

/// Where to go, and who must be there.
#[derive(Debug, PartialEq)]
pub struct WebhookAddress {
    endpoints: Vec<Endpoint>,
    host: String,
    path: String,
    /// Why there is no spot, if there is none.
    none: String,
}

impl WebhookAddress {
    /// The place that a `clientConfig` means; `cached` knows the objects of a resource in a namespace.
    pub fn of(
        config: &Value,
        cached: impl Fn(&str, &str, &str) -> Vec<Arc<Object>>,
    ) -> Result<Self, CallError> {
        // Those of admission and of conversion have the same fields.
        let config = WebhookClientConfig::of(config);
        match config.url().get() {
            Some(url) => Ok(by_url(url)?),
            None => Ok(by_service(config.service(), cached)?),
        }
    }
}

/// Sends a review; the answer, if it comes in time. The webhook gets the context of the current span and the `tracestate` of the
/// client.
pub async fn post(
    dialer: &ClusterDialer,
    config: &Value,
    mut place: WebhookAddress,
    body: Bytes,
    timeout: Duration,
    trace_state: &str,
) -> Result<Value, CallError> {
    // Webhooks that work for long want to know how long they may.
    let mark = if place.path.contains('?') { '&' } else { '?' };
    place.path = format!("{}{mark}timeout={}s", place.path, timeout.as_secs());
    let tls = trust(WebhookClientConfig::of(config).ca_bundle().text())?;
    let answer = tokio::time::timeout(timeout, ask(dialer, tls, &place, body, trace_state)).await;
    let answer = answer.unwrap_or(Err(AskError::Timeout));
    answer.map_err(|error| CallError::Failed(PostError { host: place.host, path: place.path, error }))
}

async fn ask(
    dialer: &ClusterDialer,
    tls: TlsConnector,
    place: &WebhookAddress,
    body: Bytes,
    trace_state: &str,
) -> Result<Value, AskError> {
    let name = place.host.rsplit_once(':').map_or(place.host.as_str(), |(host, _)| host);
    let server = ServerName::try_from(name.trim_matches(['[', ']']).to_owned())?;
    let mut last = AskError::Nowhere(place.none.clone());
    for endpoint in &place.endpoints {
        let stream = match dialer.dial(endpoint).await {
            Ok(stream) => stream,
            Err(error) => {
                last = AskError::Dial { host: endpoint.host.clone(), port: endpoint.port, error };
                continue;
            }
        };
        let stream = tls.connect(server.clone(), stream).await;
        let stream = stream.map_err(|error| AskError::Handshake(handshake(&error, name)))?;
        return exchange(stream, place, body, trace_state).await;
    }
    Err(last)
}

/// A handshake that failed, in Go's words where people look for them.
fn handshake(error: &std::io::Error, name: &str) -> String {
    use rustls::CertificateError::{
        BadSignature, Expired, NotValidForName, NotValidForNameContext, UnknownIssuer,
    };
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let why = match cause {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)) => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(
            Expired | rustls::CertificateError::ExpiredContext { .. },
        )) => "x509: certificate has expired or is not yet valid".to_owned(),
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            format!("x509: certificate is not valid for {name}")
        }
        _ => return format!("tls: {error}"),
    };
    format!("tls: failed to verify certificate: {why}")
}

async fn exchange(
    stream: tokio_rustls::client::TlsStream<Box<dyn Io>>,
    place: &WebhookAddress,
    body: Bytes,
    trace_state: &str,
) -> Result<Value, AskError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    // Many objects to convert come back as many.
    let limit = LIMIT.max(body.len().saturating_mul(4));
    let mut request = Request::post(&place.path)
        .header("host", &place.host)
        .header("content-type", "application/json")
        .header("accept", "application/json");
    if let Some(context) = current().context() {
        request = request.header(TraceContext::HEADER, &context.text()[..]);
        if !trace_state.is_empty() {
            request = request.header(TraceContext::STATE, trace_state);
        }
    }
    let response = sender.send_request(request.body(Full::new(body))?).await?;
    let code = response.status();
    let bytes = Limited::new(response.into_body(), limit).collect().await.map_err(AskError::Body)?;
    connection.abort();
    if !code.is_success() {
        return Err(AskError::Status(code));
    }
    decode::webhook_json(&bytes.to_bytes()).map_err(AskError::Decode)
}

fn by_url(url: &str) -> Result<WebhookAddress, ClientConfigError> {
    let rest = url.strip_prefix("https://").ok_or(ClientConfigError::Scheme)?;
    let (host, path) =
        rest.split_once('/').map_or((rest, "/".to_owned()), |(host, path)| (host, format!("/{path}")));
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => {
            (name, port.parse().map_err(|_| ClientConfigError::Port { port: port.to_owned() })?)
        }
        _ => (host, 443),
    };
    let endpoint = Endpoint { host: name.trim_matches(['[', ']']).to_owned(), port, node: String::new() };
    Ok(WebhookAddress { endpoints: vec![endpoint], host: host.to_owned(), path, none: String::new() })
}

/// The endpoints of a Service, then its address: the server may or may not have a service network of its own.
fn by_service(
    service: View<'_, ServiceReference>,
    cached: impl Fn(&str, &str, &str) -> Vec<Arc<Object>>,
) -> Result<WebhookAddress, ClientConfigError> {
    let (namespace, name) = (service.namespace().text(), service.name().text());
    let port = service.port().or(443);
    let number = port_number(port, || "clientConfig.service.port".to_owned())?;
    let path = service.path().filled().unwrap_or("/");
    let (host, path) = (format!("{name}.{namespace}.svc:{port}"), path.to_owned());
    let nowhere =
        |none: String| WebhookAddress { endpoints: Vec::new(), host: host.clone(), path: path.clone(), none };
    let services = cached("", "services", namespace);
    let found = services.iter().find(|object| object.meta.name == name).map(|object| object.doc());
    let Some(found) = found else { return Ok(nowhere(format!("service {name:?} not found"))) };
    let spec = found.view::<Service>().spec();
    let Some(own) = spec.ports().items().find(|p| p.port() == port) else {
        return Ok(nowhere(format!("no service port {port} found for service {name:?}")));
    };
    let port_name = own.name().text();
    let mut endpoints = Vec::new();
    for slice in cached("discovery.k8s.io", "endpointslices", namespace) {
        if slice.meta.labels.get("kubernetes.io/service-name").map(String::as_str) == Some(name) {
            endpoints.extend(ready(&slice.meta.name, slice.doc().view(), port_name)?);
        }
    }
    let cluster = spec.cluster_ip().filled().filter(|ip| *ip != "None");
    endpoints.extend(cluster.map(|ip| Endpoint { host: ip.to_owned(), port: number, node: String::new() }));
    Ok(WebhookAddress { endpoints, ..nowhere(format!("no endpoints available for service {name:?}")) })
}

fn port_number(value: i64, field: impl Fn() -> String) -> Result<u16, ClientConfigError> {
    let port = u16::try_from(value).ok().filter(|port| *port > 0);
    port.ok_or_else(|| ClientConfigError::PortRange { field: field(), value })
}

fn ready(
    name: &str,
    slice: View<'_, EndpointSlice>,
    port_name: &str,
) -> Result<Vec<Endpoint>, ClientConfigError> {
    let port = slice.ports().items().enumerate().find(|(_, p)| p.name() == port_name);
    let Some((index, port)) = port.and_then(|(index, p)| Some((index, p.port().int()?))) else {
        return Ok(Vec::new());
    };
    let port = port_number(port, || format!("ports[{index}].port of EndpointSlice {name}"))?;
    let serving = slice.endpoints().items().filter(|e| e.conditions().ready().get() != Some(false));
    let all = serving.flat_map(|endpoint| {
        let node = endpoint.node_name().text();
        endpoint.addresses().texts().map(move |address| Endpoint {
            host: address.to_owned(),
            port,
            node: node.to_owned(),
        })
    });
    Ok(all.collect())
}

/// Trusts the bundle of the webhook and nobody else; the system's authorities when it has none.
fn trust(bundle: &str) -> Result<TlsConnector, ClientConfigError> {
    let pem = STANDARD.decode(bundle)?;
    let roots = root_store(Some(pem.as_slice()).filter(|pem| !pem.trim_ascii().is_empty()));
    let roots = roots.map_err(ClientConfigError::Bundle)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn places() {
        let of = |url: &str| {
            let place = by_url(url).unwrap();
            ((place.endpoints[0].host.clone(), place.endpoints[0].port), place.path)
        };
        assert_eq!(of("https://h.example.com/a/b"), (("h.example.com".into(), 443), "/a/b".into()));
        assert_eq!(of("https://127.0.0.1:8443"), (("127.0.0.1".into(), 8443), "/".into()));
        assert_eq!(of("https://[::1]:9/x"), (("::1".into(), 9), "/x".into()));
        assert!(by_url("http://h").is_err());
        let slice = json!({"ports": [{"name": "https", "port": 8443}], "endpoints": [
            {"addresses": ["10.0.0.1"], "nodeName": "n1"}, {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}]});
        assert_eq!(
            ready("s", EndpointSlice::of(&slice), "https").unwrap(),
            [Endpoint { host: "10.0.0.1".into(), port: 8443, node: "n1".into() }]
        );
        assert_eq!(ready("s", EndpointSlice::of(&slice), "other").unwrap(), []);
    }

    #[test]
    fn ports_out_of_range_are_refused_with_their_field() {
        for port in [-1, 0, 65536, 65979] {
            let config = json!({"service": {"namespace": "n", "name": "s", "port": port}});
            let refused = WebhookAddress::of(&config, |_, _, _| Vec::new()).unwrap_err();
            let range = format!("Invalid value: {port}: must be between 1 and 65535, inclusive");
            assert_eq!(refused.to_string(), format!("clientConfig.service.port: {range}"));
            let slice = json!({"ports": [{"name": "a", "port": 1}, {"name": "https", "port": port}]});
            let refused = ready("s-x", EndpointSlice::of(&slice), "https").unwrap_err();
            assert_eq!(refused.to_string(), format!("ports[1].port of EndpointSlice s-x: {range}"));
        }
        let refused = by_url("https://h:65979/").unwrap_err();
        assert_eq!(refused.to_string(), "clientConfig.url: \"65979\" is not a port");
    }
}
