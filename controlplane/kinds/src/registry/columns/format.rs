//! Lists, labels and selectors as text.

use coracle_validation::tree::Tree;
use serde_json::Value;

/// `a=b,c=d` in the order of keys, `<none>` without any.
pub(super) fn labels(labels: &Value) -> String {
    let mut pairs: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    or_none(pairs)
}

/// A label selector as kubectl would take it, `<none>` when it has no requirement.
pub(super) fn selector(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = selector
        .entries("matchLabels")
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in selector.items("matchExpressions") {
        let key = expression.text("key");
        let mut values: Vec<&str> = expression.items("values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match expression.text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".into(),
        };
        parts.push((key.to_owned(), part));
    }
    parts.sort();
    or_none(parts.into_iter().map(|(_, part)| part).collect())
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
pub(super) fn container_names(template: &Value) -> String {
    of_containers(template, "name")
}

/// Images of containers, comma-separated.
pub(super) fn container_images(template: &Value) -> String {
    of_containers(template, "image")
}

fn of_containers(template: &Value, key: &str) -> String {
    let texts: Vec<&str> =
        template.items("spec.containers").iter().map(|container| container.text(key)).collect();
    texts.join(",")
}

/// Addresses or host names of a load balancer, sorted.
pub(super) fn balancer(status: &Value) -> Vec<String> {
    let mut names: Vec<String> = status
        .items("ingress")
        .iter()
        .map(
            |ingress| {
                if ingress.text("ip").is_empty() { ingress.text("hostname") } else { ingress.text("ip") }
            },
        )
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Texts of a list.
pub(super) fn texts(object: &Value, path: &str) -> Vec<String> {
    object.items(path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether the condition of a type is true.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition.text("status") == "True")
}

/// The condition of a type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object.items("status.conditions").iter().find(|condition| condition.text("type") == kind)
}
