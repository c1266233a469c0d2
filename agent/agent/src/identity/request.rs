//! Certificate signing requests: made here, sent to the API, waited for.

use super::IdentityError;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{Api, ObjectMeta, PostParams};
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use std::time::Duration;
use tokio::time::Instant;

/// Client certificates of nodes.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of nodes.
pub const SERVING: &str = "kubernetes.io/kubelet-serving";

/// A new key with a request for a certificate of `system:node:<node>`, valid for `names`.
pub fn make(node: &str, names: &[String]) -> Result<(KeyPair, String), IdentityError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    for name in names {
        params.subject_alt_names.push(match name.parse() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => SanType::DnsName(name.as_str().try_into()?),
        });
    }
    let request = params.serialize_request(&key)?.pem()?;
    Ok((key, request))
}

/// Asks for a certificate and waits until it is there: certificate and key, PEM, one after the other.
pub async fn obtain(
    client: &kube::Client,
    signer: &str,
    node: &str,
    names: &[String],
    timeout: Duration,
) -> Result<String, IdentityError> {
    let (key, request) = make(node, names)?;
    let usage = if signer == SERVING { "server auth" } else { "client auth" };
    let body = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("node-csr-".into()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: k8s_openapi::ByteString(request.into_bytes()),
            signer_name: signer.into(),
            usages: Some(vec!["digital signature".into(), usage.into()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let made = api.create(&PostParams::default(), &body).await?;
    let name = made.metadata.name.unwrap_or_default();
    let begun = Instant::now();
    let mut pause = Duration::from_millis(20);
    while begun.elapsed() < timeout {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
        let status = api.get(&name).await?.status.unwrap_or_default();
        let refused = status.conditions.iter().flatten().find(|c| c.type_ == "Denied" || c.type_ == "Failed");
        if let Some(condition) = refused {
            let why = condition.message.clone().or(condition.reason.clone()).unwrap_or_default();
            return Err(IdentityError::Refused { name, why });
        }
        if let Some(certificate) = status.certificate.filter(|c| !c.0.is_empty()) {
            let certificate = String::from_utf8_lossy(&certificate.0).into_owned();
            return Ok(format!("{}\n{}", certificate.trim_end(), key.serialize_pem()));
        }
    }
    Err(IdentityError::Pending { name })
}
