//! Raw TCP connections for the API server's proxy, which may not be on the pod network.

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;

use super::response::{ApiResponse, text};
use crate::lifecycle::table::PodTable;

/// The protocol that is upgraded to.
const PROTOCOL: &str = "coracle-dial";
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to an address of a pod of this node, or to one of the node's own.
pub async fn handle(
    own: &[String],
    pods: &PodTable,
    address: &str,
    mut request: Request<Incoming>,
) -> ApiResponse {
    if request.headers().get(UPGRADE).is_none_or(|value| value != PROTOCOL) {
        return text(StatusCode::BAD_REQUEST, "unable to upgrade: missing upgrade headers in request");
    }
    let Ok(address) = address.parse::<SocketAddr>() else {
        return text(StatusCode::BAD_REQUEST, format!("{address:?} is no address with a port"));
    };
    let ip = address.ip().to_string();
    let ours = own.contains(&ip) || pods.list().iter().any(|entry| entry.view.ips.contains(&ip));
    if !ours {
        return text(StatusCode::FORBIDDEN, format!("{ip} is no address of this node or its pods"));
    }
    let connected = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await;
    let mut target = match connected {
        Ok(Ok(target)) => target,
        Ok(Err(error)) => return text(StatusCode::BAD_GATEWAY, format!("dial tcp {address}: {error}")),
        Err(_) => return text(StatusCode::GATEWAY_TIMEOUT, format!("dial tcp {address}: i/o timeout")),
    };
    let _ = target.set_nodelay(true);
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(upgraded), &mut target).await;
    });
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    response
}
