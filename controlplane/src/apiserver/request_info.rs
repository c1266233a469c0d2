//! What a URL and a method mean: the verb, the resource, the namespace and the name.

use coracle_proto::selector::FieldSelector;
use http::Method;

/// A request as authorization, audit and routing see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`, or for paths that
    /// are no resource the HTTP method in lower case.
    pub verb: String,
    /// Whether the path names a resource.
    pub is_resource: bool,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, empty when the path has none.
    pub namespace: String,
    /// Resource, such as `pods`.
    pub resource: String,
    /// Subresource, such as `status`.
    pub subresource: String,
    /// Object name.
    pub name: String,
    /// What follows the subresource (proxy paths), without a leading slash.
    pub rest: String,
    /// The whole path.
    pub path: String,
    /// Terms of the field selector that ask for one value: field and value.
    pub selected: Vec<(String, String)>,
}

impl RequestInfo {
    /// Reads method and URI; `query` is consulted for `watch` and `fieldSelector=metadata.name=`.
    pub fn parse(method: &Method, path: &str, query: &[(String, String)]) -> Self {
        let mut info =
            Self { verb: method.as_str().to_ascii_lowercase(), path: path.to_owned(), ..Self::default() };
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').filter(|s| !s.is_empty()).collect();
        let mut rest = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                info.version = (*version).into();
                rest
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                info.group = (*group).into();
                info.version = (*version).into();
                rest
            }
            _ => return info,
        };
        info.is_resource = true;
        info.verb = verb_of(method).into();
        if rest[0] == "watch" && rest.len() > 1 {
            // The old form /api/v1/watch/…, still in use by some clients.
            info.verb = "watch".into();
            rest = &rest[1..];
        }
        if rest[0] == "namespaces" {
            if rest.len() > 2 && !matches!(rest[2], "status" | "finalize") {
                info.namespace = rest[1].into();
                rest = &rest[2..];
            } else if rest.len() > 1 {
                info.namespace = rest[1].into();
            }
        }
        let at = |i: usize| rest.get(i).map(|s| decoded(s)).unwrap_or_default();
        info.resource = at(0);
        info.name = at(1);
        info.subresource = at(2);
        if rest.len() > 3 {
            info.rest = rest[3..].join("/");
            if path.ends_with('/') {
                info.rest.push('/');
            }
        }
        info.refine(query);
        info
    }

    fn refine(&mut self, query: &[(String, String)]) {
        let watching = query.iter().any(|(k, v)| k == "watch" && matches!(v.as_str(), "true" | "1" | ""));
        if self.verb == "get" && self.name.is_empty() {
            self.verb = if watching { "watch" } else { "list" }.into();
        }
        if self.verb == "delete" && self.name.is_empty() {
            self.verb = "deletecollection".into();
        }
        if matches!(self.verb.as_str(), "list" | "watch" | "deletecollection") && self.name.is_empty() {
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
        self.verb == "watch"
            || matches!(self.subresource.as_str(), "exec" | "attach" | "portforward" | "proxy")
            || (self.subresource == "log")
    }
}

fn decoded(segment: &str) -> String {
    percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

fn verb_of(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::GET | Method::HEAD => "get",
        // No verb: nobody may do it, but a proxied server may be asked.
        _ => "",
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
            assert_eq!(info.verb, "get");
        }
    }
}
