//! Field rules of roles, role bindings and signing requests.

use super::field_ref::{Field, walk_as};
use super::field_rules::TextRules as _;
use super::meta;
use crate::tree::same_at;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_fields::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use coracle_fields::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding};
use coracle_fields::{List, Schema, Text, View};
use coracle_proto::names::{dns1123_subdomain, path_segment};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;
use x509_parser::error::X509Error;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A Role.
pub fn role(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Role>(object, errors, |root| {
        root.rules().items().for_each(|rule| policy_rule(&rule, true));
    });
}

/// A ClusterRole.
pub fn cluster_role(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ClusterRole>(object, errors, |root| {
        root.rules().items().for_each(|rule| policy_rule(&rule, false));
        if root.aggregation_rule().is_set() {
            let selectors = root.aggregation_rule().cluster_role_selectors();
            if selectors.is_empty() {
                selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil");
            }
            for selector in selectors.items() {
                let before = selector.errors();
                meta::selector(&selector);
                if selector.errors() > before {
                    selector.invalid_as(Value::Null, "invalid label selector.");
                }
            }
        }
    });
}

fn policy_rule(rule: &Field<'_, PolicyRule>, namespaced: bool) {
    if rule.verbs().is_empty() {
        rule.verbs().required("verbs must contain at least one value");
    }
    let urls = rule.non_resource_urls();
    if !urls.is_empty() {
        if namespaced {
            urls.invalid("namespaced rules cannot apply to non-resource URLs");
        }
        let resources = [rule.api_groups(), rule.resources(), rule.resource_names()];
        if resources.iter().any(|list| !list.is_empty()) {
            urls.invalid("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if rule.api_groups().is_empty() {
        rule.api_groups().required("resource rules must supply at least one api group");
    }
    if rule.resources().is_empty() {
        rule.resources().required("resource rules must supply at least one resource");
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
    walk_as::<RoleBinding>(object, errors, |root| {
        root.role_ref().api_group().one_of(&[GROUP]);
        root.role_ref().kind().one_of(kinds);
        root.role_ref().name().named(path_segment);
        for subject in root.subjects().items() {
            subject.name().has_text("");
            let group = subject.api_group();
            match subject.view().kind().text() {
                "ServiceAccount" => {
                    if !subject.name().is_empty() {
                        subject.name().follows(dns1123_subdomain);
                    }
                    if !group.is_empty() {
                        group.unsupported(&[""]);
                    }
                    if !namespaced {
                        subject.namespace().has_text("");
                    }
                }
                "User" | "Group" => group.one_of(&[GROUP]),
                _ => subject.kind().unsupported(&["ServiceAccount", "User", "Group"]),
            }
        }
    });
}

/// The role of a binding never changes.
pub fn binding_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = RoleBinding::of(old);
    walk_as::<RoleBinding>(new, errors, |root| {
        if !same_at(root.view().role_ref(), old.role_ref()) {
            root.role_ref().invalid("cannot change roleRef");
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
    walk_as::<CertificateSigningRequest>(object, errors, |root| {
        let spec = root.spec();
        let request = spec.request();
        if let Err(why) = parse_request(request.text()) {
            request.invalid_as(request.text(), why.to_string());
        }
        let usages = spec.usages();
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
        signer(&spec.signer_name());
        if spec.expiration_seconds().int().is_some_and(|seconds| seconds < 600) {
            spec.expiration_seconds()
                .invalid("may not specify a duration less than 600 seconds (10 minutes)");
        }
        conditions(&root.status().conditions());
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

fn signer(name: &Field<'_, Text>) {
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

fn conditions(list: &Field<'_, List<CertificateSigningRequestCondition>>) {
    let mut kinds = HashSet::new();
    for condition in list.items() {
        condition.type_().has_text("");
        condition.status().required_one_of(&["False", "True", "Unknown"]);
        let kind = condition.view().type_().text();
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if kinds.contains(opposite) {
            list.invalid_as(kind, "Approved and Denied conditions are mutually exclusive");
        }
        if !kinds.insert(kind) {
            condition.type_().duplicate();
        }
    }
}

/// How many conditions of a type a request has.
fn count(request: View<'_, CertificateSigningRequest>, kind: &str) -> usize {
    request.status().conditions().items().filter(|condition| condition.type_() == kind).count()
}

/// A change of a request's status: certificates and approvals stay.
pub fn signing_request_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = CertificateSigningRequest::of(old);
    walk_as::<CertificateSigningRequest>(new, errors, |root| {
        conditions(&root.status().conditions());
        for verdict in ["Approved", "Denied"] {
            let list = root.status().conditions();
            let (now, before) = (count(root.view(), verdict), count(old, verdict));
            if now > before {
                list.forbidden(format!("updates may not add a condition of type {verdict:?}"));
            } else if now < before {
                list.forbidden(format!("updates may not remove a condition of type {verdict:?}"));
            }
        }
        let before = old.status().certificate().text();
        if !before.is_empty() && root.view().status().certificate().text() != before {
            root.status().certificate().forbidden("updates may not modify existing certificate content");
        }
    });
}

/// `/approval`: verdicts stay once given.
pub fn signing_request_approval(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = CertificateSigningRequest::of(old);
    walk_as::<CertificateSigningRequest>(new, errors, |root| {
        let list = root.status().conditions();
        conditions(&list);
        for kind in ["Approved", "Denied", "Failed"] {
            if count(old, kind) > 0 && count(root.view(), kind) == 0 {
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
        let aggregated =
            json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b c"}}]}});
        let said = errors(cluster_role, &aggregated);
        let at = "aggregationRule.clusterRoleSelectors[0]";
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[1], format!("{at}: Invalid value: null: invalid label selector."));
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
