//! Bootstrap tokens: `id.secret`, stored as Secrets in `kube-system`, for nodes that join.

use super::authenticated::Authenticated;
use crate::objects::Objects;
use coracle_client::user::{AUTHENTICATED, User};
use coracle_fields::Schema as _;
use coracle_fields::core::v1::Secret;
use coracle_pki::bootstrap_token::{GROUP, PREFIX, SECRET_TYPE, expired, field, parse, same};
use std::sync::Arc;

/// Why a bootstrap token does not hold.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapTokenError {
    /// The server has no Secrets.
    #[error("no secrets")]
    NoSecrets,
    /// There is no Secret of this id.
    #[error("bootstrap token {0:?} is not known")]
    Unknown(String),
    /// Its Secret is being deleted.
    #[error("bootstrap token {0:?} is being revoked")]
    Revoked(String),
    /// Its Secret holds another token.
    #[error("bootstrap token {0:?} has another secret")]
    Secret(String),
    /// It has expired.
    #[error("bootstrap token {0:?} is expired")]
    Expired(String),
    /// It is not meant for authentication.
    #[error("bootstrap token {0:?} is not for authentication")]
    Usage(String),
    /// It names a group that tokens do not give.
    #[error("bootstrap token {id:?} names the group {group:?}")]
    Group {
        /// The token's id.
        id: String,
        /// The group.
        group: String,
    },
}

/// Knows bootstrap tokens.
pub struct BootstrapTokens {
    /// Where the Secrets are.
    pub objects: Arc<Objects>,
}

impl BootstrapTokens {
    /// The owner of a token; `None` if the token is of another kind.
    pub(super) fn known(&self, token: &str) -> Result<Option<Authenticated>, BootstrapTokenError> {
        let Some((id, given)) = parse(token) else { return Ok(None) };
        let kind =
            self.objects.registry.resource("", "v1", "secrets").ok_or(BootstrapTokenError::NoSecrets)?;
        let Ok(secret) = self.objects.cached(&kind, "kube-system", &format!("{PREFIX}{id}")) else {
            return Err(BootstrapTokenError::Unknown(id.to_owned()));
        };
        if secret.meta.deletion_timestamp.is_some() {
            return Err(BootstrapTokenError::Revoked(id.to_owned()));
        }
        let secret = secret.value();
        if Secret::of(&secret).type_() != SECRET_TYPE
            || field(&secret, "token-id") != id
            || !same(field(&secret, "token-secret").as_bytes(), given.as_bytes())
        {
            return Err(BootstrapTokenError::Secret(id.to_owned()));
        }
        if expired(&secret, jiff::Timestamp::now()) {
            return Err(BootstrapTokenError::Expired(id.to_owned()));
        }
        if field(&secret, "usage-bootstrap-authentication") != "true" {
            return Err(BootstrapTokenError::Usage(id.to_owned()));
        }
        let more = field(&secret, "auth-extra-groups");
        let more: Vec<&str> = more.split(',').map(str::trim).filter(|group| !group.is_empty()).collect();
        if let Some(bad) = more.iter().find(|group| !group.starts_with("system:bootstrappers:")) {
            return Err(BootstrapTokenError::Group { id: id.to_owned(), group: (*bad).to_owned() });
        }
        let groups = more.into_iter().map(str::to_owned).chain([GROUP.to_owned(), AUTHENTICATED.to_owned()]);
        Ok(Some(Authenticated::for_this_server(User::new(format!("system:bootstrap:{id}"), groups))))
    }
}
