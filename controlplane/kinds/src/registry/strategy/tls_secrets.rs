//! Warnings about TLS Secrets whose certificate and key do not match, with the messages of Go's TLS.

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_fields::Schema;
use coracle_fields::core::v1::Secret;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys};
use serde_json::Value;

/// A Secret.
pub fn secret(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let object = Secret::of(object);
    if object.type_() != "kubernetes.io/tls" {
        return Vec::new();
    }
    let of = |key: &str| {
        let text = object.data().key(key).text();
        String::from_utf8(STANDARD.decode(text).unwrap_or_default()).unwrap_or_default()
    };
    wrong(&of("tls.crt"), &of("tls.key")).into_iter().collect()
}

/// What is wrong with a pair, when something is.
fn wrong(certificate: &str, key: &str) -> Option<String> {
    let blocks = pem(certificate);
    let chain: Vec<CertificateDer<'_>> = blocks
        .iter()
        .filter(|(label, _)| *label == "CERTIFICATE")
        .map(|(_, der)| CertificateDer::from(der.clone()))
        .collect();
    if chain.is_empty() {
        return Some(match &labels(&blocks)[..] {
            [] => "tls: failed to find any PEM data in certificate input".into(),
            [only] if only.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".into(),
            skipped => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", skipped.join(" ")),
        });
    }
    let blocks = pem(key);
    let found = blocks.iter().find(|(label, _)| *label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY"));
    let Some((_, der)) = found else {
        return Some(match &labels(&blocks)[..] {
            [] => "tls: failed to find any PEM data in key input".into(),
            ["CERTIFICATE"] => {
                "tls: found a certificate rather than a key in the PEM for the private key".into()
            }
            skipped => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
                skipped.join(" ")
            ),
        });
    };
    let Ok(der) = PrivateKeyDer::try_from(der.clone()) else {
        return Some("tls: failed to parse private key".into());
    };
    // A key that only others can read is nothing to warn of.
    let key = any_supported_type(&der).ok()?;
    match CertifiedKey::new(chain, key).keys_match() {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Some("tls: private key does not match public key".into())
        }
        Err(Error::InvalidCertificate(CertificateError::BadEncoding)) => {
            Some("x509: malformed certificate".into())
        }
        // What only others can read is nothing to warn of.
        _ => None,
    }
}

fn labels<'a>(blocks: &[(&'a str, Vec<u8>)]) -> Vec<&'a str> {
    blocks.iter().map(|(label, _)| *label).collect()
}

/// The blocks of a PEM file: label and bytes; what is around and between them is no matter.
fn pem(text: &str) -> Vec<(&str, Vec<u8>)> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((label, body)) = after.split_once("-----") else { break };
        let end = format!("-----END {label}-----");
        let Some((body, after)) = body.split_once(&end) else {
            rest = after;
            continue;
        };
        // Headers, of keys that need a password, are no part of the data.
        let packed: String =
            body.lines().filter(|line| !line.contains(':')).flat_map(str::split_whitespace).collect();
        blocks.extend(STANDARD.decode(packed).ok().map(|der| (label, der)));
        rest = after;
    }
    blocks
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn pairs_belong_together() {
        let ((certificate, key), (_, other)) = (pair(), pair());
        let encoded = |text: &str| STANDARD.encode(text);
        let said = |certificate: &str, key: &str| {
            let data = json!({"tls.crt": encoded(certificate), "tls.key": encoded(key)});
            secret(&json!({"type": "kubernetes.io/tls", "data": data}), None).join("|")
        };
        let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let request = "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n";
        for (certificate, key, want) in [
            (&*certificate, &*key, ""),
            (&*certificate, &*other, "tls: private key does not match public key"),
            ("x", "y", "tls: failed to find any PEM data in certificate input"),
            (&*certificate, "y", "tls: failed to find any PEM data in key input"),
            (
                &*certificate,
                &*certificate,
                "tls: found a certificate rather than a key in the PEM for the private key",
            ),
            (&*certificate, broken, "tls: failed to parse private key"),
            (
                &*key,
                &*key,
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched",
            ),
            (
                request,
                &*key,
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [CERTIFICATE REQUEST]",
            ),
        ] {
            assert_eq!(said(certificate, key), want);
        }
        assert!(secret(&json!({"type": "Opaque", "data": {"tls.crt": "eA=="}}), None).is_empty());
    }
}
