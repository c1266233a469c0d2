//! One HTTP GET, as probes and hooks make it: no certificate is checked, redirects stay on the host.

use bytes::Bytes;
use coracle_cli::server_cert;
use http::header::{HOST, HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::dial::DialError;
use super::url_path;

/// How much of an answer is read.
const BODY: usize = 10 << 10;
const REDIRECTS: usize = 10;

/// A request without an answer. The wording is that of Go's HTTP client.
#[derive(Debug, thiserror::Error)]
#[error("Get {url:?}: {source}")]
pub struct GetError {
    /// Where the first request went.
    pub url: String,
    /// The cause.
    pub source: RequestError,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The time of the caller is over.
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Timeout,
    /// Every answer was another redirect.
    #[error("stopped after {limit} redirects")]
    Redirects {
        /// How many are followed.
        limit: usize,
    },
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The host cannot be the name of a TLS server.
    #[error(transparent)]
    Name(#[from] InvalidDnsNameError),
    /// The TLS handshake failed.
    #[error(transparent)]
    Tls(io::Error),
    /// The path cannot be requested.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The connection broke, or the answer is not HTTP.
    #[error(transparent)]
    Exchange(#[from] hyper::Error),
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub struct Target {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Address or name.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// Headers.
    pub headers: HeaderMap,
}

impl Target {
    /// The target of an `httpGet`, with the pod's address where it names no host.
    pub fn new(action: &HTTPGetAction, port: u16, pod_ip: &str, agent: &str) -> Target {
        let mut headers = HeaderMap::new();
        for header in action.http_headers.iter().flatten() {
            let (Ok(name), Ok(value)) =
                (HeaderName::try_from(&header.name), HeaderValue::from_str(&header.value))
            else {
                continue;
            };
            headers.append(name, value);
        }
        let default = |headers: &mut HeaderMap, name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value)
                && !headers.contains_key(name)
            {
                headers.insert(name, value);
            }
        };
        default(&mut headers, "user-agent", agent);
        default(&mut headers, "accept", "*/*");
        // An empty value is a request to leave the header out.
        headers.retain_non_empty();
        Target {
            scheme: if action.scheme.as_deref() == Some("HTTPS") { "https" } else { "http" },
            host: action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| pod_ip.to_owned()),
            port,
            path: url_path::encode(action.path.as_deref().unwrap_or_default()),
            headers,
        }
    }

    fn url(&self) -> String {
        format!("{}://{}:{}{}", self.scheme, bracketed(&self.host), self.port, self.path)
    }
}

trait RetainNonEmpty {
    fn retain_non_empty(&mut self);
}

impl RetainNonEmpty for HeaderMap {
    fn retain_non_empty(&mut self) {
        let empty: Vec<HeaderName> =
            self.iter().filter(|(_, value)| value.is_empty()).map(|(name, _)| name.clone()).collect();
        for name in empty {
            self.remove(name);
        }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Status and beginning of the body.
pub async fn get(target: &Target, timeout: Duration) -> Result<(StatusCode, String), GetError> {
    let answer = tokio::time::timeout(timeout, follow(target.clone())).await;
    answer.unwrap_or(Err(RequestError::Timeout)).map_err(|source| GetError { url: target.url(), source })
}

async fn follow(mut target: Target) -> Result<(StatusCode, String), RequestError> {
    for _ in 0..REDIRECTS {
        let (status, headers, body) = once(&target).await?;
        let location =
            headers.get(LOCATION).and_then(|value| value.to_str().ok()).filter(|_| status.is_redirection());
        let Some(next) = location.and_then(|location| redirect(&target, location)) else {
            return Ok((status, body));
        };
        target = next;
    }
    Err(RequestError::Redirects { limit: REDIRECTS })
}

/// The next target, when it is on the same host; a redirect elsewhere counts as an answer.
fn redirect(from: &Target, location: &str) -> Option<Target> {
    let uri: Uri = location.parse().ok()?;
    let path = uri.path_and_query().map(|path| path.to_string()).unwrap_or_else(|| "/".into());
    let Some(host) = uri.host() else {
        return Some(Target {
            path: if path.starts_with('/') { path } else { format!("/{path}") },
            ..from.clone()
        });
    };
    if host.trim_matches(['[', ']']) != from.host {
        return None;
    }
    let scheme = if uri.scheme_str() == Some("https") { "https" } else { "http" };
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    Some(Target { scheme, port, path, ..from.clone() })
}

async fn once(target: &Target) -> Result<(StatusCode, HeaderMap, String), RequestError> {
    let address = format!("{}:{}", bracketed(&target.host), target.port);
    let tcp = TcpStream::connect((target.host.as_str(), target.port))
        .await
        .map_err(|source| DialError { address: address.clone(), source })?;
    if target.scheme == "http" {
        return exchange(target, &address, tcp).await;
    }
    let name = ServerName::try_from(target.host.clone())?;
    let connector = tokio_rustls::TlsConnector::from(tls());
    let tls = connector.connect(name, tcp).await.map_err(RequestError::Tls)?;
    exchange(target, &address, tls).await
}

async fn exchange<S>(
    target: &Target,
    address: &str,
    stream: S,
) -> Result<(StatusCode, HeaderMap, String), RequestError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = Request::get(&target.path).body(Empty::<Bytes>::new())?;
    *request.headers_mut() = target.headers.clone();
    if !request.headers().contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(address)
    {
        request.headers_mut().insert(HOST, host);
    }
    request.headers_mut().insert("connection", HeaderValue::from_static("close"));
    let result = async {
        let response = sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, BODY).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Ok((parts.status, parts.headers, String::from_utf8_lossy(&body).into_owned()))
    }
    .await;
    connection.abort();
    result
}

/// A probe asks whether something answers, not who it is.
fn tls() -> Arc<rustls::ClientConfig> {
    static CONFIG: LazyLock<Arc<rustls::ClientConfig>> = LazyLock::new(|| {
        let client = server_cert::client_config(Arc::new(server_cert::SkipVerify));
        Arc::new(client.expect("ring has the default protocol versions").with_no_client_auth())
    });
    CONFIG.clone()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn serve(answers: Vec<&'static str>) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        port
    }

    fn target(port: u16) -> Target {
        Target::new(
            &HTTPGetAction { path: Some("/x".into()), ..HTTPGetAction::default() },
            port,
            "127.0.0.1",
            coracle_proto::version::PROBE_AGENT,
        )
    }

    #[tokio::test]
    async fn a_path_with_a_space_is_asked_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let action = HTTPGetAction { path: Some("/is it?q=a b".into()), ..HTTPGetAction::default() };
        let target = Target::new(&action, port, "127.0.0.1", coracle_proto::version::PROBE_AGENT);
        assert_eq!(get(&target, Duration::from_secs(60)).await.unwrap().0, 200);
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("GET /is%20it?q=a%20b HTTP/1.1\r\n"), "{asked}");
    }

    #[tokio::test]
    async fn answers_redirects_and_refusals() {
        let port = serve(vec!["HTTP/1.1 204 No Content\r\n\r\n"]).await;
        assert_eq!(get(&target(port), Duration::from_secs(60)).await.unwrap().0, 204);
        let port = serve(vec![
            "HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nno",
        ])
        .await;
        assert_eq!(
            get(&target(port), Duration::from_secs(60)).await.unwrap(),
            (StatusCode::INTERNAL_SERVER_ERROR, "no".into())
        );
        let port = serve(vec![
            "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\nContent-Length: 0\r\n\r\n",
        ])
        .await;
        assert_eq!(get(&target(port), Duration::from_secs(60)).await.unwrap().0, 302);
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = closed.local_addr().unwrap().port();
        drop(closed);
        let error = get(&target(port), Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "Get \"http://127.0.0.1:{port}/x\": dial tcp 127.0.0.1:{port}: connect: connection refused"
            )
        );
    }
}
