//! Columns of webhooks, admission policies and aggregated servers.

use super::{age, format, name, number, text};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::json;

/// Webhook configurations.
pub fn webhooks() -> Vec<Column> {
    vec![name(), number("Webhooks", |object| json!(object.items("webhooks").len())), age()]
}

/// ValidatingAdmissionPolicies.
pub fn admission_policy() -> Vec<Column> {
    vec![
        name(),
        number("Validations", |object| json!(object.items("spec.validations").len())),
        text("ParamKind", |object| {
            let kind = object.at("spec.paramKind");
            if kind.is_null() {
                return json!("<unset>");
            }
            json!(format!("{}/{}", kind.text("apiVersion"), kind.text("kind")))
        }),
        age(),
    ]
}

/// ValidatingAdmissionPolicyBindings.
pub fn policy_binding() -> Vec<Column> {
    vec![
        name(),
        text("PolicyName", |object| object.at("spec.policyName").clone()),
        text("ParamRef", |object| {
            let parameter = object.at("spec.paramRef");
            match (parameter.text("name"), parameter.text("namespace")) {
                ("", _) if parameter.has("selector") => json!(format::selector(parameter.at("selector"))),
                ("", _) => json!("<unset>"),
                (name, "") => json!(format!("*/{name}")),
                (name, namespace) => json!(format!("{namespace}/{name}")),
            }
        }),
        age(),
    ]
}

/// APIServices.
pub fn api_service() -> Vec<Column> {
    vec![
        name(),
        text("Service", |object| {
            let service = object.at("spec.service");
            if service.is_null() {
                return json!("Local");
            }
            json!(format!("{}/{}", service.text("namespace"), service.text("name")))
        }),
        text("Available", |object| match format::condition(object, "Available") {
            None => json!("Unknown"),
            Some(condition) => match (condition.text("status"), condition.text("reason")) {
                ("True", _) => json!("True"),
                (status, "") => json!(status),
                (status, reason) => json!(format!("{status} ({reason})")),
            },
        }),
        age(),
    ]
}
