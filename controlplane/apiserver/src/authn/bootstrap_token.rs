//! Bootstrap tokens: `id.secret`, kept as Secrets in `kube-system`, for machines that have nothing else yet.

use super::{Known, TokenAuthenticator};
use crate::api::Api;
use async_trait::async_trait;
use coracle_client::user::{AUTHENTICATED, User};
use coracle_pki::bootstrap_token::{GROUP, PREFIX, SECRET_TYPE, expired, field, parse, same};
use std::sync::Arc;

/// Knows bootstrap tokens.
pub struct BootstrapTokens {
    /// Where the Secrets are.
    pub api: Arc<Api>,
}

#[async_trait]
impl TokenAuthenticator for BootstrapTokens {
    async fn authenticate(&self, token: &str, _: &[String]) -> Result<Option<Known>, String> {
        let Some((id, given)) = parse(token) else { return Ok(None) };
        let kind = self.api.registry.resource("", "v1", "secrets").ok_or("no secrets")?;
        let Ok(secret) = self.api.cached(&kind, "kube-system", &format!("{PREFIX}{id}")) else {
            return Err(format!("bootstrap token {id:?} is not known"));
        };
        if secret.meta.deletion_timestamp.is_some() {
            return Err(format!("bootstrap token {id:?} is being revoked"));
        }
        let secret = secret.value();
        if secret["type"] != SECRET_TYPE
            || field(&secret, "token-id") != id
            || !same(field(&secret, "token-secret").as_bytes(), given.as_bytes())
        {
            return Err(format!("bootstrap token {id:?} has another secret"));
        }
        if expired(&secret, jiff::Timestamp::now()) {
            return Err(format!("bootstrap token {id:?} is expired"));
        }
        if field(&secret, "usage-bootstrap-authentication") != "true" {
            return Err(format!("bootstrap token {id:?} is not for authentication"));
        }
        let more = field(&secret, "auth-extra-groups");
        let more: Vec<&str> = more.split(',').map(str::trim).filter(|group| !group.is_empty()).collect();
        if let Some(bad) = more.iter().find(|group| !group.starts_with("system:bootstrappers:")) {
            return Err(format!("bootstrap token {id:?} names the group {bad:?}"));
        }
        let groups = more.into_iter().map(str::to_owned).chain([GROUP.to_owned(), AUTHENTICATED.to_owned()]);
        Ok(Some(Known::here(User::new(format!("system:bootstrap:{id}"), groups))))
    }
}
