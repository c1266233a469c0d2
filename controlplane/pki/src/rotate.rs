//! Renewal of single certificates of a server, before they are due.

use crate::authority::{self, Authority, Profile};
use crate::inspect::{self, CertificateInfo};
use crate::{ADMIN, FRONT_PROXY_CLIENT, PkiError, SERVING};
use std::path::Path;

/// A certificate that can be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    /// What the API server shows to its clients.
    Serving,
    /// The administrator's.
    Admin,
    /// What the API server shows to aggregated servers, and to other servers.
    FrontProxyClient,
}

impl Leaf {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Serving, Self::Admin, Self::FrontProxyClient];

    /// The name of its files.
    pub fn file(self) -> &'static str {
        match self {
            Self::Serving => SERVING,
            Self::Admin => ADMIN,
            Self::FrontProxyClient => FRONT_PROXY_CLIENT,
        }
    }

    /// The certificate of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|leaf| leaf.file() == name)
    }

    /// The files of the authority that signs it.
    fn authority(self) -> &'static str {
        match self {
            Self::Serving | Self::Admin => "ca",
            Self::FrontProxyClient => "front-proxy-ca",
        }
    }

    /// Signs it anew, with a new key, for the names and the lifetime of the one that is there.
    pub fn rotate(self, dir: &Path) -> Result<CertificateInfo, PkiError> {
        let file = self.file();
        let path = dir.join(format!("{file}.crt"));
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => return Err(PkiError::Missing(path)),
            Err(source) => return Err(PkiError::File { path, source }),
        }
        let now = inspect::read(&path)?.remove(0);
        let key = dir.join(format!("{}.key", self.authority()));
        let authority = Authority::read(dir, self.authority())?.ok_or(PkiError::Missing(key))?;
        let life = authority::life_of(now.not_before, now.not_after);
        let profile = match self {
            Self::Serving => Profile::server("kube-apiserver", &now.names),
            Self::Admin => Profile::client("kubernetes-admin", &["system:masters"]),
            Self::FrontProxyClient => Profile::client("front-proxy-client", &[]),
        };
        authority.sign_anew(dir, file, &profile.lasting(life))?;
        Ok(inspect::read(&path)?.remove(0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Pki;
    use std::time::Duration;

    #[test]
    fn a_rotated_certificate_is_another_one_for_the_same_names_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let names = vec!["localhost".to_owned(), "192.0.2.1".to_owned()];
        for life in [3600, 90 * 86_400] {
            let pki = Pki::ensure(dir.path(), &names, Duration::from_secs(life)).unwrap();
            for leaf in Leaf::ALL {
                assert_eq!(Leaf::named(leaf.file()), Some(leaf));
                let path = dir.path().join(format!("{}.crt", leaf.file()));
                let before = inspect::read(&path).unwrap().remove(0);
                let after = leaf.rotate(dir.path()).unwrap();
                assert_ne!(before.serial, after.serial);
                assert_eq!((&before.subject, &before.names), (&after.subject, &after.names));
                assert!((before.life() - after.life()).abs() <= 2, "{} {}", before.life(), after.life());
            }
            // The server takes them as they are.
            let (serving, admin) = pki.renewed().unwrap();
            assert_ne!(serving.certificate, pki.serving.certificate);
            assert_eq!(admin.certificate, std::fs::read_to_string(dir.path().join("admin.crt")).unwrap());
            std::fs::remove_dir_all(dir.path()).unwrap();
        }
    }

    #[test]
    fn without_its_authority_nothing_changes() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Leaf::Admin.rotate(dir.path()), Err(PkiError::Missing(_))));
        let pki = Pki::ensure(dir.path(), &["localhost".to_owned()], Duration::from_secs(3600)).unwrap();
        std::fs::remove_file(dir.path().join("ca.key")).unwrap();
        let refused = Leaf::Admin.rotate(dir.path());
        assert!(matches!(&refused, Err(PkiError::Missing(path)) if path.ends_with("ca.key")), "{refused:?}");
        let there = std::fs::read_to_string(dir.path().join("admin.crt")).unwrap();
        assert_eq!(there, pki.admin.certificate);
        assert_eq!(Leaf::named("ca"), None);
    }
}
