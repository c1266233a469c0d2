//! Certificate signing requests.

use crate::registry::fields;
use crate::registry::kinds::{Kind, NameRule};

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
            .fields(fields::signing_request()),
    ]
}
