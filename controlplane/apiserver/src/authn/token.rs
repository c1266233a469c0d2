//! Authentication of bearer tokens: each authenticator with its errors.

use super::authenticated::Authenticated;
use super::bootstrap_token::{BootstrapTokenError, BootstrapTokens};
use super::files::Credentials;
use super::oidc::{Issuers, OidcError};
use super::service_account::{ServiceAccountError, ServiceAccounts};
use super::webhook::{TokenWebhook, WebhookError};
use async_trait::async_trait;
use std::sync::Arc;

/// What speaks against a token. Clients read it in the status of a TokenReview, everybody else only in the log.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// A service-account token that does not hold.
    #[error(transparent)]
    ServiceAccount(#[from] ServiceAccountError),
    /// A bootstrap token that does not hold.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapTokenError),
    /// A token of the identity provider that does not hold.
    #[error(transparent)]
    Oidc(#[from] OidcError),
    /// The webhook does not know it, or does not answer.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// It holds, but not for those who are asked about.
    #[error("token audiences {own:?} is invalid for the target audiences {wanted:?}")]
    Audience {
        /// The audiences of this server.
        own: Vec<String>,
        /// The audiences that it must be for.
        wanted: Vec<String>,
    },
    /// No authenticator knows such tokens.
    #[error("unknown token")]
    Unknown,
    /// What each authenticator had against it.
    #[error("[{}]", joined(.0))]
    Refused(Vec<TokenError>),
}

fn joined(errors: &[TokenError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Authenticates one kind of bearer token.
#[async_trait]
pub trait TokenAuthenticator: Send + Sync {
    /// `None` if the token is of another kind; an error if it is invalid.
    async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<Authenticated>, TokenError>;
}

#[async_trait]
impl TokenAuthenticator for Credentials {
    async fn authenticate(&self, token: &str, _: &[String]) -> Result<Option<Authenticated>, TokenError> {
        Ok(self.known(token))
    }
}

#[async_trait]
impl TokenAuthenticator for ServiceAccounts {
    async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<Authenticated>, TokenError> {
        Ok(self.known(token, audiences)?)
    }
}

#[async_trait]
impl TokenAuthenticator for BootstrapTokens {
    async fn authenticate(&self, token: &str, _: &[String]) -> Result<Option<Authenticated>, TokenError> {
        Ok(self.known(token)?)
    }
}

#[async_trait]
impl TokenAuthenticator for Arc<Issuers> {
    async fn authenticate(&self, token: &str, _: &[String]) -> Result<Option<Authenticated>, TokenError> {
        Ok(self.known(token).await?)
    }
}

#[async_trait]
impl TokenAuthenticator for TokenWebhook {
    async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<Authenticated>, TokenError> {
        Ok(self.known(token, audiences).await?)
    }
}
