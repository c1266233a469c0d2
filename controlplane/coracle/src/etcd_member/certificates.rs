//! Certificates of the member. etcd reads them for every connection, so that renewed ones are used without a restart.

use super::{MemberConfig, MemberError};
use coracle_pki::authority::{Authority, Profile};
use coracle_pki::private_directory;
use std::path::PathBuf;

/// Paths of certificates and keys, as options of etcd name them.
#[derive(Debug, Clone)]
pub(super) struct Certificates {
    dir: PathBuf,
}

impl Certificates {
    /// In this directory; none is made.
    pub(super) fn of(dir: &std::path::Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Makes those that are missing, and renews those that are old.
    pub(super) fn ensure(config: &MemberConfig) -> Result<Self, MemberError> {
        let (dir, life) = (&config.pki_dir, config.certificate_life);
        private_directory(dir)?;
        let authority = Authority::ensure(dir, "etcd-ca", "coracle-etcd-ca")?;
        let mut names = vec![config.advertise_host.clone(), "localhost".to_owned(), "127.0.0.1".to_owned()];
        names.sort();
        names.dedup();
        let server = Profile::server("etcd-server", &names).lasting(life);
        authority.ensure_signed(dir, "etcd-server", &server)?;
        authority.ensure_signed(dir, "etcd-peer", &Profile::peer("etcd-peer", &names).lasting(life))?;
        let client = Profile::client("coracle-server", &[]).lasting(life);
        authority.ensure_signed(dir, "etcd-client", &client)?;
        Ok(Self { dir: dir.clone() })
    }

    /// The certificate of the CA.
    pub(super) fn authority(&self) -> PathBuf {
        self.dir.join("etcd-ca.crt")
    }

    /// The certificate of `server`, `peer` or `client`.
    pub(super) fn certificate(&self, of: &str) -> PathBuf {
        self.dir.join(format!("etcd-{of}.crt"))
    }

    /// Its key.
    pub(super) fn key(&self, of: &str) -> PathBuf {
        self.dir.join(format!("etcd-{of}.key"))
    }
}
