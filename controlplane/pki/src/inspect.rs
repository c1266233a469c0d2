//! What a certificate file says: subject, names, issuer, validity.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

/// Certificates of a file that are looked at.
const MAX_CERTIFICATES: usize = 32;

/// Why a certificate cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// It is not PEM.
    #[error("{0} is not PEM")]
    Pem(PathBuf),
    /// It holds no certificate.
    #[error("{0} holds no certificate")]
    Empty(PathBuf),
    /// A certificate in it cannot be read.
    #[error("{0} holds a certificate that cannot be read")]
    Certificate(PathBuf),
}

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateInfo {
    /// The subject: common name and organizations.
    pub subject: String,
    /// DNS names and addresses besides it.
    pub names: Vec<String>,
    /// Who signed it.
    pub issuer: String,
    /// The serial number in hexadecimal.
    pub serial: String,
    /// Whether it is the certificate of an authority.
    pub authority: bool,
    /// Since when it holds, in seconds since 1970.
    pub not_before: i64,
    /// Until when it holds, in seconds since 1970.
    pub not_after: i64,
}

impl CertificateInfo {
    /// Of a certificate in DER; `None` when it is none.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(Self {
            subject: certificate.subject().to_string(),
            names: names(&certificate),
            issuer: certificate.issuer().to_string(),
            serial: certificate.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect(),
            authority: certificate.is_ca(),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
        })
    }

    /// Whole days until it ends; negative when it has ended.
    pub fn days_left(&self, now: i64) -> i64 {
        (self.not_after - now).div_euclid(86_400)
    }

    /// How long it holds altogether, in seconds.
    pub fn life(&self) -> i64 {
        self.not_after - self.not_before
    }
}

/// The certificates of a file, in their order; not its keys.
pub fn read(path: &Path) -> Result<Vec<CertificateInfo>, InspectError> {
    let bytes = std::fs::read(path).map_err(|source| InspectError::Read(path.into(), source))?;
    parse(path, &bytes)
}

/// The certificates of a PEM text, in their order; errors name the file that it is from.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateInfo>, InspectError> {
    let mut found = Vec::new();
    for pem in Pem::iter_from_buffer(bytes).take(MAX_CERTIFICATES) {
        let pem = pem.map_err(|_| InspectError::Pem(path.into()))?;
        if pem.label != "CERTIFICATE" {
            continue;
        }
        let info = CertificateInfo::from_der(&pem.contents);
        found.push(info.ok_or_else(|| InspectError::Certificate(path.into()))?);
    }
    match found.is_empty() {
        true => Err(InspectError::Empty(path.into())),
        false => Ok(found),
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let shown = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) | GeneralName::RFC822Name(name) => {
            Some((*name).to_owned())
        }
        GeneralName::IPAddress(raw) => {
            let four = <[u8; 4]>::try_from(*raw).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*raw).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::authority::{Authority, Profile};
    use std::time::Duration;

    #[test]
    fn a_file_says_whose_certificate_it_holds_and_how_long() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::ensure(dir.path(), "ca", "test-ca").unwrap();
        let wanted = vec!["api.example".to_owned(), "192.0.2.1".to_owned(), "2001:db8::1".to_owned()];
        let profile = Profile::server("server", &wanted).lasting(Duration::from_secs(10 * 86_400));
        ca.ensure_signed(dir.path(), "server", &profile).unwrap();
        let read = |file: &str| read(&dir.path().join(file));
        let leaf = read("server.crt").unwrap().remove(0);
        assert_eq!((leaf.subject.as_str(), leaf.issuer.as_str()), ("CN=server", "CN=test-ca"));
        assert_eq!(leaf.names, wanted);
        assert!(!leaf.authority && read("ca.crt").unwrap()[0].authority);
        let now = leaf.not_after - 3 * 86_400 - 5;
        assert_eq!((leaf.days_left(now), leaf.days_left(leaf.not_after + 1)), (3, -1));
        assert!(leaf.life() >= 10 * 86_400);
    }

    #[test]
    fn what_is_no_certificate_is_named() {
        let dir = tempfile::tempdir().unwrap();
        Authority::ensure(dir.path(), "ca", "test-ca").unwrap();
        let path = dir.path().join("broken.crt");
        assert!(matches!(read(&path), Err(InspectError::Read(..))));
        std::fs::write(&path, "nothing").unwrap();
        assert!(matches!(read(&path), Err(InspectError::Empty(_) | InspectError::Pem(_))));
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(matches!(read(&path), Err(InspectError::Certificate(_))));
        assert!(matches!(read(&dir.path().join("ca.key")), Err(InspectError::Empty(_))));
    }
}
