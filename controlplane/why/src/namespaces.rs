//! Namespaces that are being deleted and do not go away.

use crate::deletion;
use crate::finding::{Evidence, Finding, ObjectRef};
use crate::follow::follow;
use crate::kinds::{Resource, built_in};
use crate::target;
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::apiregistration::v1::APIService;
use coracle_fields::core::v1::{Namespace, NamespaceCondition};

/// Objects that hold a namespace and are named.
const NAMED: usize = 5;

fn condition<'a>(namespace: View<'a, Namespace>, name: &str) -> Option<View<'a, NamespaceCondition>> {
    let mut all = namespace.status().conditions().items();
    all.find(|condition| condition.type_() == name && condition.status() == "True")
}

/// Why a namespace is not deleted.
pub fn explain(world: &World, namespace: View<'_, Namespace>, trail: &[ObjectRef]) -> Vec<Finding> {
    let deleted = namespace.metadata().deletion_timestamp();
    if !deleted.is_set() {
        return Vec::new();
    }
    let findings = remains(world, namespace, trail).into_iter();
    findings.map(|finding| deletion::patient(world, finding)).collect()
}

/// What is left of a namespace.
fn remains(world: &World, namespace: View<'_, Namespace>, trail: &[ObjectRef]) -> Vec<Finding> {
    if let Some(failed) = condition(namespace, "NamespaceDeletionDiscoveryFailure") {
        return discovery(world, namespace, failed, trail);
    }
    let finalizers = condition(namespace, "NamespaceFinalizersRemaining");
    let content = condition(namespace, "NamespaceContentRemaining")
        .or_else(|| condition(namespace, "NamespaceDeletionContentFailure"));
    let finding = match (finalizers, content) {
        (Some(found), _) => {
            let cause = format!(
                "objects in the namespace have finalizers that nobody removes: {}",
                found.message().text()
            );
            begun(namespace, Trouble::NamespaceFinalizers, cause)
                .evidence("condition NamespaceFinalizersRemaining", found.message().text())
                .evidence(
                    "condition NamespaceContentRemaining",
                    content.map_or("", |content| content.message().text()),
                )
                .remedy(list_command(namespace))
        }
        (None, Some(found)) => {
            let cause = format!("the namespace still has objects: {}", found.message().text());
            begun(namespace, Trouble::NamespaceContent, cause)
                .evidence(format!("condition {}", found.type_().text()), found.message().text())
                .remedy(list_command(namespace))
        }
        (None, None) => return own_finalizers(namespace).into_iter().collect(),
    };
    vec![held(world, namespace, content.map_or("", |content| content.message().text()), finding)]
}

fn list_command(namespace: View<'_, Namespace>) -> String {
    let name = namespace.metadata().name().text();
    format!(
        "list what remains: kubectl api-resources --verbs=list --namespaced -o name | \
         xargs -n1 kubectl get --ignore-not-found -n {name}"
    )
}

/// Adds the objects that hold a namespace. The message of its content says of which resources some are left, as in
/// `Some resources are remaining: configmaps. has 1 resource instances, widgets.example.com has 2 resource instances`.
fn held(world: &World, namespace: View<'_, Namespace>, message: &str, finding: Finding) -> Finding {
    let counted = message.matches("resource instances").count();
    let remains = |resource: &Resource| {
        resource.namespaced && message.contains(&format!(" {}.{} has ", resource.plural, resource.group()))
    };
    let mut resources: Vec<Resource> = built_in().filter(remains).collect();
    if resources.len() < counted {
        let known = |resource: &Resource| {
            resources.iter().any(|other| other.plural == resource.plural && other.group() == resource.group())
        };
        let others: Vec<Resource> = target::others(world)
            .iter()
            .filter(|resource| remains(resource) && !known(resource))
            .cloned()
            .collect();
        resources.extend(others);
    }
    let name = namespace.metadata().name().text();
    let all: Vec<(ObjectRef, String)> =
        resources.iter().flat_map(|resource| deletion::holders(world, resource, name)).collect();
    let Some((first, _)) = all.first() else { return finding };
    let more = match all.len() - 1 {
        0 => String::new(),
        1 => " (and 1 more object likewise)".to_owned(),
        more => format!(" (and {more} more objects likewise)"),
    };
    let remedy = format!("{first} holds the namespace{more}: {}", deletion::release(first));
    let named = all.iter().take(NAMED).map(|(object, finalizers)| Evidence {
        what: format!("object that holds the namespace, {object}"),
        text: format!("finalizer {finalizers}"),
    });
    finding.with(named.collect::<Vec<_>>()).remedy(remedy)
}

fn begun(namespace: View<'_, Namespace>, trouble: Trouble, cause: String) -> Finding {
    Finding::new(ObjectRef::to(namespace), trouble, cause)
        .since(namespace.metadata().deletion_timestamp().text())
}

/// An API that cannot be listed keeps every namespace that is being deleted.
fn discovery(
    world: &World,
    namespace: View<'_, Namespace>,
    failed: View<'_, NamespaceCondition>,
    trail: &[ObjectRef],
) -> Vec<Finding> {
    let message = failed.message().text();
    let cause =
        format!("an API cannot be listed, so it is not known whether the namespace is empty: {message}");
    let finding = begun(namespace, Trouble::NamespaceDiscovery, cause)
        .evidence("condition NamespaceDeletionDiscoveryFailure", message)
        .remedy("bring the API back, or delete its APIService: kubectl get apiservice");
    let services = world.list::<APIService>(None).items;
    let named = services.iter().filter(|service| {
        let (group, version) = (service.spec().group().text(), service.spec().version().text());
        message.contains(&format!("{group}/{version}"))
    });
    let mut findings: Vec<Finding> =
        named.flat_map(|service| follow(world, trail, ObjectRef::to(*service))).collect();
    findings.push(finding);
    findings
}

/// Finalizers of the namespace itself, beside that of Kubernetes.
fn own_finalizers(namespace: View<'_, Namespace>) -> Option<Finding> {
    let spec = namespace.spec().finalizers().texts().filter(|name| *name != "kubernetes");
    let all: Vec<&str> = spec.chain(namespace.metadata().finalizers().texts()).collect();
    (!all.is_empty()).then(|| {
        let cause = format!("the finalizer {} of the namespace keeps it", all.join(", "));
        begun(namespace, Trouble::FinalizerBlocks, cause)
            .evidence("finalizers", all.join(", "))
            .remedy(format!(
                "let the owner of the finalizer finish, or remove the finalizer if it is gone for good: kubectl edit {}",
                ObjectRef::to(namespace)
            ))
    })
}
