//! Certificate signing requests: those of nodes are approved, approved ones are signed, old ones are forgotten.

use super::conditions::{self, Condition};
use super::informer::Name;
use super::resource::Resource;
use super::runner::{Again, Controller, Failure};
use super::setup::Setup;
use super::time;
use crate::pki::authority::Authority;
use async_trait::async_trait;
use base64::Engine;
use jiff::Timestamp;
use rcgen::ExtendedKeyUsagePurpose;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

const NAME: &str = "certificate-controller";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const NODE_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The longest life of a certificate, in seconds.
const LONGEST: u64 = 365 * 86_400;
/// How long requests are kept, in seconds: approved or issued, denied or failed, undecided.
const KEEP_ISSUED: i64 = 3600;
const KEEP_DENIED: i64 = 3600;
const KEEP_PENDING: i64 = 86_400;

struct Requests {
    requests: Resource,
    authority: Arc<Authority>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    creation_timestamp: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    request: String,
    signer_name: String,
    usages: Vec<String>,
    expiration_seconds: Option<u64>,
    username: String,
    groups: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    certificate: String,
    conditions: Vec<Condition>,
}

/// What a request asks to be certified.
#[derive(Debug, Default, PartialEq, Eq)]
struct Subject {
    common_name: String,
    organizations: Vec<String>,
    names: usize,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>, authority: Arc<Authority>) {
    let requests = setup.resource(NAME, "certificates.k8s.io", "certificatesigningrequests");
    let queue = setup.feed(&requests).queue.clone();
    setup.run(Requests { requests, authority }, &queue, 1);
}

fn subject(pem: &str) -> Option<Subject> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let info = &request.certification_request_info;
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().ok().map(str::to_owned);
    let names = request.requested_extensions().into_iter().flatten().map(|extension| match extension {
        ParsedExtension::SubjectAlternativeName(san) => {
            let known =
                |n: &&GeneralName<'_>| matches!(n, GeneralName::DNSName(_) | GeneralName::IPAddress(_));
            san.general_names.iter().filter(known).count()
        }
        _ => 0,
    });
    Some(Subject {
        common_name: info.subject.iter_common_name().next().and_then(text).unwrap_or_default(),
        organizations: info.subject.iter_organization().filter_map(text).collect(),
        names: names.sum(),
    })
}

/// What the certificate may be used for, or why the signer refuses.
fn permitted(spec: &Spec, subject: &Subject) -> Result<Vec<ExtendedKeyUsagePurpose>, String> {
    let common = ["digital signature", "key encipherment"];
    let only = |auth: &str| spec.usages.iter().all(|u| u == auth || common.contains(&u.as_str()));
    let has = |auth: &str| spec.usages.iter().any(|u| u == auth);
    let of_node =
        subject.common_name.starts_with("system:node:") && subject.organizations == ["system:nodes"];
    match spec.signer_name.as_str() {
        CLIENT if !has("client auth") || !only("client auth") => Err("usages did not match".into()),
        CLIENT if subject.organizations.iter().any(|o| o == "system:masters") => {
            Err("organization system:masters is not allowed".into())
        }
        CLIENT => Ok(vec![ExtendedKeyUsagePurpose::ClientAuth]),
        NODE_CLIENT if !of_node => Err("subject organization is not system:nodes".into()),
        NODE_CLIENT if subject.names > 0 => Err("DNS or IP subjectAltNames are not allowed".into()),
        NODE_CLIENT if !has("client auth") || !only("client auth") => Err("usages did not match".into()),
        NODE_CLIENT => Ok(vec![ExtendedKeyUsagePurpose::ClientAuth]),
        NODE_SERVING if !of_node => Err("subject organization is not system:nodes".into()),
        NODE_SERVING if subject.names == 0 => Err("at least one DNS or IP subjectAltName is required".into()),
        NODE_SERVING if !has("server auth") || !only("server auth") => Err("usages did not match".into()),
        NODE_SERVING => Ok(vec![ExtendedKeyUsagePurpose::ServerAuth]),
        other => Err(format!("signer {other} is not known")),
    }
}

/// Whether a request may be approved without a person: a node for itself, or one that is joining.
fn approvable(spec: &Spec, subject: &Subject) -> bool {
    let for_itself = spec.username == subject.common_name;
    let joining = spec.groups.iter().any(|g| g == "system:bootstrappers");
    let well_formed = permitted(spec, subject).is_ok();
    match spec.signer_name.as_str() {
        NODE_CLIENT => well_formed && (for_itself || joining),
        NODE_SERVING => well_formed && for_itself,
        _ => false,
    }
}

#[async_trait]
impl Controller for Requests {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Again, Failure> {
        let Some(request) = self.requests.get(name) else { return Ok(Again::No) };
        let Wire { metadata, spec, mut status } = request.typed()?;
        if ![CLIENT, NODE_CLIENT, NODE_SERVING].contains(&spec.signer_name.as_str()) {
            return Ok(Again::No);
        }
        let decided = |kind: &str| conditions::is_true(&status.conditions, kind);
        let keep = if decided("Denied") || decided("Failed") {
            KEEP_DENIED
        } else if decided("Approved") {
            KEEP_ISSUED
        } else {
            KEEP_PENDING
        };
        let due = time::after(time::parse(metadata.creation_timestamp.as_deref()).unwrap_or(now), keep);
        if due <= now {
            self.requests.delete(&request).await?;
            return Ok(Again::No);
        }
        if decided("Denied") || decided("Failed") || !status.certificate.is_empty() {
            return Ok(Again::At(due));
        }
        let decoded = base64::engine::general_purpose::STANDARD.decode(&spec.request).unwrap_or_default();
        let pem = String::from_utf8(decoded).unwrap_or_default();
        let Some(subject) = subject(&pem) else { return Ok(Again::At(due)) };
        let mut body = request.value();
        if !decided("Approved") {
            if approvable(&spec, &subject) {
                let message = "Auto approving kubelet certificate after its identity was checked.";
                let mut condition = Condition::new("Approved", true, "AutoApproved", message, now);
                condition.last_update_time = Some(time::seconds(now));
                status.conditions.push(condition);
                body["status"]["conditions"] = json!(status.conditions);
                self.requests.write("approval", body).await?;
            }
            return Ok(Again::At(due));
        }
        let life = Duration::from_secs(spec.expiration_seconds.unwrap_or(LONGEST).clamp(600, LONGEST));
        let signed = permitted(&spec, &subject)
            .and_then(|usages| self.authority.sign_request(&pem, &usages, life).map_err(|e| e.to_string()));
        match signed {
            Ok(certificate) => {
                let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
                body["status"]["certificate"] = json!(encoded);
            }
            Err(why) => {
                let mut condition = Condition::new("Failed", true, "SignerValidationFailure", why, now);
                condition.last_update_time = Some(time::seconds(now));
                status.conditions.push(condition);
                body["status"]["conditions"] = json!(status.conditions);
            }
        }
        self.requests.write("status", body).await?;
        Ok(Again::At(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_approved_for_themselves_only() {
        let node = Subject {
            common_name: "system:node:a".into(),
            organizations: vec!["system:nodes".into()],
            names: 0,
        };
        let spec = |signer: &str, user: &str, groups: &[&str]| Spec {
            signer_name: signer.into(),
            usages: vec!["digital signature".into(), "client auth".into()],
            username: user.into(),
            groups: groups.iter().map(|g| (*g).into()).collect(),
            ..Spec::default()
        };
        assert!(approvable(&spec(NODE_CLIENT, "system:node:a", &[]), &node));
        assert!(approvable(&spec(NODE_CLIENT, "system:bootstrap:x", &["system:bootstrappers"]), &node));
        assert!(!approvable(&spec(NODE_CLIENT, "system:node:b", &[]), &node));
        assert!(!approvable(&spec(CLIENT, "system:node:a", &[]), &node), "a person decides");
        let admin =
            Subject { common_name: "root".into(), organizations: vec!["system:masters".into()], names: 0 };
        assert!(permitted(&spec(CLIENT, "x", &[]), &admin).is_err());
        assert!(permitted(&spec(NODE_SERVING, "system:node:a", &[]), &node).is_err(), "no name to serve");
    }
}
