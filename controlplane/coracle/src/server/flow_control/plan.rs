//! What has to change in an existing default object of priority and fairness. Pure.

use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use serde_json::Value;

/// Whether the server keeps the spec up to date.
const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// The FlowSchemas and PriorityLevelConfigurations that always have their spec: without them there is no place for requests that
/// match no other schema, and for administrators when everything else is busy.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// What the annotation of an object says; nothing if it is missing or no bool.
pub(super) fn autoupdate(object: &Value) -> Option<bool> {
    match PartialObjectMetadata::of(object).metadata().annotations().key(AUTOUPDATE).text() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The object as it has to be, or nothing if it is so already. An object without the annotation is updated if nobody has changed
/// its spec, and gets the annotation. `wanted` has its defaults.
pub(super) fn revise(existing: &Value, wanted: &Value) -> Option<Value> {
    let meta = PartialObjectMetadata::of(existing).metadata();
    let said = autoupdate(existing);
    let is_mandatory = MANDATORY.contains(&meta.name().text());
    let updates = is_mandatory || said.unwrap_or(meta.generation().int() == Some(1));
    let mut revised = existing.clone();
    if updates && !has_spec(existing, wanted) {
        revised["spec"] = wanted["spec"].clone();
    }
    if said != Some(updates) {
        let mut edited = PartialObjectMetadata::edit(&mut revised);
        edited.metadata().annotations().insert(AUTOUPDATE, updates.to_string());
    }
    (revised != *existing).then_some(revised)
}

/// Whether an object has the wanted spec. The shares of the exempt level belong to administrators.
fn has_spec(existing: &Value, wanted: &Value) -> bool {
    let (held, mut wanted) = (&existing["spec"], wanted["spec"].clone());
    if let (Some(held), Some(exempt)) = (held.get("exempt"), wanted.get_mut("exempt")) {
        exempt.clone_from(held);
    }
    *held == wanted
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn object(name: &str, generation: i64, autoupdate: Option<&str>, spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": name, "generation": generation}, "spec": spec});
        if let Some(autoupdate) = autoupdate {
            object["metadata"]["annotations"] = json!({AUTOUPDATE: autoupdate});
        }
        object
    }

    #[test]
    fn the_annotation_decides_and_else_whether_the_spec_was_changed() {
        let (old, new) = (json!({"matchingPrecedence": 7}), json!({"matchingPrecedence": 8}));
        let wanted = object("global-default", 0, Some("true"), new.clone());
        let revised = |name: &str, generation, autoupdate, spec: &Value| {
            let revised = revise(&object(name, generation, autoupdate, spec.clone()), &wanted)?;
            let annotation = super::autoupdate(&revised).unwrap();
            Some((revised["spec"] == new, annotation))
        };
        for (name, generation, autoupdate, spec, expected) in [
            ("system", 1, Some("true"), &old, Some((true, true))),
            ("system", 4, Some("true"), &old, Some((true, true))),
            ("system", 4, Some("T"), &new, None),
            ("system", 1, Some("false"), &old, None),
            ("system", 1, Some("0"), &old, None),
            ("system", 1, None, &old, Some((true, true))),
            ("system", 1, None, &new, Some((true, true))),
            ("system", 2, None, &old, Some((false, false))),
            ("system", 2, Some("maybe"), &old, Some((false, false))),
            ("catch-all", 2, None, &old, Some((true, true))),
            ("exempt", 2, Some("false"), &old, Some((true, true))),
            ("exempt", 2, Some("true"), &new, None),
        ] {
            let found = revised(name, generation, autoupdate, spec);
            assert_eq!(found, expected, "{name} {generation} {autoupdate:?} {spec}");
        }
    }

    #[test]
    fn shares_of_the_exempt_level_are_kept() {
        let spec = |shares: i64| json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": shares}});
        let wanted = object("exempt", 0, Some("true"), spec(0));
        assert_eq!(revise(&object("exempt", 3, Some("true"), spec(9)), &wanted), None);
        let without = object("exempt", 3, Some("true"), json!({"type": "Exempt"}));
        assert_eq!(revise(&without, &wanted).unwrap()["spec"], spec(0));
    }
}
