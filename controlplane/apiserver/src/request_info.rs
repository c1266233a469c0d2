//! Parses method and URL into verb, resource, namespace and name.

use crate::verb::Verb;
use coracle_proto::names::path_segment;
use coracle_proto::selector::FieldSelector;
use coracle_proto::status::ApiError;
use http::Method;
use std::borrow::Cow;

/// A request as authorization, audit and routing see it. Whoever acts on a request reads it from here and never from the URL
/// again: what is authorized is what is done.
///
/// ```
/// use coracle_apiserver::request_info::RequestInfo;
/// use coracle_apiserver::verb::Verb;
///
/// let info = RequestInfo::parse(&http::Method::GET, "/api/v1/namespaces/default/pods/web/log", &[]);
/// assert_eq!(info.verb, Verb::Get);
/// assert_eq!((info.namespace.as_str(), info.name.as_str()), ("default", "web"));
/// assert_eq!((info.resource.as_str(), info.subresource.as_str()), ("pods", "log"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// What it does; for paths that are no resource the HTTP method in lower case.
    pub verb: Verb,
    /// Whether the path names a resource.
    pub is_resource: bool,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, empty when the path has none.
    pub namespace: String,
    /// Whether the path goes through `namespaces/<namespace>/`; it does not when it names a namespace itself.
    pub in_namespace: bool,
    /// Resource, such as `pods`.
    pub resource: String,
    /// Subresource, such as `status`.
    pub subresource: String,
    /// Object name.
    pub name: String,
    /// What follows the subresource (proxy paths), without a leading slash and as the client encoded it.
    pub rest: String,
    /// The whole path.
    pub path: String,
    /// Terms of the field selector that ask for one value: field and value.
    pub selected: Vec<(String, String)>,
    /// Why nothing is served at this path, whoever asks and whichever kinds there are.
    pub route_error: Option<RouteError>,
}

/// Why a path of a resource leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteError {
    /// There is no such path.
    Path,
    /// The path exists for other methods only.
    Method,
    /// A part of the path cannot be part of one: which, and why.
    Segment(String, String),
}

impl RouteError {
    /// What the client is told.
    pub fn error(&self) -> ApiError {
        match self {
            Self::Path => ApiError::no_such_path(),
            Self::Method => ApiError::method_not_allowed(),
            Self::Segment(segment, why) => {
                ApiError::bad_request(format!("Name parameter invalid: {segment:?}: {why}"))
            }
        }
    }
}

/// One part of a path, decoded; what is no UTF-8 is marked by a character that no name has.
fn decoded(segment: &str) -> Cow<'_, str> {
    percent_encoding::percent_decode_str(segment).decode_utf8_lossy()
}

/// Why a part of a path cannot name anything: an encoded slash or a dot segment would be read as another path by others.
fn check_segment(segment: &str) -> Option<RouteError> {
    if segment.is_empty() {
        return Some(RouteError::Path);
    }
    let mut why = path_segment(segment);
    if segment.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER) {
        why.push("may not contain control characters or anything that is no UTF-8".into());
    }
    (!why.is_empty()).then(|| RouteError::Segment(segment.to_owned(), why.join(";")))
}

impl RequestInfo {
    /// Reads method and URI; `query` is consulted for `watch` and `fieldSelector=metadata.name=`.
    pub fn parse(method: &Method, path: &str, query: &[(String, String)]) -> Self {
        let verb = Verb::from(method.as_str().to_ascii_lowercase().as_str());
        let mut info = Self { verb, path: path.to_owned(), ..Self::default() };
        let raw: Vec<&str> = path.trim_matches('/').split('/').collect();
        // Each part is decoded once, before anything is compared with it.
        let segments: Vec<Cow<'_, str>> = raw.iter().map(|segment| decoded(segment)).collect();
        let plain: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        let mut parts = match plain.as_slice() {
            ["api", version, parts @ ..] if !parts.is_empty() => {
                info.version = (*version).into();
                parts
            }
            ["apis", group, version, parts @ ..] if !parts.is_empty() => {
                info.group = (*group).into();
                info.version = (*version).into();
                parts
            }
            _ => return info,
        };
        info.is_resource = true;
        info.verb = verb_of(method);
        let by_prefix = parts[0] == "watch" && parts.len() > 1;
        if by_prefix {
            // The old form /api/v1/watch/…, still in use by some clients.
            info.verb = Verb::Watch;
            parts = &parts[1..];
        }
        if parts[0] == "namespaces" && parts.len() > 1 {
            info.namespace = parts[1].into();
            info.in_namespace = parts.len() > 2 && !matches!(parts[2], "status" | "finalize");
            if info.in_namespace {
                parts = &parts[2..];
            }
        }
        let at = |i: usize| parts.get(i).map(|part| (*part).to_owned()).unwrap_or_default();
        (info.resource, info.name, info.subresource) = (at(0), at(1), at(2));
        let known = raw.len() - parts.len() + parts.len().min(3);
        if known < raw.len() {
            let rest = raw[known..].iter().copied().filter(|part| !part.is_empty());
            info.rest = rest.collect::<Vec<_>>().join("/");
            if path.ends_with('/') {
                info.rest.push('/');
            }
        }
        info.route_error = if path.starts_with("//") {
            Some(RouteError::Path)
        } else {
            plain[..known]
                .iter()
                .find_map(|segment| check_segment(segment))
                .or_else(|| info.unwatchable(by_prefix, method))
        };
        info.refine(query);
        info
    }

    /// Why the old form of watches does not lead here. It says the verb whatever the method is: on any other path or method
    /// than those of a watch it would have an action authorized as one.
    fn unwatchable(&self, by_prefix: bool, method: &Method) -> Option<RouteError> {
        match (by_prefix, self.subresource.is_empty()) {
            (true, false) => Some(RouteError::Path),
            (true, true) if *method != Method::GET => Some(RouteError::Method),
            _ => None,
        }
    }

    /// Whether the name stands in the path; otherwise a field selector says it, if there is one.
    pub fn is_named_by_path(&self) -> bool {
        !self.name.is_empty() && !self.selected.iter().any(|(field, _)| field == "metadata.name")
    }

    fn refine(&mut self, query: &[(String, String)]) {
        let watching = query.iter().any(|(k, v)| k == "watch" && matches!(v.as_str(), "true" | "1" | ""));
        if self.verb == Verb::Get && self.name.is_empty() {
            self.verb = if watching { Verb::Watch } else { Verb::List };
        }
        if self.verb == Verb::Delete && self.name.is_empty() {
            self.verb = Verb::DeleteCollection;
        }
        if matches!(self.verb, Verb::List | Verb::Watch | Verb::DeleteCollection) && self.name.is_empty() {
            // A selector on one name is authorized as access to that name: read as the list reads it, or it were no limit.
            let text = query.iter().find(|(key, _)| key == "fieldSelector").map_or("", |(_, value)| value);
            let terms = text.parse::<FieldSelector>().unwrap_or_default().terms.into_iter();
            let exact = terms.filter(|term| !term.negated).map(|term| (term.field, term.value));
            self.selected = exact.collect();
            if let Some((_, name)) = self.selected.iter().find(|(field, _)| field == "metadata.name") {
                self.name = name.clone();
            }
        }
    }

    /// Whether the request lasts as long as the client likes.
    pub fn long_running(&self) -> bool {
        self.verb == Verb::Watch
            || matches!(self.subresource.as_str(), "exec" | "attach" | "portforward" | "proxy")
            || (self.subresource == "log")
    }
}

fn verb_of(method: &Method) -> Verb {
    match *method {
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        Method::GET | Method::HEAD => Verb::Get,
        _ => Verb::None,
    }
}

impl RequestInfo {
    /// What metrics call the scope of a request.
    pub fn scope(&self) -> &'static str {
        if !self.is_resource {
            ""
        } else if !self.name.is_empty() {
            "resource"
        } else if !self.namespace.is_empty() {
            "namespace"
        } else {
            "cluster"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_verbs_and_resources() {
        let cases = [
            ("GET", "/api/v1/namespaces/default/pods/web", "", "get", "", "default", "pods", "web", ""),
            ("GET", "/api/v1/namespaces/default/pods", "watch=true", "watch", "", "default", "pods", "", ""),
            ("GET", "/api/v1/pods", "", "list", "", "", "pods", "", ""),
            ("GET", "/api/v1/namespaces/x", "", "get", "", "x", "namespaces", "x", ""),
            ("PUT", "/api/v1/namespaces/x/finalize", "", "update", "", "x", "namespaces", "x", "finalize"),
            ("POST", "/api/v1/namespaces/x/pods/p/eviction", "", "create", "", "x", "pods", "p", "eviction"),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/x/deployments",
                "",
                "deletecollection",
                "apps",
                "x",
                "deployments",
                "",
                "",
            ),
            ("GET", "/api/v1/watch/namespaces/x/pods", "", "watch", "", "x", "pods", "", ""),
            ("GET", "/api/v1/pods", "fieldSelector=metadata.name%3Da", "list", "", "", "pods", "a", ""),
        ];
        for (method, path, query, verb, group, namespace, resource, name, sub) in cases {
            let query: Vec<(String, String)> =
                form_urlencoded::parse(query.as_bytes()).into_owned().collect();
            let info = RequestInfo::parse(&method.parse().expect("method"), path, &query);
            assert_eq!(
                (info.verb.as_str(), info.group.as_str(), info.namespace.as_str()),
                (verb, group, namespace),
                "{method} {path}"
            );
            assert_eq!(
                (info.resource.as_str(), info.name.as_str(), info.subresource.as_str()),
                (resource, name, sub),
                "{method} {path}"
            );
        }
    }

    fn info(method: &str, path: &str) -> RequestInfo {
        RequestInfo::parse(&method.parse().expect("method"), path, &[])
    }

    #[test]
    fn the_prefix_of_watches_leads_to_watches_only() {
        let subresources = [
            "exec",
            "attach",
            "portforward",
            "proxy",
            "log",
            "status",
            "scale",
            "eviction",
            "token",
            "binding",
        ];
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            for sub in subresources {
                let plain = info(method, &format!("/api/v1/namespaces/n/pods/p/{sub}"));
                assert_eq!((plain.route_error, plain.verb), (None, verb_of(&plain_method(method))));
                for path in [
                    format!("/api/v1/watch/namespaces/n/pods/p/{sub}"),
                    format!("/api/v1/watch/nodes/p/{sub}"),
                ] {
                    assert_eq!(info(method, &path).route_error, Some(RouteError::Path), "{method} {path}");
                }
            }
            let expected = (method != "GET").then_some(RouteError::Method);
            for path in ["pods", "namespaces/n/pods", "namespaces/n/pods/p", "namespaces/n"] {
                assert_eq!(
                    info(method, &format!("/api/v1/watch/{path}")).route_error,
                    expected,
                    "{method} {path}"
                );
            }
        }
    }

    fn plain_method(method: &str) -> Method {
        method.parse().expect("method")
    }

    #[test]
    fn parts_of_a_path_are_decoded_once_and_none_stands_for_another_path() {
        let read = |path: &str| {
            let info = info("GET", path);
            assert_eq!(info.route_error, None, "{path}");
            [info.namespace, info.resource, info.name, info.subresource, info.rest]
        };
        assert_eq!(read("/%61pi/v1/namespaces/%6e/%70ods/a%3ab/%6cog"), ["n", "pods", "a:b", "log", ""]);
        assert_eq!(read("/api/v1/namespaces/n/%73tatus"), ["n", "namespaces", "n", "status", ""]);
        assert_eq!(read("/api/v1/namespaces/n/pods/p/"), ["n", "pods", "p", "", ""]);
        assert_eq!(
            read("/api/v1/namespaces/n/pods/p/proxy/a%2f../b/"),
            ["n", "pods", "p", "proxy", "a%2f../b/"]
        );
        for path in [
            "//api/v1/pods",
            "/api//v1/pods",
            "/apis//v1/pods",
            "/api/v1//pods",
            "/api/v1/namespaces//pods",
            "/api/v1/namespaces/n/pods//log",
            "/api/v1/namespaces/n//p",
        ] {
            assert_eq!(info("GET", path).route_error, Some(RouteError::Path), "{path}");
        }
        for path in [
            "/api/v1/namespaces/../pods",
            "/api/v1/namespaces/%2e%2e/pods",
            "/api/v1/namespaces/n/configmaps/..%2fsecrets%2fx",
            "/api/v1/namespaces/n%2fsecrets/x",
            "/api/v1/namespaces/n/configmaps/../secrets",
            "/api/v1/namespaces/n/configmaps/%2e/x",
            "/api/v1/namespaces/n/configmaps/a%2500b",
            "/api/v1/namespaces/n/configmaps/a%00b",
            "/api/v1/namespaces/n/configmaps/%ff",
            "/apis/apps%2fv1/v1/deployments",
        ] {
            assert!(matches!(info("GET", path).route_error, Some(RouteError::Segment(..))), "{path}");
        }
        assert!(info("GET", "/api/v1/namespaces/n/pods").in_namespace);
        assert!(info("GET", "/api/v1/namespaces/n/namespaces/n").in_namespace);
        assert!(!info("GET", "/api/v1/namespaces/n").in_namespace);
        assert!(!info("GET", "/api/v1/watch/namespaces/n").in_namespace);
    }

    #[test]
    fn a_name_is_selected_as_the_list_reads_it() {
        let name = |terms: &[&str]| {
            let query: Vec<_> =
                terms.iter().map(|term| ("fieldSelector".to_owned(), (*term).to_owned())).collect();
            RequestInfo::parse(&Method::GET, "/api/v1/namespaces/x/secrets", &query).name
        };
        assert_eq!(name(&["type=a,metadata.name==b"]), "b");
        assert_eq!(name(&["metadata.name=b", ""]), "b", "the first counts");
        for terms in [
            &["", "metadata.name=b"][..],
            &["metadata.name!=b"],
            &["type!=a\\,metadata.name=b"],
            &["type!=a\\,metadata.name\\=b"],
        ] {
            assert_eq!(name(terms), "", "{terms:?}");
        }
    }

    #[test]
    fn paths_that_are_no_resource_keep_the_method() {
        for path in ["/healthz", "/api", "/apis", "/apis/apps", "/apis/apps/v1", "/api/v1", "/openapi/v2"] {
            let info = RequestInfo::parse(&Method::GET, path, &[]);
            assert!(!info.is_resource, "{path}");
            assert_eq!(info.verb, Verb::Get);
        }
    }
}
