//! Label selectors, and the labels that would have matched.

use crate::closest::closest;
use coracle_fields::meta::{LabelSelector as SelectorField, ObjectMeta};
use coracle_fields::{Map, Text, View};
use coracle_proto::selector::LabelSelector;

/// A selector object; one that cannot be read selects nothing, as does a missing one.
pub fn selector(field: View<'_, SelectorField>) -> LabelSelector {
    LabelSelector::from_object(&field.as_value()).unwrap_or(LabelSelector::Nothing)
}

/// Whether a selector selects an object.
pub fn selects(selector: &LabelSelector, meta: View<'_, ObjectMeta>) -> bool {
    selector.matches(|key| meta.labels().key(key).get())
}

/// A map of labels as `a=b,c=d`.
pub fn text_of(labels: View<'_, Map<Text>>) -> String {
    labels.entries().map(|(key, value)| format!("{key}={}", value.text())).collect::<Vec<_>>().join(",")
}

/// An object whose labels are closest to a map that selects nothing: its name, and what differs.
pub fn nearest<'a>(
    wanted: View<'_, Map<Text>>,
    objects: impl Iterator<Item = View<'a, ObjectMeta>>,
) -> Option<(&'a str, String)> {
    let scored = objects.map(|meta| {
        let differences: Vec<String> = differences(wanted, meta);
        (differences.len(), meta.name().text(), differences)
    });
    let total = wanted.entries().count();
    let (_, name, differences) = scored.min_by_key(|(count, _, _)| *count)?;
    // With several labels, one that matches is a sign; with one, a similar key or value is.
    let related =
        differences.len() < total || differences.iter().any(|text| !text.starts_with("has no label"));
    related.then(|| (name, differences.join(", ")))
}

fn differences(wanted: View<'_, Map<Text>>, meta: View<'_, ObjectMeta>) -> Vec<String> {
    let labels = meta.labels();
    let mut all = Vec::new();
    for (key, value) in wanted.entries() {
        let value = value.text();
        match labels.key(key).get() {
            Some(label) if label == value => {}
            Some(label) => all.push(format!("has {key}={label} instead of {key}={value}")),
            None => match closest(key, labels.entries().map(|(name, _)| name)) {
                Some(name) => {
                    all.push(format!("has {name}={} instead of {key}={value}", labels.key(name).text()))
                }
                None => all.push(format!("has no label {key}")),
            },
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_fields::Schema as _;
    use coracle_fields::core::v1::{Pod, Service};
    use serde_json::json;

    #[test]
    fn the_closest_labels_are_named() {
        let service = json!({"spec": {"selector": {"app": "web", "tier": "front"}}});
        let pods = [
            json!({"metadata": {"name": "a", "labels": {"app": "db"}}}),
            json!({"metadata": {"name": "b", "labels": {"app": "web", "tier": "frnt"}}}),
        ];
        let metas = || pods.iter().map(|pod| Pod::of(pod).metadata());
        let wanted = Service::of(&service).spec().selector();
        assert_eq!(nearest(wanted, metas()), Some(("b", "has tier=frnt instead of tier=front".to_owned())));
        let service = json!({"spec": {"selector": {"role": "x"}}});
        assert_eq!(nearest(Service::of(&service).spec().selector(), metas()), None);
        assert_eq!(text_of(wanted), "app=web,tier=front");
    }
}
