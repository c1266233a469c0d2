//! Field rules of roles, role bindings and signing requests.

use super::field_ref::{FieldRef, walk};
use super::meta;
use crate::tree::{Tree, same};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_proto::names::{dns1123_subdomain, path_segment};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;
use x509_parser::error::X509Error;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A Role.
pub fn role(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| root.each("rules").for_each(|rule| policy_rule(&rule, true)));
}

/// A ClusterRole.
pub fn cluster_role(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        root.each("rules").for_each(|rule| policy_rule(&rule, false));
        if root.at("aggregationRule").is_set() {
            let selectors = root.at("aggregationRule.clusterRoleSelectors");
            if selectors.is_empty() {
                selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil");
            }
            selectors.items().for_each(|selector| meta::selector(&selector));
        }
    });
}

fn policy_rule(rule: &FieldRef<'_>, namespaced: bool) {
    if rule.at("verbs").is_empty() {
        rule.at("verbs").required("verbs must contain at least one value");
    }
    let urls = rule.at("nonResourceURLs");
    if !urls.is_empty() {
        if namespaced {
            urls.invalid("namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.at(field).is_empty()) {
            urls.invalid("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if rule.at("apiGroups").is_empty() {
        rule.at("apiGroups").required("resource rules must supply at least one api group");
    }
    if rule.at("resources").is_empty() {
        rule.at("resources").required("resource rules must supply at least one resource");
    }
}

/// A RoleBinding.
pub fn role_binding(object: &Value, errors: &mut Vec<FieldError>) {
    binding(object, errors, &["Role", "ClusterRole"], true);
}

/// A ClusterRoleBinding.
pub fn cluster_role_binding(object: &Value, errors: &mut Vec<FieldError>) {
    binding(object, errors, &["ClusterRole"], false);
}

fn binding(object: &Value, errors: &mut Vec<FieldError>, kinds: &[&str], namespaced: bool) {
    walk(object, errors, |root| {
        root.at("roleRef.apiGroup").one_of(&[GROUP]);
        root.at("roleRef.kind").one_of(kinds);
        root.at("roleRef.name").named(path_segment);
        for subject in root.each("subjects") {
            subject.at("name").has_text("");
            let group = subject.at("apiGroup");
            match subject.value.text("kind") {
                "ServiceAccount" => {
                    if !subject.at("name").is_empty() {
                        subject.at("name").follows(dns1123_subdomain);
                    }
                    if !group.is_empty() {
                        group.unsupported(&[""]);
                    }
                    if !namespaced {
                        subject.at("namespace").has_text("");
                    }
                }
                "User" | "Group" => group.one_of(&[GROUP]),
                _ => subject.at("kind").unsupported(&["ServiceAccount", "User", "Group"]),
            }
        }
    });
}

/// The role of a binding never changes.
pub fn binding_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        if !same(root.value.at("roleRef"), old.at("roleRef")) {
            root.at("roleRef").invalid("cannot change roleRef");
        }
    });
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// A CertificateSigningRequest.
pub fn signing_request(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        let request = spec.at("request");
        if let Err(why) = parse_request(request.text()) {
            request.invalid_as(request.text(), why.to_string());
        }
        let usages = spec.at("usages");
        if usages.is_empty() {
            usages.required("");
        }
        let mut seen = HashSet::new();
        for usage in usages.items() {
            usage.one_of(&USAGES);
            if !seen.insert(usage.text()) {
                usage.duplicate();
            }
        }
        signer(&spec.at("signerName"));
        if spec.at("expirationSeconds").int().is_some_and(|seconds| seconds < 600) {
            spec.at("expirationSeconds")
                .invalid("may not specify a duration less than 600 seconds (10 minutes)");
        }
        conditions(&root.at("status.conditions"));
    });
}

/// Why a text is not a certificate signing request.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    #[error(transparent)]
    Der(#[from] x509_parser::nom::Err<X509Error>),
    #[error(transparent)]
    Signature(#[from] X509Error),
}

fn parse_request(text: &str) -> Result<(), RequestError> {
    let pem = STANDARD.decode(text)?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem).map_err(|_| RequestError::Pem)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(RequestError::Pem);
    }
    use x509_parser::prelude::FromDer;
    let (_, request) =
        x509_parser::certification_request::X509CertificationRequest::from_der(&block.contents)?;
    Ok(request.verify_signature()?)
}

fn signer(name: &FieldRef<'_>) {
    if !name.has_text("") {
        return;
    }
    match name.text().split_once('/') {
        Some((domain, path)) if !path.contains('/') => {
            for message in dns1123_subdomain(domain) {
                name.invalid(format!("validating label {domain:?}: {message}"));
            }
            for message in dns1123_subdomain(path) {
                name.invalid(format!("validating label {path:?}: {message}"));
            }
        }
        _ => name.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'"),
    }
    if name.text() == "kubernetes.io/legacy-unknown" {
        name.invalid("the legacy signerName is not allowed via this API version");
    }
}

fn conditions(list: &FieldRef<'_>) {
    let mut kinds = HashSet::new();
    for condition in list.items() {
        condition.at("type").has_text("");
        condition.at("status").required_one_of(&["False", "True", "Unknown"]);
        let kind = condition.value.text("type");
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if kinds.contains(opposite) {
            list.invalid_as(kind, "Approved and Denied conditions are mutually exclusive");
        }
        if !kinds.insert(kind) {
            condition.at("type").duplicate();
        }
    }
}

/// A change of a request's status: certificates and approvals stay.
pub fn signing_request_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        conditions(&root.at("status.conditions"));
        for verdict in ["Approved", "Denied"] {
            let of = |object: &Value| -> usize {
                object.items("status.conditions").iter().filter(|c| c.text("type") == verdict).count()
            };
            let list = root.at("status.conditions");
            if of(new) > of(old) {
                list.forbidden(format!("updates may not add a condition of type {verdict:?}"));
            } else if of(new) < of(old) {
                list.forbidden(format!("updates may not remove a condition of type {verdict:?}"));
            }
        }
        let before = old.text("status.certificate");
        if !before.is_empty() && new.text("status.certificate") != before {
            root.at("status.certificate").forbidden("updates may not modify existing certificate content");
        }
    });
}

/// `/approval`: verdicts stay once given.
pub fn signing_request_approval(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        let list = root.at("status.conditions");
        conditions(&list);
        for kind in ["Approved", "Denied", "Failed"] {
            let has =
                |object: &Value| object.items("status.conditions").iter().any(|c| c.text("type") == kind);
            if has(old) && !has(new) {
                list.forbidden(format!("updates may not remove a condition of type {kind:?}"));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;
    use serde_json::json;

    #[test]
    fn roles_and_bindings() {
        assert_eq!(
            errors(role, &json!({"rules": [{"apiGroups": [""], "resources": ["pods"]}]})),
            ["rules[0].verbs: Required value: verbs must contain at least one value"]
        );
        assert_eq!(
            errors(role, &json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]})),
            [
                "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs"
            ]
        );
        let with = |kind: &str| json!({"roleRef": {"apiGroup": GROUP, "kind": kind, "name": "r"}, "subjects": [{"kind": "User", "apiGroup": GROUP, "name": "u"}]});
        assert_eq!(errors(cluster_role_binding, &with("ClusterRole")), [""; 0]);
        assert_eq!(
            errors(cluster_role_binding, &with("Role")),
            ["roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""]
        );
        assert!(
            changes(binding_update, &with("Role"), &with("ClusterRole"))[0]
                .ends_with("cannot change roleRef")
        );
    }

    #[test]
    fn requests_must_be_requests() {
        let wrong = errors(
            signing_request,
            &json!({"spec": {"request": "eA==", "usages": ["any"], "signerName": "a.b/c"}}),
        );
        assert_eq!(
            wrong,
            ["spec.request: Invalid value: \"eA==\": PEM block type must be CERTIFICATE REQUEST"]
        );
    }
}
