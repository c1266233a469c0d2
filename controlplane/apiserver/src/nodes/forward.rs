//! Forwards one HTTP exchange. A client that requests an upgrade (WebSocket, SPDY) gets the backend's response; after a
//! 101 bytes are copied in both directions until either side closes.

use crate::request_body::RequestBody;
use crate::respond::{Body, BoxError, Proxied};
use coracle_cli::causes;
use coracle_proto::status::ApiError;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

/// Headers that end at the next hop.
const HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// Whether a client asks for another protocol.
pub fn wants_upgrade(headers: &HeaderMap) -> bool {
    let connection = headers.get_all(CONNECTION).iter().filter_map(|v| v.to_str().ok());
    headers.contains_key(UPGRADE)
        && connection.flat_map(|v| v.split(',')).any(|t| t.trim().eq_ignore_ascii_case("upgrade"))
}

/// The request for the backend: the same method, body and headers, another path.
pub fn rewritten(
    request: Request<RequestBody>,
    host: &str,
    path: &str,
) -> Result<(Request<RequestBody>, bool), ApiError> {
    let upgrade = wants_upgrade(request.headers());
    let (mut parts, body) = request.into_parts();
    let protocol = parts.headers.get(UPGRADE).cloned();
    for name in HOP {
        parts.headers.remove(name);
    }
    if let (true, Some(protocol)) = (upgrade, protocol) {
        parts.headers.insert(CONNECTION, http::HeaderValue::from_static("Upgrade"));
        parts.headers.insert(UPGRADE, protocol);
    }
    parts.headers.insert(HOST, http::HeaderValue::from_str(host).map_err(ApiError::internal)?);
    parts.uri = path.parse::<Uri>().map_err(|e| ApiError::bad_request(e.to_string()))?;
    parts.version = http::Version::HTTP_11;
    if upgrade {
        // Kept: the client's side of the joined connection comes out of the extensions.
        return Ok((Request::from_parts(parts, body), true));
    }
    Ok((Request::from_parts(parts, body), false))
}

/// Passes the backend's answer on and joins the connections after a 101.
pub fn answer(client: Option<hyper::upgrade::OnUpgrade>, mut backend: Response<Incoming>) -> Response<Body> {
    if backend.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(client) = client
    {
        let ours = hyper::upgrade::on(&mut backend);
        tokio::spawn(async move {
            let (Ok(client), Ok(backend)) = tokio::join!(client, ours) else { return };
            let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
            let _ = tokio::io::copy_bidirectional(&mut client, &mut backend).await;
        });
    }
    let (mut parts, body) = backend.into_parts();
    parts.extensions.insert(Proxied);
    if parts.status != StatusCode::SWITCHING_PROTOCOLS {
        for name in HOP {
            parts.headers.remove(name);
        }
    }
    Response::from_parts(parts, body.map_err(|e| Box::new(e) as BoxError).boxed_unsync())
}

/// The same body, ended where it fails: an agent that is restarted ends what it was following, and that is no failure.
pub fn until_failure(body: Body) -> Body {
    let frames = futures::stream::unfold(body, |mut body| async move {
        match body.frame().await {
            Some(Ok(frame)) => Some((Ok::<_, BoxError>(frame), body)),
            Some(Err(error)) => {
                tracing::debug!(error = %causes::chain(&*error), "stream from a node agent failed");
                None
            }
            None => None,
        }
    });
    http_body_util::StreamBody::new(frames).boxed_unsync()
}

/// Takes the client's half of a future upgrade out of a request.
pub fn client_side(request: &mut Request<RequestBody>) -> Option<hyper::upgrade::OnUpgrade> {
    wants_upgrade(request.headers()).then(|| hyper::upgrade::on(request))
}

/// Whether the method is one that streams use.
pub fn is_stream_method(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::POST)
}
