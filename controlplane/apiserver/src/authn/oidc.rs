//! Tokens of an OpenID Connect provider: verified with the provider's published keys, claims become user and groups.

use super::authenticated::Authenticated;
use super::service_account;
use crate::https_client::{ClientTls, HttpsClient, HttpsClientError};
use coracle_client::user::User;
use http::Method;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The provider is not asked for its keys more often than this.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Keys are fetched anew after this even when all is well: a provider may withdraw one.
const STALE: Duration = Duration::from_secs(3600);

/// Why a token of the provider does not hold.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    /// There are no keys to verify it with.
    #[error("oidc: {0}")]
    Provider(ProviderError),
    /// There are no keys, and the provider was asked for them a moment ago.
    #[error("oidc: the provider did not answer a moment ago")]
    NoAnswer,
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
    /// A required claim is missing or has another value.
    #[error("oidc: required claim {claim} is not {value}")]
    Required {
        /// The claim.
        claim: String,
        /// The value that it must have.
        value: String,
    },
    /// The claim that names the user does not.
    #[error("oidc: claim {0} is missing or no text")]
    Name(String),
    /// The user is named by an address that nobody checked.
    #[error("oidc: email not verified")]
    Email,
    /// The claim that lists the groups does not.
    #[error("oidc: claim {0} is no list of texts")]
    Groups(String),
}

/// What is read of the provider's `/.well-known/openid-configuration`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProviderDocument {
    issuer: Value,
    jwks_uri: Value,
}

/// Why the provider's keys are not known.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The provider does not answer.
    #[error(transparent)]
    HttpsClient(#[from] HttpsClientError),
    /// The provider answers something else than 200.
    #[error("{url} answered {code}")]
    Status {
        /// Where it was asked.
        url: String,
        /// What it answered.
        code: u16,
    },
    /// The provider has another name.
    #[error("the provider calls itself {0}")]
    Issuer(String),
    /// The provider does not say where its keys are.
    #[error("the provider publishes no keys")]
    NoKeys,
    /// The provider's keys cannot be read.
    #[error("keys of the provider: {0}")]
    Keys(serde_json::Error),
}

/// What to expect of the provider's tokens.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `iss`, and where the provider is found.
    pub issuer: String,
    /// `aud`.
    pub client_id: String,
    /// The claim with the user's name.
    pub username_claim: String,
    /// Put before names; `-` for nothing; empty for the issuer unless the claim is `email`.
    pub username_prefix: String,
    /// The claim with the groups.
    pub groups_claim: String,
    /// Put before groups.
    pub groups_prefix: String,
    /// Claims that must be there with these values.
    pub required: Vec<(String, String)>,
    /// Algorithms that tokens may be signed with.
    pub algorithms: Vec<Algorithm>,
}

struct Keys {
    set: JwkSet,
    fetched: Instant,
}

/// Knows the provider's tokens.
pub struct Oidc {
    settings: Settings,
    tls: ClientTls,
    keys: RwLock<Option<Arc<Keys>>>,
    last_fetch: tokio::sync::Mutex<Option<Instant>>,
}

impl Oidc {
    /// A provider; its keys are fetched when the first token comes.
    pub fn new(settings: Settings, authority: Option<String>) -> Self {
        coracle_pki::jwt::install();
        let tls = ClientTls { authority, client: None };
        Self { settings, tls, keys: RwLock::default(), last_fetch: tokio::sync::Mutex::default() }
    }

    async fn fetch(&self) -> Result<JwkSet, ProviderError> {
        let place = |url: &str| HttpsClient::new(url, &self.tls);
        let get = |remote: Result<HttpsClient, HttpsClientError>, path: &'static str| async move {
            let remote = remote?;
            let (code, body) = remote.send(Method::GET, path, None).await?;
            let url = || remote.url().to_owned();
            if code == 200 { Ok(body) } else { Err(ProviderError::Status { url: url(), code }) }
        };
        let document = get(place(&self.settings.issuer), "/.well-known/openid-configuration").await?;
        let document: ProviderDocument = serde_json::from_value(document).unwrap_or_default();
        if document.issuer != self.settings.issuer {
            return Err(ProviderError::Issuer(document.issuer.to_string()));
        }
        let keys = document.jwks_uri.as_str().ok_or(ProviderError::NoKeys)?;
        serde_json::from_value(get(place(keys), "").await?).map_err(ProviderError::Keys)
    }

    /// The provider's keys; fetched when there are none, when they are old, or when one that is wanted is missing.
    async fn keys(&self, wanted: Option<&str>) -> Result<Arc<Keys>, OidcError> {
        let good = |keys: &Keys| {
            keys.fetched.elapsed() < STALE && wanted.is_none_or(|id| keys.set.find(id).is_some())
        };
        let known = || self.keys.read().clone();
        if let Some(keys) = known().filter(|keys| good(keys)) {
            return Ok(keys);
        }
        let mut last = self.last_fetch.lock().await;
        if let Some(keys) =
            known().filter(|keys| good(keys) || last.is_some_and(|at| at.elapsed() < ASK_AGAIN))
        {
            return Ok(keys);
        }
        if last.is_some_and(|at| at.elapsed() < ASK_AGAIN) {
            return Err(OidcError::NoAnswer);
        }
        *last = Some(Instant::now());
        match self.fetch().await {
            Ok(set) => {
                let keys = Arc::new(Keys { set, fetched: Instant::now() });
                *self.keys.write() = Some(keys.clone());
                Ok(keys)
            }
            // Old keys are better than none while the provider is away.
            Err(why) => known().ok_or(OidcError::Provider(why)),
        }
    }
}

impl Oidc {
    /// The owner of a token of the provider; `None` if the token is of another kind.
    pub(super) async fn known(&self, token: &str) -> Result<Option<Authenticated>, OidcError> {
        let mut parts = token.split('.');
        let (Some(_), Some(payload), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Ok(None);
        };
        if service_account::issuer(payload).is_none_or(|issuer| issuer != self.settings.issuer) {
            return Ok(None);
        }
        let header = jsonwebtoken::decode_header(token).map_err(OidcError::Token)?;
        if !self.settings.algorithms.contains(&header.alg) {
            return Err(OidcError::Algorithm(header.alg));
        }
        let keys = self.keys(header.kid.as_deref()).await?;
        let key = match &header.kid {
            Some(id) => keys.set.find(id),
            None => keys.set.keys.first(),
        };
        let key = key.ok_or(OidcError::UnknownKey)?;
        let key = DecodingKey::from_jwk(key).map_err(OidcError::Token)?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&[&self.settings.client_id]);
        // Without this a token that names no audience would be for everybody.
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = 10;
        let claims = jsonwebtoken::decode::<Value>(token, &key, &validation);
        let claims = claims.map_err(OidcError::Verify)?.claims;
        user(&self.settings, &claims).map(|user| Some(Authenticated::for_this_server(user)))
    }
}

/// The user that verified claims describe.
fn user(settings: &Settings, claims: &Value) -> Result<User, OidcError> {
    for (claim, value) in &settings.required {
        if claims[claim] != *value {
            return Err(OidcError::Required { claim: claim.clone(), value: value.clone() });
        }
    }
    let claim = settings.username_claim.as_str();
    let name = claims[claim].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| OidcError::Name(claim.to_owned()))?;
    if claim == "email" && claims.get("email_verified").is_some_and(|verified| *verified != true) {
        return Err(OidcError::Email);
    }
    let prefix = match settings.username_prefix.as_str() {
        "-" => String::new(),
        "" if claim == "email" => String::new(),
        "" => format!("{}#", settings.issuer),
        prefix => prefix.to_owned(),
    };
    let groups = match &claims[settings.groups_claim.as_str()] {
        _ if settings.groups_claim.is_empty() => Vec::new(),
        Value::String(one) => vec![one.clone()],
        Value::Array(all) => all.iter().filter_map(|g| g.as_str().map(str::to_owned)).collect(),
        Value::Null => Vec::new(),
        _ => return Err(OidcError::Groups(settings.groups_claim.clone())),
    };
    let groups = groups.into_iter().map(|group| format!("{}{group}", settings.groups_prefix));
    Ok(User::new(format!("{prefix}{name}"), groups))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_become_users() {
        let mut settings = Settings {
            issuer: "https://id".into(),
            username_claim: "sub".into(),
            groups_claim: "groups".into(),
            groups_prefix: "oidc:".into(),
            ..Settings::default()
        };
        let claims =
            json!({"sub": "ann", "groups": ["dev"], "email": "a@b", "email_verified": false, "hd": "x"});
        let ann = user(&settings, &claims).unwrap();
        assert_eq!(ann.name, "https://id#ann");
        assert!(ann.in_group("oidc:dev"));
        settings.username_prefix = "-".into();
        assert_eq!(user(&settings, &claims).unwrap().name, "ann");
        settings.required = vec![("hd".into(), "y".into())];
        assert!(user(&settings, &claims).is_err());
        settings.required.clear();
        settings.username_claim = "email".into();
        assert_eq!(user(&settings, &claims).unwrap_err().to_string(), "oidc: email not verified");
        assert!(user(&settings, &json!({"email": 7})).is_err());
    }
}
