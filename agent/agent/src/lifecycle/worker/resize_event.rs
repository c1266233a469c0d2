//! What events say of a resize: the resources of all containers, in JSON. Pure.

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Map, Value, json};

use crate::pod::spec;

/// The message of an event about a resize of a pod to these resources; `error` is empty unless something is in its way.
pub(super) fn message(what: &str, pod: &Pod, error: &str) -> String {
    let spec = spec::spec(pod);
    let mut summary = Map::new();
    let lists = [
        ("initContainers", spec.init_containers.as_deref().unwrap_or_default()),
        ("containers", spec.containers.as_slice()),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        summary.insert(name.to_owned(), list.iter().map(of_container).collect());
    }
    summary.insert("generation".to_owned(), json!(pod.metadata.generation.unwrap_or(0)));
    if !error.is_empty() {
        summary.insert("error".to_owned(), json!(error));
    }
    format!("Pod resize {what}: {}", escaped(&Value::Object(summary).to_string()))
}

/// JSON as Go writes it, which can stand in HTML. These characters only occur within texts.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            other => text.push(other),
        }
    }
    text
}

fn of_container(container: &Container) -> Value {
    let mut resources = Map::new();
    if let Some(given) = &container.resources {
        for (name, amounts) in [("limits", &given.limits), ("requests", &given.requests)] {
            if let Some(amounts) = amounts.as_ref().filter(|amounts| !amounts.is_empty()) {
                resources.insert(name.to_owned(), json!(amounts));
            }
        }
        if let Some(claims) = given.claims.as_ref().filter(|claims| !claims.is_empty()) {
            resources.insert("claims".to_owned(), json!(claims));
        }
    }
    json!({"name": container.name, "resources": resources})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn messages_have_the_resources_of_all_containers() {
        let pod = |spec: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"generation": 2}, "spec": spec})).unwrap()
        };
        for (what, spec, error, expected) in [
            (
                "started",
                json!({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "100m"}}}], "containers": [
                    {"name": "a", "resources": {"requests": {"memory": "1Mi", "cpu": "1"}, "limits": {"cpu": "2"}}},
                    {"name": "b"}]}),
                "",
                r#"Pod resize started: {"initContainers":[{"name":"i","resources":{"requests":{"cpu":"100m"}}}],"containers":[{"name":"a","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"1","memory":"1Mi"}}},{"name":"b","resources":{}}],"generation":2}"#,
            ),
            (
                "Deferred",
                json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}),
                "no \"room\"",
                r#"Pod resize Deferred: {"containers":[{"name":"a","resources":{"limits":{"cpu":"2"}}}],"generation":2,"error":"no \"room\""}"#,
            ),
            (
                "error",
                json!({"containers": []}),
                "<a> & \u{2028}\u{2029}\té\u{7f}",
                "Pod resize error: {\"generation\":2,\"error\":\"\\u003ca\\u003e \\u0026 \\u2028\\u2029\\té\u{7f}\"}",
            ),
        ] {
            assert_eq!(message(what, &pod(spec), error), expected);
        }
    }
}
