//! Certificates as PEM, also several in one text.

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::Digest;
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

const END: &str = "-----END CERTIFICATE-----";

/// The certificates of a text, each as PEM.
pub fn split(certificates: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = certificates;
    while let Some((before, after)) = rest.split_once(END) {
        if let Some(begin) = before.find("-----BEGIN CERTIFICATE-----") {
            all.push(format!("{}{END}\n", &before[begin..]));
        }
        rest = after;
    }
    all
}

/// A certificate as PEM.
pub fn pem(der: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let encoded = STANDARD.encode(der);
    for line in encoded.as_bytes().chunks(64) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

/// What a function finds in the first certificate of a text.
fn first<T>(certificate: &str, find: impl FnOnce(&X509Certificate<'_>) -> T) -> Option<T> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    Some(find(&certificate))
}

/// Whether a certificate is for a public key, the point itself.
pub(crate) fn has_key(certificate: &str, key: &[u8]) -> bool {
    first(certificate, |one| &one.public_key().subject_public_key.data[..] == key).unwrap_or(false)
}

/// Since when the first certificate of a text holds, in seconds since 1970.
pub(crate) fn not_before(certificate: &str) -> Option<i64> {
    first(certificate, |one| one.validity().not_before.timestamp())
}

/// The hash of the authority in `bundle` that has signed a certificate, both PEM; `None` if none has.
pub fn issuer_of(certificate: &[u8], bundle: &str) -> Option<String> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate).ok()?;
    let (_, leaf) = X509Certificate::from_der(&pem.contents).ok()?;
    Pem::iter_from_buffer(bundle.as_bytes()).map_while(Result::ok).find_map(|pem| {
        let (_, authority) = X509Certificate::from_der(&pem.contents).ok()?;
        leaf.verify_signature(Some(authority.public_key())).ok()?;
        let digest = sha2::Sha256::digest(authority.public_key().raw);
        Some(format!("sha256:{}", crate::hex::encode(&digest)))
    })
}
