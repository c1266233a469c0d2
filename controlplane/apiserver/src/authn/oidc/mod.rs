//! JSON Web Tokens of OpenID Connect providers: verified with the provider's published keys, claims become users.

// Metrics of an issuer.
pub mod metrics;
// Discovery and keys of a provider.
mod provider;
// Expressions over claims and users.
pub mod expression;
// What claims mean.
pub mod mapping;
// All issuers.
mod issuers;

pub use issuers::Issuers;
pub use provider::{Issuer, ProviderError};

use coracle_client::user::User;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use mapping::{Mapping, MappingError};
use metrics::IssuerMetrics;
use provider::Provider;
use serde_json::Value;
use std::sync::Arc;

/// Algorithms that tokens may be signed with: those with a public key.
pub const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::EdDSA,
];

/// Why a token of the provider does not hold.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    /// It is longer than tokens are.
    #[error("oidc: the token is longer than {0} bytes")]
    TooLong(usize),
    /// There are no keys to verify it with.
    #[error("oidc: {0}")]
    Provider(ProviderError),
    /// The token or the provider's key cannot be read.
    #[error("oidc: {0}")]
    Token(jsonwebtoken::errors::Error),
    /// Signed in a way that is not allowed.
    #[error("oidc: tokens are not to be signed with {0:?}")]
    Algorithm(Algorithm),
    /// Signed with another key.
    #[error("oidc: the token is signed with a key that the provider does not publish")]
    UnknownKey,
    /// A wrong signature, audience or time.
    #[error("oidc: verify token: {0}")]
    Verify(jsonwebtoken::errors::Error),
    /// Its claims are those of nobody.
    #[error("oidc: {0}")]
    Mapping(MappingError),
}

/// An issuer, and what the claims of its tokens mean.
pub struct Settings {
    /// The issuer.
    pub issuer: Issuer,
    /// From claims to users.
    pub mapping: Mapping,
}

/// Knows the tokens of one issuer.
struct Oidc {
    settings: Settings,
    provider: Arc<Provider>,
    metrics: Arc<IssuerMetrics>,
}

impl Oidc {
    /// The owner of a token that names this issuer.
    async fn user(&self, token: &str) -> Result<User, OidcError> {
        let header = jsonwebtoken::decode_header(token).map_err(OidcError::Token)?;
        if !self.settings.issuer.algorithms.contains(&header.alg) {
            return Err(OidcError::Algorithm(header.alg));
        }
        let keys = self.provider.keys(header.kid.as_deref()).await.map_err(OidcError::Provider)?;
        let mut refused = OidcError::UnknownKey;
        for key in keys.candidates(header.kid.as_deref()) {
            let verified = DecodingKey::from_jwk(key)
                .map_err(OidcError::Token)
                .and_then(|key| self.verified(token, header.alg, &key));
            match verified {
                Ok(claims) => return self.settings.mapping.user(&claims).map_err(OidcError::Mapping),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    fn verified(&self, token: &str, algorithm: Algorithm, key: &DecodingKey) -> Result<Value, OidcError> {
        let issuer = &self.settings.issuer;
        let mut validation = Validation::new(algorithm);
        validation.set_issuer(&[&issuer.url]);
        validation.set_audience(&issuer.audiences);
        // Without this a token that names no audience would be for everybody.
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = 10;
        let decoded = jsonwebtoken::decode::<Value>(token, key, &validation);
        Ok(decoded.map_err(OidcError::Verify)?.claims)
    }
}
