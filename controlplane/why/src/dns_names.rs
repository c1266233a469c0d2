//! Names of Services in the cluster's DNS.

use crate::world::{Found, World};
use coracle_cli::closest::closest;
use coracle_fields::View;
use coracle_fields::core::v1::{Namespace, Service};

/// What a name stands for.
pub enum Name<'a> {
    /// A Service.
    Service(View<'a, Service>),
    /// A name of the cluster that does not exist: the reason, and what was probably meant.
    Unknown(String, Option<String>),
    /// Not a name of the cluster, or not known.
    Other,
}

/// Service and namespace of a name, and whether it can only be one of the cluster.
fn parts<'a>(name: &'a str, own: &'a str) -> Option<(&'a str, &'a str, bool)> {
    let labels: Vec<&str> = name.trim_end_matches('.').split('.').collect();
    let at = labels.iter().position(|label| *label == "svc");
    match (at, labels.as_slice()) {
        // The names of single pods have more labels before the Service.
        (Some(at), _) if at >= 2 => Some((labels[at - 2], labels[at - 1], true)),
        (None, [service]) => Some((*service, own, true)),
        (None, [service, namespace]) => Some((*service, *namespace, false)),
        _ => None,
    }
}

/// Finds a name as a pod in the namespace `own` would.
pub fn resolve<'a>(world: &'a World, own: &str, name: &str) -> Name<'a> {
    let Some((service, namespace, certain)) = parts(name, own) else { return Name::Other };
    match world.get::<Service>(namespace, service) {
        Found::Yes(service) => Name::Service(service),
        Found::Unknown => Name::Other,
        Found::No => match world.get::<Namespace>("", namespace) {
            Found::Yes(_) => unknown_service(world, service, namespace),
            Found::No => unknown_namespace(world, service, namespace, certain),
            // Those who may read the namespace's Services need not be able to read the namespace.
            Found::Unknown if certain => unknown_service(world, service, namespace),
            Found::Unknown => Name::Other,
        },
    }
}

fn unknown_service<'a>(world: &'a World, service: &str, namespace: &str) -> Name<'a> {
    let here = world.list::<Service>(Some(namespace)).items;
    let similar = closest(service, here.iter().map(|service| service.metadata().name().text()));
    let all = world.list::<Service>(None).items;
    let elsewhere = all
        .iter()
        .find(|other| other.metadata().name() == service)
        .map(|other| other.metadata().namespace().text());
    let reason = format!("there is no Service {service} in namespace {namespace}");
    match (similar, elsewhere) {
        (Some(similar), None) => Name::Unknown(
            format!("{reason}; the closest that exists is {similar}"),
            Some(format!("{similar}.{namespace}.svc")),
        ),
        (_, Some(other)) => Name::Unknown(
            format!("{reason}; there is one in namespace {other}"),
            Some(format!("{service}.{other}.svc")),
        ),
        (None, None) => Name::Unknown(reason, None),
    }
}

fn unknown_namespace<'a>(world: &'a World, service: &str, namespace: &str, certain: bool) -> Name<'a> {
    let spaces = world.list::<Namespace>(None).items;
    let similar = closest(namespace, spaces.iter().map(|space| space.metadata().name().text()));
    let exists = similar.filter(|similar| matches!(world.get::<Service>(similar, service), Found::Yes(_)));
    let reason = format!("there is no namespace {namespace}");
    match (exists, certain) {
        (Some(similar), _) => Name::Unknown(
            format!("{reason}; {similar} has a Service {service}"),
            Some(format!("{service}.{similar}.svc")),
        ),
        (None, true) => match similar {
            Some(similar) => Name::Unknown(format!("{reason}; the closest that exists is {similar}"), None),
            None => Name::Unknown(reason, None),
        },
        // Such as example.com.
        (None, false) => Name::Other,
    }
}

/// Why a name of the cluster does not exist, and what was probably meant; nothing when it exists, or is no name of the cluster.
pub fn unknown(world: &World, own: &str, name: &str) -> Option<(String, Option<String>)> {
    match resolve(world, own, name) {
        Name::Unknown(reason, meant) => Some((reason, meant)),
        Name::Service(_) | Name::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn forms_of_names() {
        for (name, expected) in [
            ("web", Some(("web", "own", true))),
            ("web.shop", Some(("web", "shop", false))),
            ("web.shop.svc", Some(("web", "shop", true))),
            ("web.shop.svc.cluster.local.", Some(("web", "shop", true))),
            ("db-0.db.shop.svc.cluster.local", Some(("db", "shop", true))),
            ("www.example.com", None),
            ("svc.cluster.local", None),
        ] {
            assert_eq!(parts(name, "own"), expected, "{name}");
        }
    }
}
