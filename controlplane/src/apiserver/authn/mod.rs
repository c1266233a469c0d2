//! Authentication: an ordered union; the first authenticator that knows the credentials decides.

// Client certificates.
pub mod x509;
// Service-account tokens.
pub mod service_account;

use super::user::User;
use coracle_proto::status::ApiError;
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The bearer token of a request: from the header, or from the WebSocket subprotocol that browsers use.
pub fn bearer(headers: &HeaderMap) -> Option<String> {
    let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim().to_owned())
}

/// Knows some kind of bearer token.
#[async_trait::async_trait]
pub trait TokenAuthenticator: Send + Sync {
    /// `None` when the token is none of its kind; an error when it is and does not hold.
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Result<Option<User>, String>;
}

/// The union.
#[derive(Default)]
pub struct Union {
    /// Those who know tokens, in order.
    pub tokens: Vec<Box<dyn TokenAuthenticator>>,
    /// Whether requests without credentials are let through as `system:anonymous`.
    pub anonymous: bool,
}

impl Union {
    /// Who sent the request: the certificate first, then the tokens, then nobody.
    pub async fn authenticate(
        &self,
        certificate: Option<&User>,
        headers: &HeaderMap,
    ) -> Result<User, ApiError> {
        if let Some(user) = certificate {
            return Ok(user.clone());
        }
        if let Some(token) = bearer(headers) {
            return self.token(&token, &[]).await.map_err(|why| {
                tracing::debug!(%why, "bearer token refused");
                ApiError::unauthorized()
            });
        }
        if self.anonymous && !headers.contains_key(AUTHORIZATION) {
            return Ok(User::anonymous());
        }
        Err(ApiError::unauthorized())
    }

    /// Who a token belongs to; the error lists what every authenticator had against it.
    pub async fn token(&self, token: &str, audiences: &[String]) -> Result<User, String> {
        let mut reasons = Vec::new();
        for authenticator in &self.tokens {
            match authenticator.authenticate(token, audiences).await {
                Ok(Some(user)) => return Ok(user),
                Ok(None) => {}
                Err(why) => reasons.push(why),
            }
        }
        Err(if reasons.is_empty() { "unknown token".into() } else { format!("[{}]", reasons.join(", ")) })
    }
}
