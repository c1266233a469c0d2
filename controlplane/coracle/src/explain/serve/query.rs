//! Parameters of questions.

use crate::explain::authorize::group_and_plural;
use coracle_kinds::registry::index::Registry;
use coracle_proto::status::{ApiError, qualified};
use coracle_proto::time::{parse_duration, parse_time};
use coracle_timeline::{ObjectKey, Question};
use coracle_trace::{TraceId, Uid};
use std::time::{SystemTime, UNIX_EPOCH};

/// Trees of one answer.
const MOST_TREES: usize = 100;
/// Roots of a list, and how many there are if nothing is said.
const MOST_ROOTS: usize = 500;
const ROOTS: usize = 50;

/// `GET /coracle/v1/trace`.
#[derive(Debug, Clone)]
pub(super) struct TraceQuery {
    /// What is asked.
    pub(super) question: Question,
    /// Trees that were asked for; 0: one, without a list around it.
    pub(super) last: usize,
    /// Whether the answer goes on.
    pub(super) follow: bool,
    /// Whether spans say how long they usually take.
    pub(super) compare: bool,
    /// Whether the resource is one that the server has.
    pub(super) known: bool,
}

/// `GET /coracle/v1/traces`.
#[derive(Debug, Clone)]
pub(super) struct RootsQuery {
    /// Only objects of this namespace, unless it is empty.
    pub(super) namespace: String,
    /// Unix time in nanoseconds.
    pub(super) since: u64,
    /// How many.
    pub(super) limit: usize,
}

type Parameters = [(String, String)];

fn value<'a>(query: &'a Parameters, name: &str) -> Option<&'a str> {
    query
        .iter()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.as_str())
        .filter(|value| !value.is_empty())
}

fn wrong(name: &str, value: &str, wanted: &str) -> ApiError {
    ApiError::bad_request(format!("parameter {name}: {value:?} is not {wanted}"))
}

fn flag(query: &Parameters, name: &str) -> Result<bool, ApiError> {
    match value(query, name) {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(other) => Err(wrong(name, other, "true or false")),
    }
}

fn number(query: &Parameters, name: &str) -> Result<Option<usize>, ApiError> {
    let parse = |text: &str| text.parse().map_err(|_| wrong(name, text, "a number"));
    value(query, name).map(parse).transpose()
}

/// A time (RFC 3339) or how long ago (`10m`), in nanoseconds of unix time.
fn since(query: &Parameters) -> Result<Option<u64>, ApiError> {
    let Some(text) = value(query, "since") else { return Ok(None) };
    if let Some(time) = parse_time(text) {
        return Ok(Some(time.as_nanosecond().try_into().unwrap_or(0)));
    }
    let ago = parse_duration(text).ok().and_then(|nanos| u64::try_from(nanos).ok());
    let ago = ago.ok_or_else(|| wrong("since", text, "a time or a duration such as 10m"))?;
    Ok(Some(now().saturating_sub(ago)))
}

/// Unix time in nanoseconds.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

impl TraceQuery {
    pub(super) fn read(query: &Parameters, registry: &Registry) -> Result<Self, ApiError> {
        let trace = match value(query, "trace") {
            Some(text) => {
                Some(TraceId::parse(text).ok_or_else(|| wrong("trace", text, "32 hexadecimal digits"))?)
            }
            None => None,
        };
        let uid = value(query, "uid").map(Uid::of);
        let named = match (value(query, "resource"), value(query, "name")) {
            (Some(resource), Some(name)) => {
                Some(object(resource, value(query, "namespace").unwrap_or_default(), name, registry))
            }
            (None, None) => None,
            _ => return Err(ApiError::bad_request("parameters resource and name must be given together")),
        };
        let known = named.as_ref().is_none_or(|(_, known)| *known);
        let object = named.map(|(object, _)| object);
        match [object.is_some(), uid.is_some(), trace.is_some()].into_iter().filter(|given| *given).count() {
            0 => {
                let why = "parameters resource and name, uid, or trace must be given";
                return Err(ApiError::bad_request(why));
            }
            1 => {}
            _ => return Err(ApiError::bad_request("only one of an object, uid and trace can be asked for")),
        }
        let last = number(query, "last")?.unwrap_or(0).min(MOST_TREES);
        let question = Question { object, uid, trace, since: since(query)?, last: last.max(1), most: 0 };
        let (follow, compare) = (flag(query, "follow")?, flag(query, "compare")?);
        Ok(Self { question, last, follow, compare, known })
    }
}

/// The object that is meant: a resource without its group is found, and the namespace is dropped where there is none. Second: whether
/// the server has the resource.
fn object(resource: &str, namespace: &str, name: &str, registry: &Registry) -> (ObjectKey, bool) {
    let (group, plural) = group_and_plural(resource);
    let exact = registry.preferred(group, plural);
    let kind = exact.or_else(|| {
        let of_name = registry.rows_of(plural).into_iter().next().filter(|_| group.is_empty())?;
        registry.preferred(&of_name.group, plural)
    });
    let namespaced = kind.as_ref().is_none_or(|kind| kind.namespaced());
    let key = ObjectKey {
        resource: kind
            .as_ref()
            .map_or_else(|| resource.to_owned(), |kind| qualified(&kind.group, &kind.plural)),
        namespace: if namespaced { namespace.to_owned() } else { String::new() },
        name: name.to_owned(),
    };
    (key, kind.is_some())
}

impl RootsQuery {
    pub(super) fn read(query: &Parameters) -> Result<Self, ApiError> {
        Ok(Self {
            namespace: value(query, "namespace").unwrap_or_default().to_owned(),
            since: since(query)?.unwrap_or(0),
            limit: number(query, "limit")?.unwrap_or(ROOTS).clamp(1, MOST_ROOTS),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(query: &[(&str, &str)]) -> Result<TraceQuery, ApiError> {
        let query: Vec<(String, String)> =
            query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        TraceQuery::read(&query, &Registry::builtin())
    }

    #[test]
    fn resources_are_found_with_and_without_their_group() {
        for resource in ["deployments", "deployments.apps"] {
            let query = read(&[("resource", resource), ("namespace", "a"), ("name", "web")]).unwrap();
            let key = query.question.object.unwrap();
            assert_eq!((key.resource.as_str(), key.namespace.as_str()), ("deployments.apps", "a"));
            assert!(query.known && query.last == 0 && query.question.last == 1);
        }
        let node = read(&[("resource", "nodes"), ("namespace", "a"), ("name", "n")]).unwrap();
        assert_eq!(node.question.object.unwrap().namespace, "");
        let other = read(&[("resource", "boats.example.com"), ("name", "n")]).unwrap();
        assert!(!other.known);
    }

    #[test]
    fn bad_questions_are_refused() {
        for query in [
            &[][..],
            &[("name", "web")],
            &[("trace", "xyz")],
            &[("uid", "u"), ("resource", "pods"), ("name", "web")],
            &[("uid", "u"), ("since", "yesterday")],
            &[("uid", "u"), ("last", "-1")],
            &[("uid", "u"), ("follow", "maybe")],
        ] {
            assert_eq!(read(query).unwrap_err().code, 400, "{query:?}");
        }
        let ago = read(&[("uid", "u"), ("since", "10m")]).unwrap().question.since.unwrap();
        assert!(now() - ago >= 600_000_000_000);
        let at = read(&[("uid", "u"), ("since", "1970-01-01T00:00:01Z")]).unwrap().question.since;
        assert_eq!(at, Some(1_000_000_000));
    }
}
