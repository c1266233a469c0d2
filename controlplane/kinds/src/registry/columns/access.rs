//! Columns of role bindings and signing requests.

use super::ages::human;
use super::{Column, age, name, text, text_or, wide};
use coracle_fields::View;
use coracle_fields::certificates::v1::CertificateSigningRequest;
use coracle_fields::rbac::v1::RoleBinding;
use serde_json::{Value, json};

/// RoleBindings and ClusterRoleBindings, which have the same fields.
pub fn role_binding() -> Vec<Column> {
    vec![
        name(),
        text::<RoleBinding>("Role", |object| {
            json!(format!("{}/{}", object.role_ref().kind().text(), object.role_ref().name().text()))
        }),
        age(),
        wide::<RoleBinding>("Users", |object| subjects(object, "User")),
        wide::<RoleBinding>("Groups", |object| subjects(object, "Group")),
        wide::<RoleBinding>("ServiceAccounts", |object| subjects(object, "ServiceAccount")),
    ]
}

fn subjects(binding: View<'_, RoleBinding>, kind: &str) -> Value {
    let names: Vec<String> = binding
        .subjects()
        .items()
        .filter(|subject| subject.kind() == kind)
        .map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", subject.namespace().text(), subject.name().text()),
            _ => subject.name().text().to_owned(),
        })
        .collect();
    json!(names.join(", "))
}

/// CertificateSigningRequests.
pub fn certificate_request() -> Vec<Column> {
    vec![
        name(),
        age(),
        text::<CertificateSigningRequest>("SignerName", |object| {
            text_or(object.spec().signer_name().text(), "<none>")
        }),
        text::<CertificateSigningRequest>("Requestor", |object| json!(object.spec().username().text())),
        text::<CertificateSigningRequest>("RequestedDuration", |object| {
            json!(object.spec().expiration_seconds().int().map_or_else(|| "<none>".into(), human))
        }),
        text::<CertificateSigningRequest>("Condition", |object| {
            let is = |kind: &str| object.status().conditions().items().any(|c| c.type_() == kind);
            let mut words = vec![match () {
                () if is("Denied") => "Denied",
                () if is("Approved") => "Approved",
                () => "Pending",
            }];
            if is("Failed") {
                words.push("Failed");
            }
            if !object.status().certificate().text().is_empty() {
                words.push("Issued");
            }
            json!(words.join(","))
        }),
    ]
}
