//! Lists, labels and selectors as text.

use coracle_fields::core::v1::{LoadBalancerStatus, PodTemplateSpec};
use coracle_fields::meta::{Condition, LabelSelector};
use coracle_fields::{List, Map, Text, View};

/// `a=b,c=d` in the order of keys, `<none>` without any.
pub(super) fn labels(labels: View<'_, Map<Text>>) -> String {
    let mut pairs: Vec<String> =
        labels.entries().map(|(key, value)| format!("{key}={}", value.text())).collect();
    pairs.sort();
    or_none(pairs)
}

/// A label selector as kubectl would take it, `<none>` when it has no requirement.
pub(super) fn selector(selector: View<'_, LabelSelector>) -> String {
    let mut parts: Vec<(&str, String)> = selector
        .match_labels()
        .entries()
        .map(|(key, value)| (key, format!("{key}={}", value.text())))
        .collect();
    for expression in selector.match_expressions().items() {
        let key = expression.key().text();
        let mut values: Vec<&str> = expression.values().items().filter_map(|value| value.get()).collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match expression.operator().text() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".into(),
        };
        parts.push((key, part));
    }
    parts.sort();
    or_none(parts.into_iter().map(|(_, part)| part).collect())
}

/// A label selector as Go prints the struct: Kubernetes shows those of parameters so.
pub(super) fn go_selector(selector: View<'_, LabelSelector>) -> String {
    let mut labels: Vec<String> =
        selector.match_labels().entries().map(|(key, value)| format!("{key}: {},", value.text())).collect();
    labels.sort();
    let requirements: Vec<String> = selector
        .match_expressions()
        .items()
        .map(|expression| {
            let values: Vec<&str> = expression.values().items().filter_map(|value| value.get()).collect();
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                expression.key().text(),
                expression.operator().text(),
                values.join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        requirements.concat()
    )
}

/// Comma-separated, `<none>` when empty.
pub(super) fn or_none(items: Vec<String>) -> String {
    if items.is_empty() { "<none>".into() } else { items.join(",") }
}

/// The first three, and how many more there are.
pub(super) fn first_three(items: &[String]) -> Option<String> {
    match items.len() {
        0 => None,
        1..=3 => Some(items.join(",")),
        many => Some(format!("{} + {} more...", items[..3].join(","), many - 3)),
    }
}

/// Names of containers, comma-separated.
pub(super) fn container_names(template: View<'_, PodTemplateSpec>) -> String {
    let names: Vec<&str> = template.spec().containers().items().map(|c| c.name().text()).collect();
    names.join(",")
}

/// Images of containers, comma-separated.
pub(super) fn container_images(template: View<'_, PodTemplateSpec>) -> String {
    let images: Vec<&str> = template.spec().containers().items().map(|c| c.image().text()).collect();
    images.join(",")
}

/// Addresses or host names of a load balancer, sorted.
pub(super) fn balancer(status: View<'_, LoadBalancerStatus>) -> Vec<String> {
    let mut names: Vec<String> = status
        .ingress()
        .items()
        .map(|ingress| ingress.ip().filled().unwrap_or(ingress.hostname().text()))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Texts of a list.
pub(super) fn texts(list: View<'_, List<Text>>) -> Vec<String> {
    list.items().filter_map(|item| item.get()).map(str::to_owned).collect()
}

/// Whether the condition of a type is true.
pub(super) fn is_true<T>(conditions: View<'_, List<T>>, kind: &str) -> bool {
    condition(conditions, kind).is_some_and(|condition| condition.status() == "True")
}

/// The condition of a type. The conditions of all kinds have the fields of `meta.Condition`.
pub(super) fn condition<'a, T>(conditions: View<'a, List<T>>, kind: &str) -> Option<View<'a, Condition>> {
    let mut conditions = conditions.items().map(|condition| condition.erased().as_type::<Condition>());
    conditions.find(|condition| condition.type_() == kind)
}
