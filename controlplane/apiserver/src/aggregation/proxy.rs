//! Proxies a request to an aggregated API server: it changes the authority and the user headers and nothing else.
//! Responses, streams and upgrades are returned unchanged. If the server cannot be reached, the response is 503 as
//! plain text, with upstream's message.

use super::routes::Entry;
use super::target::Target;
use super::transport::TransportError;
use super::{Extensions, empty_body, requestheader::set_requestheaders};
use crate::nodes::forward;
use crate::request_body::RequestBody;
use crate::respond::{self, Body, BoxError};
use bytes::Bytes;
use coracle_client::user::User;
use coracle_proto::status::ApiError;
use coracle_trace::{Stage, TraceContext, current, tracked};
use http::header::{ACCEPT, HeaderMap, LOCATION};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper_util::client::legacy;
use std::error::Error as _;
use std::time::Duration;

/// Maximum size of a response that is read into memory.
const LIMIT: usize = 32 * 1024 * 1024;

/// A response with its whole body.
pub struct BackendResponse {
    /// Its code.
    pub code: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Extensions {
    /// Proxies a request.
    pub async fn proxy(
        &self,
        entry: &Entry,
        user: &User,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        if !entry.available {
            return Ok(unavailable("service unavailable"));
        }
        let client = forward::client_side(&mut request);
        let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let authority = authority(&entry.target);
        let (mut request, _) =
            forward::rewritten(request, &authority, &format!("https://{authority}{path}"))?;
        set_requestheaders(request.headers_mut(), user)?;
        let mut request =
            request.map(|body| body.map_err(|error| Box::new(error) as BoxError).boxed_unsync());
        let backend = self.client(&entry.target);
        let exchange = async move {
            if let Some(context) = current().context()
                && let Ok(value) = HeaderValue::from_bytes(&context.text())
            {
                request.headers_mut().insert(TraceContext::HEADER, value);
            }
            backend.request(request).await
        };
        let answer = match tracked(Stage::Aggregated, &authority, exchange).await {
            Ok(answer) => answer,
            Err(error) => {
                let why = root_cause(&error);
                tracing::debug!(service = authority, %why, "proxying to an aggregated API failed");
                return Ok(unavailable(&format!("error trying to reach service: {why}")));
            }
        };
        if answer.status().is_redirection() && answer.headers().contains_key(LOCATION) {
            let why = "the backend attempted to redirect this request, which is not permitted";
            return Ok(respond::text(502, why));
        }
        let mut response = forward::answer(client, answer);
        // Who may use answers on other pages is this server's to say.
        for name in ["origin", "credentials", "headers", "methods"] {
            response.headers_mut().remove(format!("access-control-allow-{name}"));
        }
        Ok(response)
    }

    /// Sends a request as `user` and reads the whole response.
    pub async fn ask(
        &self,
        target: &Target,
        user: &User,
        (method, path, accept): (Method, &str, &'static str),
        timeout: Duration,
    ) -> Result<BackendResponse, TransportError> {
        let broken = |why: &dyn std::fmt::Display| TransportError::Broken(why.to_string());
        let url = format!("https://{}{path}", authority(target));
        let request = Request::builder().method(method).uri(url).body(empty_body());
        let mut request = request.map_err(|error| broken(&error))?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        set_requestheaders(request.headers_mut(), user).map_err(|error| broken(&error))?;
        let asked = async {
            let answer = self.client(target).request(request).await;
            let answer = answer.map_err(|error| TransportError::Broken(root_cause(&error)))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, LIMIT).collect().await.map_err(|error| broken(&error))?;
            Ok(BackendResponse { code: head.status, headers: head.headers, body: body.to_bytes() })
        };
        let late = || TransportError::Broken("context deadline exceeded".into());
        tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| Err(late()))
    }
}

fn authority(target: &Target) -> String {
    format!("{}:{}", target.host(), target.port)
}

fn unavailable(why: &str) -> Response<Body> {
    respond::text(503, format!("{why}\n"))
}

/// The innermost source of an error, which is the most specific.
fn root_cause(error: &legacy::Error) -> String {
    let bottom = std::iter::successors(error.source(), |&cause| cause.source()).last();
    bottom.map_or_else(|| error.to_string(), ToString::to_string)
}
