//! Client certificates: the common name is the user, the organizations are the groups. The handshake has verified the
//! chain; what may change while a connection lasts (expiry, revocation) is looked at with every request.

use crate::apiserver::api::Api;
use crate::apiserver::user::User;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Where revoked nodes stand, in `kube-system`: node name to the time since when its certificates count.
pub const REVOKED: &str = "coracle-revoked-nodes";

/// Which of our authorities signed a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issuer {
    /// The cluster's: the holder is the user.
    Cluster,
    /// That of proxies: the holder says who the user is.
    FrontProxy,
}

/// A verified client certificate.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// Who signed it.
    pub issuer: Issuer,
    /// Whom it names; `None` when it names nobody.
    pub user: Option<User>,
    /// Since when and until when it holds, in seconds since 1970.
    pub validity: (i64, i64),
}

impl Certificate {
    /// Reads a certificate that the handshake verified against the two authorities, whose public keys are given in DER.
    pub fn read(der: &[u8], front_proxy: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let proxy = X509Certificate::from_der(front_proxy).ok();
        let by_proxy =
            proxy.is_some_and(|(_, ca)| certificate.verify_signature(Some(ca.public_key())).is_ok());
        let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let groups = certificate.subject().iter_organization();
        let groups = groups.filter_map(|o| o.as_str().ok().map(str::to_owned));
        let mut user = name.filter(|name| !name.is_empty()).map(|name| User::new(name, groups));
        if let Some(user) = &mut user {
            let hex: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
            user.extra.insert(
                "authentication.kubernetes.io/credential-id".into(),
                vec![format!("X509SHA256={hex}")],
            );
        }
        let validity = certificate.validity();
        Some(Self {
            issuer: if by_proxy { Issuer::FrontProxy } else { Issuer::Cluster },
            user,
            validity: (validity.not_before.timestamp(), validity.not_after.timestamp()),
        })
    }
}

/// Decides whether a certificate still counts.
pub struct Certificates {
    api: Arc<Api>,
}

impl Certificates {
    /// On the caches of a server.
    pub fn new(api: Arc<Api>) -> Self {
        Self { api }
    }

    /// The user of a certificate of the cluster's authority; an error says why it does not count any more.
    pub fn user(&self, certificate: &Certificate) -> Result<Option<User>, String> {
        let Some(user) = certificate.user.as_ref().filter(|_| certificate.issuer == Issuer::Cluster) else {
            return Ok(None);
        };
        let (from, until) = certificate.validity;
        if jiff::Timestamp::now().as_second() > until {
            return Err("x509: certificate has expired or is not yet valid".into());
        }
        if let Some(node) = user.node()
            && let Some(since) = self.revoked(node)
            && from < since
        {
            return Err(format!("x509: the certificates of node {node:?} are revoked"));
        }
        Ok(Some(user.clone()))
    }

    /// Since when certificates of a node count again, when it was revoked.
    fn revoked(&self, node: &str) -> Option<i64> {
        let kind = self.api.registry.resource("", "v1", "configmaps")?;
        let list = self.api.cached(&kind, "kube-system", REVOKED).ok()?.value();
        let since = list["data"][node].as_str()?;
        // A time that cannot be read revokes for good.
        Some(since.parse::<jiff::Timestamp>().map_or(i64::MAX, |time| time.as_second()))
    }
}
