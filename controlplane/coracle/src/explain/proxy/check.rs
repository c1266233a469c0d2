//! Which requests the proxy forwards. It has the rights of its user, and listens where any program of this machine and any page in a
//! browser can reach it: a request must know the path, and must not come from another page.

use http::header::{HOST, HeaderMap, ORIGIN, UPGRADE};
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode};

/// What the page may read.
const READABLE: [&str; 7] = ["api", "apis", "coracle", "ui", "version", "debug", "openapi"];
/// Subresources that act although they are read.
const ACTING: [&str; 4] = ["exec", "attach", "portforward", "proxy"];

/// What a request must have.
pub(super) struct Rules<'a> {
    /// The first segment of every path.
    pub(super) token: &'a str,
    /// The port that the proxy listens on.
    pub(super) port: u16,
    /// Whether only the page is served, which reads.
    pub(super) read_only: bool,
}

/// Why a request is not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The path has not the token.
    Token,
    /// The request is for another host: the name of a foreign page that points to this machine.
    Host,
    /// The request is from another page.
    Origin,
    /// Only GET and HEAD.
    Method,
    /// Not one of the paths of the page.
    Path,
}

impl Refusal {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Token | Self::Path => StatusCode::NOT_FOUND,
            Self::Host | Self::Origin => StatusCode::FORBIDDEN,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Token => "not found",
            Self::Host => "wrong Host header",
            Self::Origin => "requests of other origins are refused",
            Self::Method => "only GET and HEAD are forwarded",
            Self::Path => "this path is not forwarded",
        }
    }
}

impl Rules<'_> {
    /// The path to ask the server for.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<PathAndQuery, Refusal> {
        let (uri, headers) = (request.uri(), request.headers());
        let own = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        let is_own = |host: &str| own.iter().any(|own| own == host);
        // Requests to proxies have a host in their URI.
        let hosts = headers.get_all(HOST).iter().map(|host| host.to_str().ok());
        let hosts: Vec<Option<&str>> =
            hosts.chain(uri.authority().map(|authority| Some(authority.as_str()))).collect();
        if hosts.is_empty() || !hosts.iter().all(|host| host.is_some_and(is_own)) {
            return Err(Refusal::Host);
        }
        let path = self.without_token(uri.path()).ok_or(Refusal::Token)?;
        let is_own_page = |origin: &str| origin.strip_prefix("http://").is_some_and(is_own);
        if !headers.get_all(ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(is_own_page)) {
            return Err(Refusal::Origin);
        }
        if self.read_only {
            readable(request.method(), path, headers)?;
        }
        let target = match uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        target.parse().map_err(|_| Refusal::Path)
    }

    /// The path behind the token. The comparison takes as long for every token.
    fn without_token<'p>(&self, path: &'p str) -> Option<&'p str> {
        let path = path.strip_prefix('/')?;
        let end = path.find('/').unwrap_or(path.len());
        let (token, rest) = path.split_at(end);
        let differences = token.bytes().zip(self.token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        let is_right = token.len() == self.token.len() && differences == 0;
        is_right.then_some(if rest.is_empty() { "/" } else { rest })
    }
}

/// Whether the page may read a path.
fn readable(method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(Refusal::Method);
    }
    let segments: Vec<&str> = path.trim_start_matches('/').trim_end_matches('/').split('/').collect();
    // The server may read escapes, dots and empty segments in another way.
    let is_plain = |segment: &&str| {
        !segment.is_empty() && !matches!(*segment, "." | "..") && !segment.contains(['%', '\\', ';'])
    };
    if path.starts_with("//") || !segments.iter().all(is_plain) || headers.contains_key(UPGRADE) {
        return Err(Refusal::Path);
    }
    let is_known = match segments[..] {
        ["coracle", second, ..] => second == "v1",
        ["debug", second, ..] => second == "scheduler",
        ["coracle" | "debug"] => false,
        [first, ..] => READABLE.contains(&first),
        [] => false,
    };
    let acts = subresource(&segments).is_some_and(|name| ACTING.contains(&name.to_lowercase().as_str()));
    if is_known && !acts { Ok(()) } else { Err(Refusal::Path) }
}

/// The subresource of a path, also in forms of old servers.
fn subresource<'a>(segments: &[&'a str]) -> Option<&'a str> {
    let rest = match segments {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => return None,
    };
    let rest = match rest {
        // `/api/v1/proxy/…` forwards, `/api/v1/watch/…` watches.
        ["proxy", ..] => return Some("proxy"),
        ["watch", rest @ ..] => rest,
        rest => rest,
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if rest.len() >= 2 => rest,
        rest => rest,
    };
    rest.get(2).copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn checked(
        read_only: bool,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<String, Refusal> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let rules = Rules { token: TOKEN, port: 4000, read_only };
        rules.check(&request.body(()).unwrap()).map(|path| path.to_string())
    }

    fn page(method: &str, path: &str) -> Result<String, Refusal> {
        checked(true, method, &format!("/{TOKEN}{path}"), &[("host", "127.0.0.1:4000")])
    }

    #[test]
    fn what_the_page_reads() {
        for path in [
            "/ui/",
            "/ui/main.js",
            "/api/v1/pods?limit=500",
            "/apis/apps/v1/namespaces/default/deployments/web",
            "/api/v1/namespaces/default/pods/proxy",
            "/api/v1/namespaces/proxy/pods/web/log?follow=true",
            "/coracle/v1/trace?name=web",
            "/debug/scheduler/pods",
            "/version",
            "/openapi/v3",
        ] {
            assert_eq!(page("GET", path).as_deref(), Ok(path));
            assert_eq!(page("HEAD", path).as_deref(), Ok(path));
        }
    }

    #[test]
    fn the_page_changes_nothing() {
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT2"] {
            assert_eq!(page(method, "/api/v1/pods"), Err(Refusal::Method), "{method}");
        }
        for path in [
            "/",
            "",
            "/metrics",
            "/healthz",
            "/debug/pprof",
            "/debug",
            "/coracle/tunnel/node1",
            "/coracle/relay/node1",
            "/coracle",
            "/api/v1/namespaces/default/pods/web/exec?command=sh",
            "/api/v1/namespaces/default/pods/web/attach",
            "/api/v1/namespaces/default/pods/web/portforward",
            "/api/v1/namespaces/default/pods/web/proxy/admin",
            "/api/v1/namespaces/default/services/web:80/proxy",
            "/api/v1/nodes/node1/proxy/run",
            "/api/v1/nodes/node1/PROXY",
            "/api/v1/proxy/nodes/node1",
            "/api/v1/watch/nodes/node1/proxy",
            "/api/v1/nodes/node1/%70roxy",
            "/api/v1/nodes/x/../node1/proxy",
            "/api/v1//nodes/node1/proxy",
            "//api/v1/pods",
            "/ui/..",
        ] {
            assert_eq!(page("GET", path), Err(Refusal::Path), "{path}");
        }
        let headers = [("host", "127.0.0.1:4000"), ("upgrade", "websocket")];
        assert_eq!(checked(true, "GET", &format!("/{TOKEN}/api/v1/pods"), &headers), Err(Refusal::Path));
    }

    #[test]
    fn the_token_is_needed() {
        let other = TOKEN.replace('0', "1");
        for path in [
            "/api/v1/pods",
            "/",
            "//api",
            &format!("/{other}/api/v1/pods"),
            &format!("/{TOKEN}0/api"),
            &format!("/{}/api", &TOKEN[1..]),
        ] {
            for read_only in [true, false] {
                assert_eq!(
                    checked(read_only, "GET", path, &[("host", "127.0.0.1:4000")]),
                    Err(Refusal::Token),
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn other_pages_are_refused() {
        let path = format!("/{TOKEN}/api/v1/pods");
        for read_only in [true, false] {
            let with = |headers: &[(&str, &str)]| checked(read_only, "GET", &path, headers);
            assert!(with(&[("host", "localhost:4000"), ("origin", "http://localhost:4000")]).is_ok());
            for host in
                ["evil.example.com", "evil.example.com:4000", "127.0.0.1", "127.0.0.1:4001", "localhost", ""]
            {
                assert_eq!(with(&[("host", host)]), Err(Refusal::Host), "{host}");
            }
            assert_eq!(with(&[]), Err(Refusal::Host));
            assert_eq!(with(&[("host", "127.0.0.1:4000"), ("host", "evil.example.com")]), Err(Refusal::Host));
            for origin in
                ["http://evil.example.com", "https://127.0.0.1:4000", "http://127.0.0.1:4001", "null"]
            {
                let headers = [("host", "127.0.0.1:4000"), ("origin", origin)];
                assert_eq!(with(&headers), Err(Refusal::Origin), "{origin}");
            }
            let absolute = format!("http://evil.example.com{path}");
            assert_eq!(
                checked(read_only, "GET", &absolute, &[("host", "127.0.0.1:4000")]),
                Err(Refusal::Host)
            );
        }
    }

    #[test]
    fn commands_may_do_everything() {
        let command = |method: &str, path: &str| {
            checked(false, method, &format!("/{TOKEN}{path}"), &[("host", "127.0.0.1:4000")])
        };
        let path = "/api/v1/namespaces/default/pods/web/exec?command=sh";
        assert_eq!(command("POST", path).as_deref(), Ok(path));
        assert_eq!(command("DELETE", "/api/v1/nodes/n1").as_deref(), Ok("/api/v1/nodes/n1"));
        assert_eq!(command("GET", "").as_deref(), Ok("/"));
    }
}
