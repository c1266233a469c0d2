//! Columns of role bindings and signing requests.

use super::ages::human;
use super::{age, name, text, text_or, wide};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::{Value, json};

/// RoleBindings and ClusterRoleBindings.
pub fn role_binding() -> Vec<Column> {
    vec![
        name(),
        text("Role", |object| {
            json!(format!("{}/{}", object.text("roleRef.kind"), object.text("roleRef.name")))
        }),
        age(),
        wide("Users", |object| subjects(object, "User")),
        wide("Groups", |object| subjects(object, "Group")),
        wide("ServiceAccounts", |object| subjects(object, "ServiceAccount")),
    ]
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let names: Vec<String> = binding
        .items("subjects")
        .iter()
        .filter(|subject| subject.text("kind") == kind)
        .map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", subject.text("namespace"), subject.text("name")),
            _ => subject.text("name").to_owned(),
        })
        .collect();
    json!(names.join(", "))
}

/// CertificateSigningRequests.
pub fn certificate_request() -> Vec<Column> {
    vec![
        name(),
        age(),
        text("SignerName", |object| text_or(object, "spec.signerName", "<none>")),
        text("Requestor", |object| json!(object.text("spec.username"))),
        text("RequestedDuration", |object| {
            json!(object.int("spec.expirationSeconds").map_or_else(|| "<none>".into(), human))
        }),
        text("Condition", |object| {
            let is = |kind: &str| object.items("status.conditions").iter().any(|c| c.text("type") == kind);
            let mut words = vec![match () {
                () if is("Denied") => "Denied",
                () if is("Approved") => "Approved",
                () => "Pending",
            }];
            if is("Failed") {
                words.push("Failed");
            }
            if !object.text("status.certificate").is_empty() {
                words.push("Issued");
            }
            json!(words.join(","))
        }),
    ]
}
