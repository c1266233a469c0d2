//! Errors of token authentication.

use super::bootstrap_token::BootstrapTokenError;
use super::oidc::OidcError;
use super::service_account::ServiceAccountError;
use super::webhook::WebhookError;

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
