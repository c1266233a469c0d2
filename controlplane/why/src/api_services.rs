//! Aggregated APIs.

use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::trouble::Trouble;
use crate::world::World;
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
    let why = causes.first().map_or_else(String::new, |first| format!("; {}: {}", first.object, first.cause));
    let cause = format!("the API is not available: {}{why}", condition.message().text());
    let object = ObjectRef::to(service);
    let remedy = format!(
        "start the pods of Service {namespace}/{name}, or delete the registration: kubectl delete {object}"
    );
    let finding = Finding::new(object, Trouble::ApiServiceUnavailable, cause)
        .since(condition.last_transition_time().text())
        .evidence(format!("condition Available: {}", condition.reason().text()), condition.message().text())
        .remedy(remedy);
    vec![finding]
}
