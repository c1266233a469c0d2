//! Parts of a request: the query, and the container that its path names.

use http::Request;

/// Namespace, pod and container.
pub type ContainerPath<'a> = (&'a str, &'a str, &'a str);

/// Pairs of a request's query.
pub fn query<B>(request: &Request<B>) -> Vec<(String, String)> {
    form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).into_owned().collect()
}

/// The first value of a key.
pub fn first<'a>(query: &'a [(String, String)], key: &str) -> Option<&'a str> {
    query.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
}
