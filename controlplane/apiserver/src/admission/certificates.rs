//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction: check permissions to approve and sign
//! requests of a signer, and reject requests for the group `system:masters`.

use super::{Attributes, Operation, Phase, Plugin};
use crate::authz::{Authorizer, Decision};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use async_trait::async_trait;
use base64::Engine as _;
use coracle_fields::Schema as _;
use coracle_fields::certificates::v1::CertificateSigningRequest;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::sync::Arc;
use x509_parser::error::{PEMError, X509Error};
use x509_parser::prelude::FromDer;

const GROUP: &str = "certificates.k8s.io";
const PLURAL: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// Who may approve.
pub struct CertificateApproval(pub Arc<dyn Authorizer>);
/// Who may sign.
pub struct CertificateSigning(pub Arc<dyn Authorizer>);
/// Which subjects may be asked for.
pub struct CertificateSubjectRestriction;

/// Whether the user may do `verb` for a signer, by its name or for all of its domain.
async fn may(authz: &dyn Authorizer, at: &Attributes<'_>, verb: Verb, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let request = RequestInfo {
            verb: verb.clone(),
            is_resource: true,
            group: GROUP.into(),
            version: "*".into(),
            resource: "signers".into(),
            name,
            ..RequestInfo::default()
        };
        if authz.authorize(at.user, &request).await == Decision::Allow {
            return true;
        }
    }
    false
}

fn is(at: &Attributes<'_>, subresource: &str, operation: Operation) -> bool {
    at.kind.group == GROUP
        && at.kind.plural == PLURAL
        && at.subresource == subresource
        && at.operation == operation
}

fn signer(request: &Value) -> &str {
    CertificateSigningRequest::of(request).spec().signer_name().text()
}

#[async_trait]
impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && is(at, "approval", Operation::Update)
    }

    async fn validate(&self, at: &mut Attributes<'_>, _: &Value) -> Result<(), ApiError> {
        let Some(old) = at.old.filter(|_| is(at, "approval", Operation::Update)) else { return Ok(()) };
        let signer = signer(old);
        if may(self.0.as_ref(), at, Verb::Approve, signer).await {
            return Ok(());
        }
        Err(at.forbidden(format!("user not permitted to approve requests with signerName {signer:?}")))
    }
}

#[async_trait]
impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && is(at, "status", Operation::Update)
    }

    async fn validate(&self, at: &mut Attributes<'_>, request: &Value) -> Result<(), ApiError> {
        let Some(old) = at.old.filter(|_| is(at, "status", Operation::Update)) else { return Ok(()) };
        let before = CertificateSigningRequest::of(old).status();
        let after = CertificateSigningRequest::of(request).status();
        if before.certificate().same_as(after.certificate())
            && before.conditions().same_as(after.conditions())
        {
            return Ok(());
        }
        let signer = signer(old);
        if may(self.0.as_ref(), at, Verb::Sign, signer).await {
            return Ok(());
        }
        Err(at.forbidden(format!("user not permitted to sign requests with signerName {signer:?}")))
    }
}

#[async_trait]
impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && is(at, "", Operation::Create)
    }

    async fn validate(&self, at: &mut Attributes<'_>, request: &Value) -> Result<(), ApiError> {
        if !is(at, "", Operation::Create) || signer(request) != CLIENT_SIGNER {
            return Ok(());
        }
        let groups = organizations(CertificateSigningRequest::of(request).spec().request().text())
            .map_err(|why| at.forbidden(format!("failed to parse CSR: {why}")))?;
        if groups.iter().any(|group| group == MASTERS) {
            return Err(
                at.forbidden(format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"))
            );
        }
        Ok(())
    }
}

/// Why a text is not a certificate signing request.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    #[error(transparent)]
    Pem(#[from] x509_parser::nom::Err<PEMError>),
    #[error(transparent)]
    Der(#[from] x509_parser::nom::Err<X509Error>),
}

/// The organizations of the subject of a request in base64 of PEM.
fn organizations(encoded: &str) -> Result<Vec<String>, RequestError> {
    let pem = base64::engine::general_purpose::STANDARD.decode(encoded)?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem)?;
    let (_, request) = x509_parser::certification_request::X509CertificationRequest::from_der(&pem.contents)?;
    let subject = &request.certification_request_info.subject;
    Ok(subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned)).collect())
}
