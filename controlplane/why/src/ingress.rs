//! Ingresses: class, backends, certificates.

use crate::certificates;
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::kinds::Resource;
use crate::trouble::Trouble;
use crate::world::{Found, World};
use coracle_cli::closest::suggestion;
use coracle_fields::View;
use coracle_fields::core::v1::{Secret, Service};
use coracle_fields::networking::v1::{Ingress, IngressBackend, IngressClass};

/// What is wrong with an Ingress and with the Services behind it.
pub fn explain(world: &World, ingress: View<'_, Ingress>, trail: &[ObjectRef]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = class(world, ingress).into_iter().collect();
    let paths = ingress.spec().rules().items().flat_map(|rule| rule.http().paths().items());
    let backends = paths.map(|path| path.backend()).chain([ingress.spec().default_backend()]);
    let mut seen = Vec::new();
    for backend in backends.filter(|backend| backend.service().is_set()) {
        let name = backend.service().name().text();
        if let Some(finding) = missing(world, ingress, backend) {
            findings.push(finding);
        } else if !seen.contains(&name) {
            let target = ObjectRef::new::<Service>(ingress.metadata().namespace().text(), name);
            findings.extend(follow(world, trail, target));
        }
        seen.push(name);
    }
    for tls in ingress.spec().tls().items() {
        findings.extend(secret(world, ingress, tls.secret_name().text()));
    }
    findings
}

fn begun(ingress: View<'_, Ingress>, trouble: Trouble, cause: String) -> Finding {
    Finding::new(ObjectRef::to(ingress), trouble, cause).since(ingress.metadata().creation_timestamp().text())
}

fn class(world: &World, ingress: View<'_, Ingress>) -> Option<Finding> {
    let classes = world.list::<IngressClass>(None);
    if !classes.complete {
        return None;
    }
    let names: Vec<&str> = classes.items.iter().map(|class| class.metadata().name().text()).collect();
    let old = ingress.metadata().annotations().key("kubernetes.io/ingress.class").filled();
    let remedy = "set spec.ingressClassName to a class of the cluster: kubectl get ingressclass";
    match ingress.spec().ingress_class_name().filled() {
        Some(name) if !names.contains(&name) => {
            let hint = suggestion(name, names.iter().copied());
            let cause = format!("the ingress class {name} does not exist{hint}");
            let finding = begun(ingress, Trouble::IngressClassMissing, cause);
            Some(finding.evidence("field spec.ingressClassName", name).remedy(remedy))
        }
        None if old.is_none() && ingress.status().load_balancer().ingress().is_empty() => {
            let default = "ingressclass.kubernetes.io/is-default-class";
            let has = classes.items.iter().any(|class| class.metadata().annotations().key(default) == "true");
            let cause = "the Ingress has no class, and there is no default class: no controller serves it";
            (!has).then(|| {
                begun(ingress, Trouble::IngressClassMissing, cause.to_owned())
                    .evidence(
                        "ingress classes",
                        if names.is_empty() { "none".to_owned() } else { names.join(", ") },
                    )
                    .remedy(remedy)
            })
        }
        _ => None,
    }
}

/// A Service, or a port of it, that does not exist.
fn missing(world: &World, ingress: View<'_, Ingress>, backend: View<'_, IngressBackend>) -> Option<Finding> {
    let namespace = ingress.metadata().namespace().text();
    let name = backend.service().name().text();
    let service = match world.get::<Service>(namespace, name) {
        Found::Yes(service) => service,
        Found::No => {
            let hint = suggestion(name, world.names(&Resource::of::<Service>(), namespace));
            let cause = format!("the Service {name} does not exist{hint}");
            let finding = begun(ingress, Trouble::IngressServiceMissing, cause)
                .evidence("backend in spec", format!("service.name: {name}"));
            return Some(
                finding.remedy(format!("create the Service {name}, or correct the backend in spec.rules")),
            );
        }
        Found::Unknown => return None,
    };
    let wanted = backend.service().port();
    let (number, port) = (wanted.number().int().filter(|number| *number > 0), wanted.name().text());
    let fits = service.spec().ports().items().any(|each| match number {
        Some(number) => each.port() == number,
        None => each.name() == port,
    });
    let shown = number.map_or_else(|| port.to_owned(), |number| number.to_string());
    let has = service
        .spec()
        .ports()
        .items()
        .map(|port| port.port().or(0).to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let cause = format!("the Service {name} has no port {shown}, only {has}");
    (!fits).then(|| {
        begun(ingress, Trouble::IngressPortMissing, cause)
            .evidence("ports of the Service", has)
            .remedy("correct the backend's port in spec.rules")
    })
}

fn secret(world: &World, ingress: View<'_, Ingress>, name: &str) -> Option<Finding> {
    let namespace = ingress.metadata().namespace().text();
    if name.is_empty() {
        return None;
    }
    match world.get::<Secret>(namespace, name) {
        Found::No => {
            let hint = suggestion(name, world.names(&Resource::of::<Secret>(), namespace));
            let cause = format!("the TLS Secret {name} does not exist{hint}");
            let finding = begun(ingress, Trouble::IngressSecretMissing, cause)
                .evidence("field spec.tls", format!("secretName: {name}"));
            Some(finding.remedy(format!("kubectl create secret tls {name} -n {namespace} --cert=… --key=…")))
        }
        Found::Yes(secret) => certificates::of_secret(world, secret, ObjectRef::to(ingress)),
        Found::Unknown => None,
    }
}
