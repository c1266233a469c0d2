//! CORS: allows cross-origin requests from origins that match.

use crate::respond::{self, Body};
use http::header::{HeaderValue, ORIGIN};
use http::{HeaderMap, Method, Request, Response};
use regex::Regex;

const METHODS: &str = "POST, GET, OPTIONS, PUT, DELETE, PATCH";
const HEADERS: &str = "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since";

/// Origins that are let in.
#[derive(Debug, Default)]
pub struct Cors(Vec<Regex>);

impl Cors {
    /// From regular expressions, each of which must begin with `^` or name a scheme.
    pub fn new(patterns: &[String]) -> Result<Self, regex::Error> {
        Ok(Self(patterns.iter().map(|pattern| Regex::new(pattern)).collect::<Result<_, _>>()?))
    }

    /// The origin of a request, when it is let in.
    pub fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.0.iter().any(|pattern| pattern.is_match(text)).then(|| origin.clone())
    }

    /// The answer to a browser that asks before it sends.
    pub fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        if request.method() != Method::OPTIONS {
            return None;
        }
        let origin = self.origin(request.headers())?;
        let mut response = respond::bytes(204, "text/plain", "");
        Self::allow(&mut response, origin);
        Some(response)
    }

    /// Tells the browser that its page may read the answer.
    pub fn allow(response: &mut Response<Body>, origin: HeaderValue) {
        let headers = response.headers_mut();
        headers.insert("access-control-allow-origin", origin);
        headers.insert("access-control-allow-methods", HeaderValue::from_static(METHODS));
        headers.insert("access-control-allow-headers", HeaderValue::from_static(HEADERS));
        headers.insert("access-control-expose-headers", HeaderValue::from_static("Date"));
        headers.insert("access-control-allow-credentials", HeaderValue::from_static("true"));
        headers.append("vary", HeaderValue::from_static("Origin"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_origins_that_match_are_let_in() {
        let cors = Cors::new(&["^https://ui\\.example\\.com$".into()]).unwrap();
        let asks = |method: Method, origin: &str| {
            let request = Request::builder().method(method).header("origin", origin).body(()).unwrap();
            (cors.origin(request.headers()).is_some(), cors.preflight(&request).map(|r| r.status().as_u16()))
        };
        assert_eq!(asks(Method::OPTIONS, "https://ui.example.com"), (true, Some(204)));
        assert_eq!(asks(Method::GET, "https://ui.example.com"), (true, None));
        assert_eq!(asks(Method::OPTIONS, "https://ui.example.com.evil.org"), (false, None));
        assert!(Cors::new(&["(".into()]).is_err());
    }
}
