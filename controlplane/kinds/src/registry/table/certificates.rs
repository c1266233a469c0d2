//! Certificate signing requests.

use crate::registry::kinds::{Kind, NameRule};
use crate::registry::{columns, fields, strategy};
use coracle_validation::access;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("certificates.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("CertificateSigningRequest", "certificatesigningrequests")
            .cluster()
            .short(&["csr"])
            .status()
            .with_subresources(&["approval"])
            .names(NameRule::PathSegment)
            .fields(fields::signing_request())
            .columns(columns::certificate_request())
            .prepare(strategy::cluster::create_signing_request, strategy::cluster::update_signing_request)
            .sign(strategy::cluster::sign_request)
            .prepare_status(strategy::cluster::signing_request_status)
            .validate(access::signing_request, |_, _, _| ())
            .validate_status(access::signing_request_status)
            .change("approval", strategy::cluster::approve_signing_request, access::signing_request_approval),
    ]
}
