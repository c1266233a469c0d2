//! The connection to a webhook, of admission or of conversion: by URL, or to a Service's endpoints under the Service's name.

use crate::connect::node::Io;
use crate::connect::reach::{Reach, Spot};
use crate::decode;
use crate::remote::trusted;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use coracle_kinds::object::Object;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

/// The largest answer that is read, unless more was asked.
const LIMIT: usize = 3 * 1024 * 1024;

/// Why a webhook did not answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It could not be asked, or what it said was not understood.
    #[error("{0}")]
    Unasked(String),
    /// It was asked in vain.
    #[error("failed to call webhook: {0}")]
    Failed(String),
}

impl CallError {
    /// The reason alone.
    pub fn why(&self) -> &str {
        let (Self::Unasked(why) | Self::Failed(why)) = self;
        why
    }
}

fn unasked(why: impl std::fmt::Display) -> CallError {
    CallError::Unasked(why.to_string())
}

/// Where to go, and who must be there.
#[derive(Debug, PartialEq)]
pub struct Place {
    spots: Vec<Spot>,
    host: String,
    path: String,
    /// Why there is no spot, if there is none.
    none: String,
}

impl Place {
    /// The place that a `clientConfig` means; `cached` knows the objects of a resource in a namespace.
    pub fn of(
        config: &Value,
        cached: impl Fn(&str, &str, &str) -> Vec<Arc<Object>>,
    ) -> Result<Self, CallError> {
        match config["url"].as_str() {
            Some(url) => by_url(url),
            None => Ok(by_service(&config["service"], cached)),
        }
    }
}

/// Sends a review; the answer, if it comes in time.
pub async fn post(
    reach: &Reach,
    config: &Value,
    mut place: Place,
    body: Bytes,
    patience: Duration,
) -> Result<Value, CallError> {
    // Webhooks that work for long want to know how long they may.
    let mark = if place.path.contains('?') { '&' } else { '?' };
    place.path = format!("{}{mark}timeout={}s", place.path, patience.as_secs());
    let tls = trust(config["caBundle"].as_str().unwrap_or_default())?;
    let answer = tokio::time::timeout(patience, ask(reach, tls, &place, body)).await;
    let answer = answer.unwrap_or_else(|_| Err("context deadline exceeded".into()));
    answer.map_err(|why| CallError::Failed(format!("Post \"https://{}{}\": {why}", place.host, place.path)))
}

async fn ask(reach: &Reach, tls: TlsConnector, place: &Place, body: Bytes) -> Result<Value, String> {
    let name = place.host.rsplit_once(':').map_or(place.host.as_str(), |(host, _)| host);
    let server = ServerName::try_from(name.trim_matches(['[', ']']).to_owned()).map_err(|e| e.to_string())?;
    let mut last = place.none.clone();
    for spot in &place.spots {
        let stream = match reach.dial(spot).await {
            Ok(stream) => stream,
            Err(error) => {
                last = format!("dial tcp {}:{}: {error}", spot.host, spot.port);
                continue;
            }
        };
        let stream = tls.connect(server.clone(), stream).await;
        let stream = stream.map_err(|error| handshake(&error, name))?;
        return exchange(stream, place, body).await;
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
    place: &Place,
    body: Bytes,
) -> Result<Value, String> {
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let connection = tokio::spawn(connection);
    // Many objects to convert come back as many.
    let limit = LIMIT.max(body.len().saturating_mul(4));
    let request = Request::post(&place.path)
        .header("host", &place.host)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(Full::new(body))
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(text)?;
    let code = response.status();
    let bytes = Limited::new(response.into_body(), limit).collect().await.map_err(|e| e.to_string())?;
    connection.abort();
    if !code.is_success() {
        return Err(format!("the server answered {code}"));
    }
    decode::answered(&bytes.to_bytes()).map_err(|e| format!("couldn't decode the answer: {e}"))
}

fn by_url(url: &str) -> Result<Place, CallError> {
    let rest =
        url.strip_prefix("https://").ok_or_else(|| unasked("a webhook's URL must begin with https://"))?;
    let (host, path) =
        rest.split_once('/').map_or((rest, "/".to_owned()), |(host, path)| (host, format!("/{path}")));
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().map_err(unasked)?),
        _ => (host, 443),
    };
    let spot = Spot { host: name.trim_matches(['[', ']']).to_owned(), port, node: String::new() };
    Ok(Place { spots: vec![spot], host: host.to_owned(), path, none: String::new() })
}

/// The endpoints of a Service, then its address: the server may or may not have a service network of its own.
fn by_service(service: &Value, cached: impl Fn(&str, &str, &str) -> Vec<Arc<Object>>) -> Place {
    let text = |field: &str| service[field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let port = service["port"].as_u64().unwrap_or(443);
    let path = if text("path").is_empty() { "/" } else { text("path") };
    let (host, path) = (format!("{name}.{namespace}.svc:{port}"), path.to_owned());
    let nowhere = |none: String| Place { spots: Vec::new(), host: host.clone(), path: path.clone(), none };
    let services = cached("", "services", namespace);
    let found = services.iter().find(|object| object.meta.name == name).map(|object| object.value());
    let Some(found) = found else { return nowhere(format!("service {name:?} not found")) };
    let mut ports = found["spec"]["ports"].as_array().into_iter().flatten();
    let Some(own) = ports.find(|p| p["port"].as_u64() == Some(port)) else {
        return nowhere(format!("no service port {port} found for service {name:?}"));
    };
    let port_name = own["name"].as_str().unwrap_or_default();
    let mut spots = Vec::new();
    for slice in cached("discovery.k8s.io", "endpointslices", namespace) {
        if slice.meta.labels.get("kubernetes.io/service-name").map(String::as_str) == Some(name) {
            spots.extend(ready(&slice.value(), port_name));
        }
    }
    let cluster = found["spec"]["clusterIP"].as_str().filter(|ip| !ip.is_empty() && *ip != "None");
    spots.extend(cluster.map(|ip| Spot { host: ip.to_owned(), port: port as u16, node: String::new() }));
    Place { spots, ..nowhere(format!("no endpoints available for service {name:?}")) }
}

fn ready(slice: &Value, port_name: &str) -> Vec<Spot> {
    let ports = slice["ports"].as_array().into_iter().flatten();
    let port = ports.into_iter().find(|p| p["name"].as_str().unwrap_or_default() == port_name);
    let Some(port) = port.and_then(|p| p["port"].as_u64()) else { return Vec::new() };
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let serving = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] != false);
    let spot = |endpoint: &Value, address: &str| Spot {
        host: address.to_owned(),
        port: port as u16,
        node: endpoint["nodeName"].as_str().unwrap_or_default().to_owned(),
    };
    let all = serving.flat_map(|endpoint| {
        let addresses = endpoint["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
        addresses.map(move |address| spot(endpoint, address))
    });
    all.collect()
}

/// Trusts the bundle of the webhook and nobody else; the system's authorities when it has none.
fn trust(bundle: &str) -> Result<TlsConnector, CallError> {
    let pem = STANDARD.decode(bundle).map_err(unasked)?;
    let roots = trusted(Some(pem.as_slice()).filter(|pem| !pem.trim_ascii().is_empty()));
    let roots = roots.map_err(|why| {
        let text =
            "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block";
        unasked(format!("{text}: {why}"))
    })?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unasked)?
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
            ((place.spots[0].host.clone(), place.spots[0].port), place.path)
        };
        assert_eq!(of("https://h.example.com/a/b"), (("h.example.com".into(), 443), "/a/b".into()));
        assert_eq!(of("https://127.0.0.1:8443"), (("127.0.0.1".into(), 8443), "/".into()));
        assert_eq!(of("https://[::1]:9/x"), (("::1".into(), 9), "/x".into()));
        assert!(by_url("http://h").is_err());
        let slice = json!({"ports": [{"name": "https", "port": 8443}], "endpoints": [
            {"addresses": ["10.0.0.1"], "nodeName": "n1"}, {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}]});
        assert_eq!(ready(&slice, "https"), [Spot { host: "10.0.0.1".into(), port: 8443, node: "n1".into() }]);
        assert_eq!(ready(&slice, "other"), []);
    }
}
