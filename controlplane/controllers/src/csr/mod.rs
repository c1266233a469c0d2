//! Certificate signing requests: those of nodes are approved, approved ones are signed, old ones are forgotten.

// Requests as the API has them.
mod wire;
// What a request asks to be certified.
mod subject;
// What is signed, and what is approved. Pure.
mod approval;
// Approving and denying.
mod approve;

pub use subject::node_of;

use approval::{Refused, permitted};
use approve::{Approver, Decided};
use async_trait::async_trait;
use base64::Engine;
use coracle_fields::certificates::v1::CertificateSigningRequest;
use coracle_informer::conditions::{self, Condition};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::time;
use coracle_kinds::watch::cache::Cache;
use coracle_pki::PkiError;
use coracle_pki::authority::Authority;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use subject::{Subject, subject};
use tokio::sync::watch;
use wire::{CLIENT, NODE_CLIENT, NODE_SERVING, Request};

pub(crate) const NAME: &str = "certificate-controller";
/// How long requests are kept, in seconds: approved or issued, denied or failed, undecided.
const KEEP_ISSUED: i64 = 3600;
const KEEP_DENIED: i64 = 3600;
const KEEP_PENDING: i64 = 86_400;

/// How long after its creation a request waits for its node to register, in seconds between looks.
const WAIT_FOR_NODE: i64 = 1;

/// What signs, and within which limits.
#[derive(Clone)]
pub struct Signer {
    /// The cluster's authority, which can be rotated.
    pub authority: watch::Receiver<Arc<Authority>>,
    /// The longest life of a certificate.
    pub life: Duration,
    /// Names and addresses that no node may serve under: those of this API server.
    pub reserved: Vec<String>,
}

/// Why an approved request gets no certificate.
#[derive(Debug, thiserror::Error)]
enum SignError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Pki(#[from] PkiError),
}

struct Requests {
    requests: Resource,
    /// The list of revoked nodes is one of these.
    lists: Arc<Cache>,
    approver: Approver,
    signer: Signer,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>, signer: Signer) {
    let requests = setup.resource(NAME, "certificates.k8s.io", "certificatesigningrequests");
    let client = setup.client(NAME);
    let lists = client.cache(&client.kind("", "configmaps"));
    let approver = Approver::new(client, signer.reserved.clone());
    let queue = setup.enqueue_on_change(&requests).queue.clone();
    setup.run(Requests { requests, lists, approver, signer }, &queue, 1);
}

impl Requests {
    /// Since when certificates of the subject's node count, in seconds since 1970, when it was revoked.
    fn revoked(&self, subject: &Subject) -> Option<i64> {
        let node = subject.common_name.strip_prefix("system:node:")?;
        coracle_pki::revoked::revoked(
            &self.lists.get("kube-system", coracle_pki::revoked::REVOKED)?.value(),
            node,
        )
    }
}

#[async_trait]
impl Controller for Requests {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(request) = self.requests.get(name) else { return Ok(Requeue::No) };
        let Request { metadata, spec, mut status } = request.typed()?;
        if ![CLIENT, NODE_CLIENT, NODE_SERVING].contains(&spec.signer_name.as_str()) {
            return Ok(Requeue::No);
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
            return Ok(Requeue::No);
        }
        if decided("Denied") || decided("Failed") || !status.certificate.is_empty() {
            return Ok(Requeue::At(due));
        }
        let decoded = base64::engine::general_purpose::STANDARD.decode(&spec.request).unwrap_or_default();
        let pem = String::from_utf8(decoded).unwrap_or_default();
        let Some(subject) = subject(&pem) else { return Ok(Requeue::At(due)) };
        let mut body = request.copy::<CertificateSigningRequest>();
        let approved = decided("Approved");
        // Asked for before its node was shut out: approved or not, nothing comes of it any more.
        let revoked = self.revoked(&subject);
        let asked = time::parse(metadata.creation_timestamp.as_deref()).unwrap_or(now).as_second();
        if revoked.is_some_and(|since| asked < since) {
            let kind = if approved { "Failed" } else { "Denied" };
            let why = "the node was revoked after this was asked for".to_owned();
            let mut condition = Condition::new(kind, true, "NodeRevoked", why, now);
            condition.last_update_time = Some(time::seconds(now));
            status.conditions.push(condition);
            body.edit().status().conditions().set(&status.conditions);
            self.requests.write(if approved { "status" } else { "approval" }, body).await?;
            return Ok(Requeue::At(due));
        }
        if !approved {
            match self.approver.decide(&spec, &subject, now).await? {
                Decided::Now(condition) => {
                    status.conditions.push(*condition);
                    body.edit().status().conditions().set(&status.conditions);
                    self.requests.write("approval", body).await?;
                }
                Decided::Later => return Ok(Requeue::At(time::after(now, WAIT_FOR_NODE))),
                Decided::Not => {}
            }
            return Ok(Requeue::At(due));
        }
        let asked = spec.expiration_seconds.map_or(self.signer.life, |s| Duration::from_secs(s.max(600)));
        let life = asked.min(self.signer.life);
        let authority = self.signer.authority.borrow().clone();
        let signed = permitted(&spec, &subject)
            .map_err(SignError::from)
            .and_then(|usages| Ok(authority.sign_request(&pem, &usages, life, revoked)?));
        match signed {
            Ok(certificate) => {
                let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
                body.edit().status().certificate().set(encoded);
            }
            Err(error) => {
                let why = error.to_string();
                let mut condition = Condition::new("Failed", true, "SignerValidationFailure", why, now);
                condition.last_update_time = Some(time::seconds(now));
                status.conditions.push(condition);
                body.edit().status().conditions().set(&status.conditions);
            }
        }
        self.requests.write("status", body).await?;
        Ok(Requeue::At(due))
    }
}
