//! A request passed on: with another authority and the user's name in it, otherwise as it came. Answers, streams and
//! upgrades go back as they come. Whoever cannot be reached is unavailable, in upstream's words and form: plain text.

use super::link::LinkError;
use super::table::Entry;
use super::target::Target;
use super::{Extensions, nothing, vouch::vouch};
use crate::connect::forward;
use crate::inbound::Inbound;
use crate::respond::{self, Body, BoxError};
use bytes::Bytes;
use coracle_client::user::User;
use coracle_proto::status::ApiError;
use http::header::{ACCEPT, HeaderMap, LOCATION};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper_util::client::legacy;
use std::error::Error as _;
use std::time::Duration;

/// The largest answer that this server itself reads.
const LIMIT: usize = 32 * 1024 * 1024;

/// An answer that was read to its end.
pub struct Answer {
    /// Its code.
    pub code: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Extensions {
    /// Passes a request on.
    pub async fn pass(
        &self,
        entry: &Entry,
        user: &User,
        mut request: Request<Inbound>,
    ) -> Result<Response<Body>, ApiError> {
        if !entry.available {
            return Ok(unavailable("service unavailable"));
        }
        let client = forward::client_side(&mut request);
        let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let authority = authority(&entry.target);
        let (mut request, _) =
            forward::rewritten(request, &authority, &format!("https://{authority}{path}"))?;
        vouch(request.headers_mut(), user)?;
        let request = request.map(|body| body.map_err(|error| Box::new(error) as BoxError).boxed_unsync());
        let answer = match self.client(&entry.target).request(request).await {
            Ok(answer) => answer,
            Err(error) => {
                let why = words(&error);
                tracing::debug!(service = authority, %why, "not passed on");
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

    /// Asks a server in a user's name, and reads the whole answer.
    pub async fn ask(
        &self,
        target: &Target,
        user: &User,
        (method, path, accept): (Method, &str, &'static str),
        patience: Duration,
    ) -> Result<Answer, LinkError> {
        let broken = |why: &dyn std::fmt::Display| LinkError::Broken(why.to_string());
        let url = format!("https://{}{path}", authority(target));
        let request = Request::builder().method(method).uri(url).body(nothing());
        let mut request = request.map_err(|error| broken(&error))?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        vouch(request.headers_mut(), user).map_err(|error| broken(&error))?;
        let asked = async {
            let answer = self.client(target).request(request).await;
            let answer = answer.map_err(|error| LinkError::Broken(words(&error)))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, LIMIT).collect().await.map_err(|error| broken(&error))?;
            Ok(Answer { code: head.status, headers: head.headers, body: body.to_bytes() })
        };
        let late = || LinkError::Broken("context deadline exceeded".into());
        tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| Err(late()))
    }
}

fn authority(target: &Target) -> String {
    format!("{}:{}", target.host(), target.port)
}

fn unavailable(why: &str) -> Response<Body> {
    respond::text(503, format!("{why}\n"))
}

/// The cause at the bottom, which says most.
fn words(error: &legacy::Error) -> String {
    let bottom = std::iter::successors(error.source(), |&cause| cause.source()).last();
    bottom.map_or_else(|| error.to_string(), ToString::to_string)
}
