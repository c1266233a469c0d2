//! What the user asks for: objects, and connections.

use crate::cluster::{Answer, Need};
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::kinds::{Resource, built_in};
use crate::network::connection::{Connection, Target};
use crate::refusal::{self, LastWrite};
use crate::world::World;
use coracle_cli::closest::closest;
use coracle_fields::core::v1::{Namespace, Pod};
use std::net::IpAddr;

/// Why an object cannot be explained.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The arguments.
    #[error("{0}")]
    Usage(String),
    /// The server has no such kind.
    #[error("the server has no kind {kind}{}", hint(similar))]
    UnknownKind {
        /// As it was given.
        kind: String,
        /// A kind that exists.
        similar: Option<String>,
    },
    /// There is no such object.
    #[error("{} does not exist{}{}", object.described(), hint(similar), past.as_deref().unwrap_or_default())]
    Missing {
        /// What was asked for.
        object: Box<ObjectRef>,
        /// A name that exists.
        similar: Option<String>,
        /// What refused or ended it, when that is known.
        past: Option<String>,
    },
    /// There is no such namespace.
    #[error("{} does not exist: there is no namespace {}{}", object, object.namespace, hint(similar))]
    NamespaceMissing {
        /// What was asked for.
        object: Box<ObjectRef>,
        /// A namespace that exists.
        similar: Option<String>,
    },
    /// The object could not be read.
    #[error("cannot read {}: {why}", object.described())]
    Unreadable {
        /// What was asked for.
        object: Box<ObjectRef>,
        /// The server's message.
        why: String,
    },
}

fn hint(similar: &Option<String>) -> String {
    similar.as_ref().map_or_else(String::new, |name| format!("; the closest that exists is {name}"))
}

/// What is known of an object that does not exist: the server refused it, or it was there, and what ended it.
fn past(world: &World, resource: &Resource, object: &ObjectRef) -> Option<String> {
    // Asked at the same time as the events.
    let last = refusal::last_write(world, resource, object);
    let all = world.events(object);
    let stored = match last {
        Some(LastWrite::NotStored(text)) => return Some(text),
        Some(LastWrite::Stored(text)) => Some(text),
        None => None,
    };
    let Some(preempted) = events::last(&all, &["Preempted"], |_| true) else {
        let by_events = || "; there are events of an object with that name: it was deleted".to_owned();
        return stored.or_else(|| (!all.is_empty()).then(by_events));
    };
    let message = preempted.message().text();
    let pods = world.list::<Pod>(None).items;
    // Schedulers name the other pod by its uid.
    let other = pods.iter().find(|pod| {
        let uid = pod.metadata().uid().text();
        !uid.is_empty() && message.contains(uid)
    });
    let at = events::last_seen(preempted);
    Some(match other {
        Some(pod) => format!("; it was preempted by {} at {at}", ObjectRef::to(*pod).described()),
        None => format!("; it was preempted at {at}: {message}"),
    })
}

/// Kinds and names from `KIND/NAME…` or `KIND NAME…`.
pub fn parse(words: &[String]) -> Result<Vec<(String, String)>, Problem> {
    let wrong = |text: &str| Problem::Usage(format!("{text}: want KIND/NAME or KIND NAME, such as pod/web"));
    let pairs: Vec<(String, String)> = match words {
        [kind, names @ ..] if !kind.contains('/') => {
            if names.is_empty() {
                return Err(wrong(&format!("{kind} has no name")));
            }
            names.iter().map(|name| (kind.clone(), name.clone())).collect()
        }
        _ => {
            let split = words.iter().map(|word| {
                let pair = word.split_once('/').map(|(kind, name)| (kind.to_owned(), name.to_owned()));
                pair.ok_or_else(|| wrong(&format!("{word:?} is no object")))
            });
            split.collect::<Result<_, _>>()?
        }
    };
    match pairs.iter().find(|(kind, name)| kind.is_empty() || !is_name(name)) {
        Some((kind, name)) => Err(wrong(&format!("{kind}/{name} is no object"))),
        None => Ok(pairs),
    }
}

/// Whether a text can be the name of an object; others would change the path of a request.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:@".contains(c);
    !name.is_empty() && name.len() <= 253 && !matches!(name, "." | "..") && name.chars().all(allowed)
}

/// The resources of the server beside the built-in ones.
pub(crate) fn others(world: &World) -> &[Resource] {
    match world.ask(Need::Resources) {
        Some(Answer::Resources(all)) => all,
        _ => Default::default(),
    }
}

/// The resource that an object is of.
pub fn resource_of(world: &World, object: &ObjectRef) -> Option<Resource> {
    let same =
        |resource: &Resource| resource.api_version == object.api_version && resource.kind == object.kind;
    built_in().find(same).or_else(|| others(world).iter().find(|resource| same(resource)).cloned())
}

/// The resource that a user means.
fn resource(world: &World, kind: &str) -> Result<Resource, Problem> {
    if let Some(resource) = built_in().find(|resource| resource.is_called(kind)) {
        return Ok(resource);
    }
    let all = others(world);
    if let Some(resource) = all.iter().find(|resource| resource.is_called(kind)) {
        return Ok(resource.clone());
    }
    let known = built_in().chain(all.iter().cloned()).map(|resource| resource.kind);
    Err(unknown_kind(kind, known))
}

/// That a server has no kind of a name, beside the kinds that it has.
pub fn unknown_kind(name: &str, known: impl Iterator<Item = String>) -> Problem {
    let known: Vec<String> = known.map(|kind| kind.to_lowercase()).collect();
    let similar = closest(&name.to_lowercase(), known.iter().map(String::as_str)).map(str::to_owned);
    Problem::UnknownKind { kind: name.to_owned(), similar }
}

/// Finds an object; the answer counts when nothing is asked any more.
pub fn find(world: &World, namespace: &str, kind: &str, name: &str) -> Result<ObjectRef, Problem> {
    let resource = resource(world, kind)?;
    let namespace = if resource.namespaced { namespace } else { "" };
    let object = ObjectRef {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    match world.object(&resource, namespace, name) {
        Some(Answer::Object(_)) | None => Ok(object),
        Some(Answer::Absent) => Err(missing(world, &resource, object)),
        Some(Answer::Refused(why) | Answer::Failed(why)) => {
            Err(Problem::Unreadable { object: Box::new(object), why: why.clone() })
        }
        Some(_) => Err(Problem::Unreadable { object: Box::new(object), why: "unexpected answer".to_owned() }),
    }
}

/// Why an object does not exist: there is no such namespace, or the name is another one, or it was deleted.
fn missing(world: &World, resource: &Resource, object: ObjectRef) -> Problem {
    let namespace = object.namespace.as_str();
    if resource.namespaced && world.get::<Namespace>("", namespace).is_missing() {
        let names = world.names(&Resource::of::<Namespace>(), "");
        let similar = closest(namespace, names).map(str::to_owned);
        return Problem::NamespaceMissing { object: Box::new(object), similar };
    }
    let similar = closest(&object.name, world.names(resource, namespace)).map(str::to_owned);
    let past = past(world, resource, &object);
    Problem::Missing { object: Box::new(object), similar, past }
}

/// The causes of an object's trouble.
pub fn explain(
    world: &World,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<(ObjectRef, Vec<Finding>), Problem> {
    let object = find(world, namespace, kind, name)?;
    let findings = follow(world, &[], object.clone());
    Ok((object, findings))
}

/// Host and port of `host:port`, `host`, `[::1]:80` or an address.
fn split_port(text: &str) -> Result<(&str, Option<i64>), Problem> {
    let bare = text.parse::<IpAddr>().is_ok();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !bare => (host, Some(port)),
        _ => (text, None),
    };
    let number = port.map(|port| port.parse::<u16>().map(i64::from)).transpose();
    let number =
        number.map_err(|_| Problem::Usage(format!("{text}: {} is no port", port.unwrap_or_default())))?;
    Ok((host.trim_start_matches('[').trim_end_matches(']'), number))
}

/// A pod that is written as `NAME` or `NAME.NAMESPACE`. Names may have dots, too, namespaces have none.
pub fn find_pod(world: &World, namespace: &str, name: &str) -> Result<ObjectRef, Problem> {
    match (find(world, namespace, "pod", name), name.rsplit_once('.')) {
        (
            Err(Problem::Missing { .. } | Problem::NamespaceMissing { .. } | Problem::Unreadable { .. }),
            Some((name, namespace)),
        ) => find(world, namespace, "pod", name),
        (found, _) => found,
    }
}

fn is_kind(word: &str) -> bool {
    built_in().any(|resource| resource.is_called(word))
}

/// Namespace, kind and name of `NAME`, `KIND/NAME`, `NAMESPACE/KIND/NAME`.
fn split_kind(text: &str) -> (Option<&str>, &str, &str) {
    match text.split_once('/') {
        None => (None, "", text),
        Some((namespace, rest)) if !is_kind(namespace) => match rest.split_once('/') {
            Some((kind, name)) if is_kind(kind) => (Some(namespace), kind, name),
            _ => (None, namespace, rest),
        },
        Some((kind, name)) => (None, kind, name),
    }
}

/// Namespace and name of the pod of `--from`, which may also be `NAMESPACE/NAME`.
fn source<'a>(own: &'a str, from: &'a str) -> Result<(&'a str, &'a str), Problem> {
    let (namespace, name) = match split_kind(from) {
        _ if from.starts_with('/') => ("", ""),
        (namespace, "" | "pod" | "pods" | "po", name) => (namespace.unwrap_or(own), name),
        (None, namespace, name) if !is_kind(namespace) => (namespace, name),
        _ => ("", ""),
    };
    if is_name(name) && is_name(namespace) {
        return Ok((namespace, name));
    }
    Err(Problem::Usage(format!("--from {from}: want a pod, such as pod/web, pod/web.shop or shop/pod/web")))
}

/// A connection from `--from` and `--to`.
pub fn connection(namespace: &str, from: &str, to: &str, protocol: &str) -> Result<Connection, Problem> {
    let from = source(namespace, from)?;
    let plain = to.split_once("://").map_or(to, |(_, rest)| rest);
    // `shop.example:80/path` has a slash, too.
    let path = plain.split_once('/').filter(|(host, _)| host.contains(['.', ':']));
    let (other, kind, rest) = path.map_or_else(|| split_kind(plain), |(host, _)| (None, "", host));
    let (namespace, rest) = (other.unwrap_or(namespace), rest.trim_end_matches('/'));
    if !is_name(namespace) {
        return Err(Problem::Usage(format!("--to {to}: {namespace:?} is no namespace")));
    }
    let (host, port) = split_port(rest)?;
    if !is_name(host) {
        return Err(Problem::Usage(format!("--to {to}: {host:?} is neither a name nor an address")));
    }
    let (first, second) = host.split_once('.').unwrap_or((host, namespace));
    let target = match kind {
        "service" | "services" | "svc" => Target::Service(second.to_owned(), first.to_owned()),
        "pod" | "pods" | "po" => Target::Pod(namespace.to_owned(), host.to_owned()),
        "" => host.parse::<IpAddr>().map_or_else(|_| Target::Name(host.to_owned()), Target::Address),
        other => return Err(Problem::Usage(format!("--to {to}: {other} is neither service nor pod"))),
    };
    let protocol = protocol.to_uppercase();
    if !matches!(protocol.as_str(), "TCP" | "UDP" | "SCTP") {
        return Err(Problem::Usage(format!("--protocol {protocol}: want TCP, UDP or SCTP")));
    }
    Ok(Connection { from: (from.0.to_owned(), from.1.to_owned()), to: target, port, protocol })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn objects_as_kubectl_takes_them() {
        let pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        assert_eq!(parse(&words("pod/a")).unwrap(), [pair("pod", "a")]);
        assert_eq!(parse(&words("pod a b")).unwrap(), [pair("pod", "a"), pair("pod", "b")]);
        assert_eq!(parse(&words("svc/a deploy/b")).unwrap(), [pair("svc", "a"), pair("deploy", "b")]);
        for bad in ["pod", "pod/", "/a", "pod/../x", "pod/a?b", "pod/a b"] {
            assert!(matches!(parse(&words(bad)), Err(Problem::Usage(_))), "{bad}");
        }
    }

    #[test]
    fn sources() {
        let from = |text: &str| connection("own", text, "b", "tcp").map(|found| found.from);
        let pod = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        for (text, expected) in [
            ("a", pod("own", "a")),
            ("pod/a", pod("own", "a")),
            ("pod/a.shop", pod("own", "a.shop")),
            ("shop/pod/a", pod("shop", "a")),
            ("shop/a", pod("shop", "a")),
        ] {
            assert_eq!(from(text).unwrap(), expected, "{text}");
        }
        for bad in ["service/a", "deploy/a", "shop/service/a", "shop/pod/a/b", "shop/", "/a", "../a"] {
            assert!(from(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn destinations() {
        let to = |text: &str| connection("own", "pod/a", text, "tcp").map(|found| (found.to, found.port));
        let service = |namespace: &str, name: &str| Target::Service(namespace.to_owned(), name.to_owned());
        assert_eq!(to("service/b:80").unwrap(), (service("own", "b"), Some(80)));
        assert_eq!(to("svc/b.shop").unwrap(), (service("shop", "b"), None));
        assert_eq!(to("pod/b:8080").unwrap(), (Target::Pod("own".to_owned(), "b".to_owned()), Some(8080)));
        assert_eq!(to("http://b.shop.svc:80/x").unwrap(), (Target::Name("b.shop.svc".to_owned()), Some(80)));
        assert_eq!(to("10.0.0.1:443").unwrap(), (Target::Address("10.0.0.1".parse().unwrap()), Some(443)));
        assert_eq!(to("[fd00::1]:443").unwrap(), (Target::Address("fd00::1".parse().unwrap()), Some(443)));
        assert_eq!(to("b").unwrap(), (Target::Name("b".to_owned()), None));
        assert_eq!(to("shop/service/b:80").unwrap(), (service("shop", "b"), Some(80)));
        assert_eq!(to("shop/pod/b").unwrap(), (Target::Pod("shop".to_owned(), "b".to_owned()), None));
        for bad in ["node/b:80", "service/b:http", "b:99999", "service/b c"] {
            assert!(to(bad).is_err(), "{bad}");
        }
        assert!(
            connection("own", "service/a", "b", "TCP").is_err() && connection("own", "a", "b", "x").is_err()
        );
    }
}
