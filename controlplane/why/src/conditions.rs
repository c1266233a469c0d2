//! Objects whose kind is not known here: deletion, and their own conditions.

use crate::cluster::Answer;
use crate::deletion;
use crate::finding::{Finding, ObjectRef};
use crate::target;
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::apiextensions::v1::CustomResourceDefinition;
use coracle_fields::meta::Condition;
use coracle_fields::{Json, List, View};

/// Conditions that mean trouble when they are false.
const WANTED: [&str; 6] = ["Ready", "Available", "Healthy", "Synced", "Established", "Accepted"];

/// What an object of any kind says about itself.
pub fn explain_other(world: &World, object: &ObjectRef, trail: &[ObjectRef]) -> Vec<Finding> {
    let Some(resource) = target::resource_of(world, object) else { return Vec::new() };
    let Some(Answer::Object(found)) = world.object(&resource, &object.namespace, &object.name) else {
        return Vec::new();
    };
    let found = View::<Json>::from(found);
    let deleted = deletion::explain(world, found, trail);
    if deleted.is_empty() { conditions(object, found) } else { deleted }
}

fn list(found: View<'_, Json>) -> View<'_, List<Condition>> {
    coracle_fields::At::new(*found.at("status").at("conditions"))
}

/// The conditions of an object that say that it is well.
pub fn fulfilled(found: View<'_, Json>) -> Vec<&str> {
    let well = list(found)
        .items()
        .filter(|condition| WANTED.contains(&condition.type_().text()) && condition.status() == "True");
    well.map(|condition| condition.type_().text()).collect()
}

/// All conditions of an object, such as `Ready=True`.
pub fn all(found: View<'_, Json>) -> Vec<String> {
    let named = list(found)
        .items()
        .map(|condition| format!("{}={}", condition.type_().text(), condition.status().text()));
    named.collect()
}

fn conditions(object: &ObjectRef, found: View<'_, Json>) -> Vec<Finding> {
    let unwell = list(found)
        .items()
        .filter(|condition| WANTED.contains(&condition.type_().text()) && condition.status() == "False");
    let described = unwell.map(|condition| {
        let (name, reason) = (condition.type_().text(), condition.reason().text());
        let cause = format!("its condition {name} is false: {reason}: {}", condition.message().text());
        Finding::new(object.clone(), Trouble::ConditionFalse, cause)
            .since(condition.last_transition_time().text())
            .evidence(format!("condition {name}: {reason}"), condition.message().text())
            .remedy(format!("what the message names; the controller of {} knows more", object.api_version))
    });
    described.collect()
}

/// Why a CustomResourceDefinition is not served.
pub fn explain_definition(
    _world: &World,
    definition: View<'_, CustomResourceDefinition>,
    _trail: &[ObjectRef],
) -> Vec<Finding> {
    let conditions = definition.status().conditions().items();
    let refused = conditions.filter(|found| {
        let bad = match found.type_().text() {
            "Established" | "NamesAccepted" => "False",
            "NonStructuralSchema" | "Terminating" => "True",
            _ => return false,
        };
        found.status() == bad
    });
    let described = refused.map(|found| {
        let cause = format!(
            "the definition is not served as it should be: {}: {}",
            found.reason().text(),
            found.message().text()
        );
        Finding::new(ObjectRef::to(definition), Trouble::DefinitionRefused, cause)
            .since(found.last_transition_time().text())
            .evidence(format!("condition {}", found.type_().text()), found.message().text())
            .remedy("correct spec.names or the schema, or delete the definition that has the same names")
    });
    described.take(1).collect()
}
