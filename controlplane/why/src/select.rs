//! Label selectors, and the labels that would have matched.

use coracle_cli::closest::{closest, slip};
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

/// An object whose labels are closest to a map that selects nothing: its name, and what differs. Nothing when no object has one of
/// the labels, or one that is almost the same.
pub fn nearest<'a>(
    wanted: View<'_, Map<Text>>,
    objects: impl Iterator<Item = View<'a, ObjectMeta>>,
) -> Option<(&'a str, String)> {
    let total = wanted.entries().count();
    let scored = objects.filter_map(|meta| {
        let differences = differences(wanted, meta);
        let edits: Vec<usize> = differences.iter().filter_map(|(edits, _)| *edits).collect();
        let far = differences.len() - edits.len();
        (far < total).then(|| ((far, differences.len(), edits.iter().sum::<usize>()), meta, differences))
    });
    let (_, meta, differences) = scored.min_by_key(|(score, _, _)| *score)?;
    let texts: Vec<String> = differences.into_iter().map(|(_, text)| text).collect();
    Some((meta.name().text(), texts.join(", ")))
}

/// The labels that differ, each with the number of letters when it is almost the same.
fn differences(wanted: View<'_, Map<Text>>, meta: View<'_, ObjectMeta>) -> Vec<(Option<usize>, String)> {
    let labels = meta.labels();
    let mut all = Vec::new();
    for (key, value) in wanted.entries() {
        let value = value.text();
        // Another value of the same key, or else almost the same key.
        let (name, label) = match labels.key(key).get() {
            Some(label) if label == value => continue,
            Some(label) => (key, label),
            None => match closest(key, labels.entries().map(|(name, _)| name)) {
                Some(name) => (name, labels.key(name).text()),
                None => {
                    all.push((None, format!("has no label {key}")));
                    continue;
                }
            },
        };
        let edits = slip(key, name).zip(slip(value, label)).map(|(key, value)| key + value);
        all.push((edits, format!("has {name}={label} instead of {key}={value}")));
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

    #[test]
    fn slips_of_the_pen() {
        let pods: Vec<_> = ["badprobe", "crash", "shopdb", "web", "db"]
            .map(|app| json!({"metadata": {"name": format!("pod-{app}"), "labels": {"app": app}}}))
            .into();
        let ask = |selector: serde_json::Value| {
            let service = json!({"spec": {"selector": selector}});
            let metas = pods.iter().map(|pod| Pod::of(pod).metadata());
            nearest(Service::of(&service).spec().selector(), metas).map(|(_, text)| text)
        };
        let found = |text: &str| Some(text.to_owned());
        assert_eq!(ask(json!({"app": "crahs"})), found("has app=crash instead of app=crahs"));
        assert_eq!(ask(json!({"app": "web2"})), found("has app=web instead of app=web2"));
        assert_eq!(ask(json!({"ap": "web"})), found("has app=web instead of ap=web"), "the key");
        assert_eq!(ask(json!({"app": "payments"})), None, "none is close");
        assert_eq!(
            ask(json!({"app": "wbe", "tier": "x"})),
            found("has app=web instead of app=wbe, has no label tier")
        );
    }
}
