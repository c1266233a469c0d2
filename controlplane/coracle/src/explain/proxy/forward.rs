//! One request through the proxy: to the server with the user's credentials, and its answer back.

use super::Mode;
use coracle_apiserver::respond::{Body, full};
use http::header::{ACCEPT_ENCODING, CONNECTION, HeaderMap, HeaderName, HeaderValue, SET_COOKIE, UPGRADE};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

/// Larger bodies are refused; servers take less.
const LARGEST_BODY: usize = 16 << 20;
/// The header of W3C Trace Context.
pub(super) const TRACEPARENT: &str = "traceparent";

/// Headers about the connection, which end at the proxy.
const OF_CONNECTION: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers of requests that are for the proxy, or that the client of the proxy must not choose.
const NOT_FORWARDED: [&str; 7] =
    ["host", "content-length", "cookie", "origin", "referer", "authorization", "accept-encoding"];

/// Headers of answers to the page that are none of its files: whatever they contain, it is not run, shown in another page or stored.
/// The last says what the proxy answers itself: the page asks for it only then.
const OF_DATA: [(&str, &str); 6] = [
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'; sandbox"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
    ("coracle-proxy", "why"),
];

/// Sends a request to a path of the server; a server that does not answer is a 502.
pub(super) async fn forward(
    client: &kube::Client,
    mode: &Mode,
    mut request: Request<Incoming>,
    target: PathAndQuery,
) -> Response<Body> {
    let upgrade = request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LARGEST_BODY).collect().await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "cannot read the body");
    };
    let is_data = matches!(mode, Mode::Page { .. }) && !target.path().starts_with("/ui/");
    let mut outgoing = Request::new(kube::client::Body::from(body.to_bytes()));
    *outgoing.method_mut() = parts.method;
    *outgoing.uri_mut() = Uri::from(target);
    *outgoing.headers_mut() = request_headers(&parts.headers, mode, upgrade.is_some());
    match client.send(outgoing).await {
        Ok(response) => {
            let mut answered = answer(response, upgrade);
            if is_data {
                mark_data(answered.headers_mut());
            }
            answered
        }
        Err(error) => plain(StatusCode::BAD_GATEWAY, &coracle_cli::causes::chain(&error)),
    }
}

/// Adds the headers of answers to the page that are none of its files.
pub(super) fn mark_data(headers: &mut HeaderMap) {
    for (name, value) in OF_DATA {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// The headers of a request as the server gets them.
fn request_headers(headers: &HeaderMap, mode: &Mode, upgrades: bool) -> HeaderMap {
    let mut forwarded = HeaderMap::new();
    for (name, value) in headers {
        let is_kept = !OF_CONNECTION.contains(&name.as_str()) && !NOT_FORWARDED.contains(&name.as_str());
        let impersonates = name.as_str().starts_with("impersonate-");
        if is_kept && !(impersonates && matches!(mode, Mode::Page { .. })) {
            forwarded.append(name, value.clone());
        }
    }
    // Bodies pass through as they come.
    forwarded.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if upgrades {
        forwarded.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        if let Some(protocol) = headers.get(UPGRADE) {
            forwarded.insert(UPGRADE, protocol.clone());
        }
    }
    if let Mode::Command { traceparent } = mode
        && !forwarded.contains_key(TRACEPARENT)
    {
        forwarded.insert(TRACEPARENT, traceparent.clone());
    }
    forwarded
}

/// The answer of the server; after an upgrade both connections are joined.
fn answer(mut response: Response<kube::client::Body>, upgrade: Option<OnUpgrade>) -> Response<Body> {
    let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if let (true, Some(client)) = (is_upgraded, upgrade) {
        let server = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            if let (Ok(client), Ok(server)) = tokio::join!(client, server) {
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                // Either end may close at any time.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    } else {
        for name in OF_CONNECTION {
            response.headers_mut().remove(name);
        }
    }
    response.headers_mut().remove(SET_COOKIE);
    response.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// An answer of the proxy itself.
pub(super) fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(full(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(&'static str, &'static str)]) -> HeaderMap {
        given
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn headers_that_end_here() {
        let given = headers(&[
            ("host", "127.0.0.1:4000"),
            ("cookie", "a=b"),
            ("authorization", "Bearer x"),
            ("origin", "http://127.0.0.1:4000"),
            ("referer", "http://127.0.0.1:4000/"),
            ("connection", "keep-alive"),
            ("accept", "application/json"),
            ("accept-encoding", "gzip"),
            ("impersonate-user", "admin"),
            ("user-agent", "kubectl/v1.35.0"),
        ]);
        let page = request_headers(&given, &Mode::Page { own: None, namespace: String::new() }, false);
        assert_eq!(names(&page), ["accept", "accept-encoding", "user-agent"]);
        assert_eq!(page[ACCEPT_ENCODING], "identity");
        let traceparent = HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let mode = Mode::Command { traceparent: traceparent.clone() };
        let command = request_headers(&given, &mode, false);
        assert_eq!(
            names(&command),
            ["accept", "accept-encoding", "impersonate-user", "traceparent", "user-agent"]
        );
        assert_eq!(command[TRACEPARENT], traceparent);
    }

    #[test]
    fn upgrades_and_own_contexts_are_kept() {
        let mode = Mode::Command { traceparent: HeaderValue::from_static("ours") };
        let given =
            headers(&[("upgrade", "websocket"), ("connection", "upgrade"), ("traceparent", "theirs")]);
        let command = request_headers(&given, &mode, true);
        assert_eq!(
            (&command[UPGRADE], &command[CONNECTION]),
            (&given[UPGRADE], &HeaderValue::from_static("Upgrade"))
        );
        assert_eq!(command[TRACEPARENT], "theirs");
    }
}
