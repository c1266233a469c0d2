//! Certificates that have ended.

use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_fields::View;
use coracle_fields::core::v1::Secret;
use jiff::Timestamp;
use x509_parser::pem::parse_x509_pem;

/// The first certificate of a PEM file, from when and until when it is valid.
fn validity(pem: &[u8]) -> Option<(i64, i64)> {
    let (_, block) = parse_x509_pem(pem).ok()?;
    let certificate = block.parse_x509().ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

/// Why a certificate is not valid at a time, and since when.
pub fn trouble_of(pem: &[u8], now: Timestamp) -> Option<(String, String)> {
    let (begin, end) = validity(pem)?;
    let text = |second: i64| {
        Timestamp::from_second(second).map_or_else(|_| second.to_string(), |time| time.to_string())
    };
    if end < now.as_second() {
        return Some((format!("ended at {}", text(end)), text(end)));
    }
    (begin > now.as_second()).then(|| (format!("is not valid before {}", text(begin)), String::new()))
}

/// A TLS Secret whose certificate has ended; `object` is what uses it.
pub fn of_secret(world: &World, secret: View<'_, Secret>, object: ObjectRef) -> Option<Finding> {
    let pem = STANDARD.decode(secret.data().key("tls.crt").text()).ok()?;
    let (text, since) = trouble_of(&pem, world.now())?;
    let name = secret.metadata().name().text();
    let finding = Finding::new(
        object,
        Trouble::CertificateEnded,
        format!("the certificate in the Secret {name} {text}"),
    )
    .since(&since)
    .evidence("clock of this analysis", world.now().to_string())
    .remedy(format!("renew the certificate in the Secret {name}"));
    Some(finding)
}
