//! Aggregated APIs.

use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::trouble::Trouble;
use crate::world::{Found, World};
use coracle_fields::View;
use coracle_fields::apiregistration::v1::APIService;
use coracle_fields::core::v1::Service;

/// Why an aggregated API does not answer.
pub fn explain(world: &World, service: View<'_, APIService>, trail: &[ObjectRef]) -> Vec<Finding> {
    let mut conditions = service.status().conditions().items();
    let Some(condition) = conditions.find(|found| found.type_() == "Available" && found.status() != "True")
    else {
        return Vec::new();
    };
    let backend = service.spec().service();
    let (namespace, name) = (backend.namespace().text(), backend.name().text());
    let reference = backend.is_set().then(|| ObjectRef::new::<Service>(namespace, name));
    let causes = reference.map(|reference| follow(world, trail, reference)).unwrap_or_default();
    let missing = backend.is_set() && matches!(world.get::<Service>(namespace, name), Found::No);
    let why = match causes.first() {
        Some(first) => format!("; {}: {}", first.object, first.cause),
        None if missing => format!("; the Service {name} does not exist in namespace {namespace}"),
        None => String::new(),
    };
    let cause = format!("the API is not available: {}{why}", condition.message().text());
    let object = ObjectRef::to(service);
    let delete = format!("delete the registration: kubectl delete {object}");
    let remedy = match missing {
        true => format!("create the Service {name} in namespace {namespace}, or {delete}"),
        false => format!("start the pods of Service {namespace}/{name}, or {delete}"),
    };
    let finding = Finding::new(object, Trouble::ApiServiceUnavailable, cause)
        .since(condition.last_transition_time().text())
        .evidence(format!("condition Available: {}", condition.reason().text()), condition.message().text())
        .remedy(remedy);
    vec![finding]
}
