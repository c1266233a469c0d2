//! Columns of webhooks, admission policies and aggregated servers.

use super::{Column, age, format, name, number, text};
use coracle_fields::View;
use coracle_fields::admissionregistration::v1::{
    MutatingAdmissionPolicy, ParamKind, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use coracle_fields::apiregistration::v1::APIService;
use serde_json::{Value, json};

/// Webhook configurations of either kind: only the length of the list is shown.
pub fn webhooks() -> Vec<Column> {
    let webhooks =
        number::<ValidatingWebhookConfiguration>("Webhooks", |object| json!(object.webhooks().len()));
    vec![name(), webhooks, age()]
}

/// ValidatingAdmissionPolicies.
pub fn admission_policy() -> Vec<Column> {
    vec![
        name(),
        number::<ValidatingAdmissionPolicy>("Validations", |object| json!(object.spec().validations().len())),
        text::<ValidatingAdmissionPolicy>("ParamKind", |object| param_kind(object.spec().param_kind())),
        age(),
    ]
}

/// MutatingAdmissionPolicies.
pub fn mutating_policy() -> Vec<Column> {
    vec![
        name(),
        number::<MutatingAdmissionPolicy>("Mutations", |object| json!(object.spec().mutations().len())),
        text::<MutatingAdmissionPolicy>("ParamKind", |object| param_kind(object.spec().param_kind())),
        age(),
    ]
}

fn param_kind(kind: View<'_, ParamKind>) -> Value {
    if !kind.is_set() {
        return json!("<unset>");
    }
    json!(format!("{}/{}", kind.api_version().text(), kind.kind().text()))
}

/// Bindings of either kind: those of mutating policies have the same fields but `validationActions`.
pub fn policy_binding() -> Vec<Column> {
    vec![
        name(),
        text::<ValidatingAdmissionPolicyBinding>("PolicyName", |object| {
            object.spec().policy_name().to_value()
        }),
        text::<ValidatingAdmissionPolicyBinding>("ParamRef", |object| {
            let parameter = object.spec().param_ref();
            match (parameter.name().text(), parameter.namespace().text()) {
                ("", _) if parameter.selector().is_set() => json!(format::go_selector(parameter.selector())),
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
        text::<APIService>("Service", |object| {
            let service = object.spec().service();
            if !service.is_set() {
                return json!("Local");
            }
            json!(format!("{}/{}", service.namespace().text(), service.name().text()))
        }),
        text::<APIService>("Available", |object| {
            match format::condition(object.status().conditions(), "Available") {
                None => json!("Unknown"),
                Some(condition) => match (condition.status().text(), condition.reason().text()) {
                    ("True", _) => json!("True"),
                    (status, "") => json!(status),
                    (status, reason) => json!(format!("{status} ({reason})")),
                },
            }
        }),
        age(),
    ]
}
