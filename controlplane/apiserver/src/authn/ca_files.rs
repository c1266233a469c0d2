//! Certificate authorities of the operator, besides those of the cluster: files of `--client-ca-file` and
//! `--requestheader-client-ca-file`.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The largest file that is read.
const MAX_FILE: u64 = 1 << 20;

/// Why a file of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaFileError {
    /// It cannot be read.
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// It is too large.
    #[error("{0} is larger than {MAX_FILE} bytes")]
    TooLarge(PathBuf),
    /// It is no PEM.
    #[error("{0} is not PEM")]
    Pem(PathBuf, #[source] rustls_pki_types::pem::Error),
    /// It has no certificate.
    #[error("{0} contains no certificate")]
    Empty(PathBuf),
    /// One of its certificates cannot be an authority.
    #[error("a certificate of {0} cannot be used")]
    Certificate(PathBuf, #[source] rustls::Error),
}

/// The certificates of one file; none without a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaBundle(Vec<CertificateDer<'static>>);

impl CaBundle {
    /// Reads a file. A file with a certificate that cannot be used is an error: half of it would reject clients without a word.
    pub fn read(path: &Path) -> Result<Self, CaFileError> {
        let failed = |error| CaFileError::Read(path.into(), error);
        let mut text = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_FILE {
            return Err(CaFileError::TooLarge(path.into()));
        }
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &[u8]) -> Result<Self, CaFileError> {
        let mut roots = rustls::RootCertStore::empty();
        let mut all = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(text) {
            let certificate = certificate.map_err(|error| CaFileError::Pem(path.into(), error))?;
            roots.add(certificate.clone()).map_err(|error| CaFileError::Certificate(path.into(), error))?;
            all.push(certificate);
        }
        if all.is_empty() {
            return Err(CaFileError::Empty(path.into()));
        }
        Ok(Self(all))
    }

    /// The certificates, DER.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0
    }

    /// The certificates in one PEM text.
    pub fn pem(&self) -> String {
        self.0.iter().map(|certificate| coracle_pki::bundle::pem(certificate)).collect()
    }
}

/// The authorities of the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperatorCas {
    /// Sign certificates of users.
    pub clients: CaBundle,
    /// Sign certificates of front proxies.
    pub proxies: CaBundle,
}

impl OperatorCas {
    /// Reads the files that are given.
    pub fn read(clients: Option<&Path>, proxies: Option<&Path>) -> Result<Self, CaFileError> {
        let read = |path: Option<&Path>| path.map(CaBundle::read).transpose();
        Ok(Self { clients: read(clients)?.unwrap_or_default(), proxies: read(proxies)?.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_pki::authority::Authority;

    #[test]
    fn a_file_has_certificates_only() {
        let dir = tempfile::tempdir().unwrap();
        let one = Authority::ensure(dir.path(), "one", "one").unwrap().certificate.clone();
        let two = Authority::ensure(dir.path(), "two", "two").unwrap().certificate.clone();
        let path = dir.path().join("bundle.pem");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            CaBundle::read(&path)
        };
        let both = read(&format!("# ours\n{one}\n{two}")).unwrap();
        assert_eq!(both.certificates().len(), 2);
        assert_eq!(read(&both.pem()).unwrap(), both, "what is published can be read");
        assert!(matches!(read(""), Err(CaFileError::Empty(_))));
        assert!(matches!(read("hello"), Err(CaFileError::Empty(_))));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(read(&format!("{one}{broken}")), Err(CaFileError::Certificate(..))));
        let torn = one.replace("-----END CERTIFICATE-----", "");
        assert!(matches!(read(&torn), Err(CaFileError::Pem(..))), "half a file");
        assert!(matches!(read(&" ".repeat(MAX_FILE as usize + 1)), Err(CaFileError::TooLarge(_))));
        let missing = dir.path().join("missing");
        assert!(matches!(CaBundle::read(&missing), Err(CaFileError::Read(..))));
        assert_eq!(OperatorCas::read(None, None).unwrap(), OperatorCas::default());
    }
}
