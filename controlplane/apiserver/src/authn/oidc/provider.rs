//! The published keys of an issuer: found by OpenID Connect discovery, kept, and fetched again when a token names another one.

use super::metrics::IssuerMetrics;
use crate::https_client::{ClientTls, HttpsClient, HttpsClientError};
use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, PublicKeyUse};
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;

/// The provider is not asked for its keys more often than this.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Keys are fetched anew after this even when all is well: a provider may withdraw one.
const STALE: Duration = Duration::from_secs(3600);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest answer that is read, in bytes.
const MAX_ANSWER: usize = 1 << 20;
/// How many keys of a provider are used.
const MAX_KEYS: usize = 64;

const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// Who issues tokens, and how they are verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Issuer {
    /// `iss`, and where the provider is found.
    pub url: String,
    /// Where its discovery document is, if not below its URL.
    pub discovery_url: Option<String>,
    /// PEM of the authorities of the provider's certificate; those of the system by default.
    pub authority: Option<String>,
    /// `aud` must have one of these.
    pub audiences: Vec<String>,
    /// Algorithms that tokens may be signed with.
    pub algorithms: Vec<Algorithm>,
}

/// What is read of a discovery document.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Discovered {
    issuer: Value,
    jwks_uri: Value,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
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
    /// Its answer is too large.
    #[error("the answer of {0} is larger than {MAX_ANSWER} bytes")]
    TooLarge(String),
    /// The provider has another name.
    #[error("the provider calls itself {0}")]
    Issuer(String),
    /// The provider does not say where its keys are.
    #[error("the provider publishes no keys")]
    NoKeys,
    /// Anyone between could exchange the keys.
    #[error("the keys of the provider are not at an https URL")]
    NotHttps,
    /// The provider's keys cannot be read.
    #[error("keys of the provider: {0}")]
    Keys(serde_json::Error),
    /// The provider was asked a moment ago.
    #[error("the provider did not answer a moment ago")]
    NoAnswer,
}

/// The keys that an issuer published.
pub(super) struct Keys {
    all: Vec<Jwk>,
    fetched: Instant,
}

impl Keys {
    /// Reads a set. Keys of other kinds, for other uses or with a shared secret are left out.
    fn parse(text: &[u8]) -> Result<Self, ProviderError> {
        let set: KeySet = serde_json::from_slice(text).map_err(ProviderError::Keys)?;
        let usable = |key: &Jwk| {
            let is_public = matches!(
                key.algorithm,
                AlgorithmParameters::RSA(_)
                    | AlgorithmParameters::EllipticCurve(_)
                    | AlgorithmParameters::OctetKeyPair(_)
            );
            is_public && !matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption))
        };
        let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        Ok(Self { all: keys.filter(usable).take(MAX_KEYS).collect(), fetched: Instant::now() })
    }

    /// The keys that may have signed a token: those with the id that it names, or all when it names none.
    pub(super) fn candidates(&self, id: Option<&str>) -> impl Iterator<Item = &Jwk> {
        self.all.iter().filter(move |key| id.is_none_or(|id| key.common.key_id.as_deref() == Some(id)))
    }
}

/// Knows the keys of an issuer.
pub(super) struct Provider {
    url: String,
    discovery_url: Option<String>,
    tls: ClientTls,
    keys: RwLock<Option<Arc<Keys>>>,
    last_fetch: Arc<tokio::sync::Mutex<Option<Instant>>>,
    metrics: Arc<IssuerMetrics>,
}

impl Provider {
    /// The keys are fetched when the first token comes.
    pub(super) fn new(issuer: &Issuer, metrics: Arc<IssuerMetrics>) -> Self {
        Self {
            url: issuer.url.clone(),
            discovery_url: issuer.discovery_url.clone(),
            tls: ClientTls { authority: issuer.authority.clone(), client: None },
            keys: RwLock::default(),
            last_fetch: Arc::default(),
            metrics,
        }
    }

    /// Whether the keys of the issuer are these.
    pub(super) fn is_of(&self, issuer: &Issuer) -> bool {
        self.url == issuer.url
            && self.discovery_url == issuer.discovery_url
            && self.tls.authority == issuer.authority
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, ProviderError> {
        let client = HttpsClient::new(url, &self.tls)?;
        // The client takes a slash at the end away.
        let path = if url.ends_with('/') { "/" } else { "" };
        let read = async {
            let mut answer = client.get_long(path).await?;
            if answer.code() != 200 {
                return Err(ProviderError::Status { url: url.to_owned(), code: answer.code() });
            }
            let mut body = Vec::new();
            while let Some(piece) = answer.piece().await? {
                if body.len() + piece.len() > MAX_ANSWER {
                    return Err(ProviderError::TooLarge(url.to_owned()));
                }
                body.extend_from_slice(&piece);
            }
            Ok(body)
        };
        let late = |_| HttpsClientError::Timeout(url.to_owned());
        tokio::time::timeout(PATIENCE, read).await.map_err(late)?
    }

    async fn fetch(&self) -> Result<Keys, ProviderError> {
        let discovery = match &self.discovery_url {
            Some(url) => url.clone(),
            None => format!("{}{WELL_KNOWN}", self.url.strip_suffix('/').unwrap_or(&self.url)),
        };
        let document = self.get(&discovery).await?;
        let document: Discovered = serde_json::from_slice(&document).unwrap_or_default();
        if document.issuer != self.url {
            return Err(ProviderError::Issuer(document.issuer.to_string()));
        }
        let place = document.jwks_uri.as_str().ok_or(ProviderError::NoKeys)?;
        if !place.starts_with("https://") {
            return Err(ProviderError::NotHttps);
        }
        let body = self.get(place).await?;
        let keys = Keys::parse(&body)?;
        self.metrics.fetched(&body);
        Ok(keys)
    }

    /// The provider's keys; fetched when there are none, when they are old, or when one that is wanted is missing.
    pub(super) async fn keys(self: &Arc<Self>, wanted: Option<&str>) -> Result<Arc<Keys>, ProviderError> {
        let has_it = |keys: &Keys| wanted.is_none_or(|_| keys.candidates(wanted).next().is_some());
        let good = |keys: &Keys| keys.fetched.elapsed() < STALE && has_it(keys);
        let known = || self.keys.read().clone();
        if let Some(keys) = known().filter(|keys| good(keys)) {
            return Ok(keys);
        }
        let last_fetch = self.last_fetch.clone();
        let last = match (known().filter(|keys| has_it(keys)), last_fetch.clone().try_lock_owned()) {
            (_, Ok(last)) => last,
            // Old keys are being fetched anew: one request waits for that, the others do not.
            (Some(keys), Err(_)) => return Ok(keys),
            (None, Err(_)) => last_fetch.lock_owned().await,
        };
        let was_asked = last.is_some_and(|at| at.elapsed() < ASK_AGAIN);
        if let Some(keys) = known().filter(|keys| good(keys) || was_asked) {
            return Ok(keys);
        }
        if was_asked {
            return Err(ProviderError::NoAnswer);
        }
        // In a task of its own: whoever hangs up would stop it for all others, time and again.
        match tokio::spawn(self.clone().renew(last)).await {
            Ok(Ok(keys)) => Ok(keys),
            // Old keys are better than none while the provider is away.
            Ok(Err(why)) => known().ok_or(why),
            Err(_) => known().ok_or(ProviderError::NoAnswer),
        }
    }

    /// Fetches the keys and keeps them. Those who wait for `last` meanwhile do not ask the provider again.
    async fn renew(
        self: Arc<Self>,
        mut last: OwnedMutexGuard<Option<Instant>>,
    ) -> Result<Arc<Keys>, ProviderError> {
        let fetched = self.fetch().await;
        *last = Some(Instant::now());
        match fetched {
            Ok(keys) => {
                let keys = Arc::new(keys);
                *self.keys.write() = Some(keys.clone());
                Ok(keys)
            }
            Err(why) => {
                self.metrics.not_fetched();
                Err(why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_found_by_their_id() {
        let rsa = |id: &str| json!({"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": id, "use": "sig"});
        let set = json!({"keys": [rsa("a"), {"kty": "RSA", "n": "AQAB", "e": "AQAB"}, rsa("b"),
            {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
            {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "enc", "use": "enc"},
            {"kty": "of tomorrow", "kid": "new"}, 7]});
        let keys = Keys::parse(set.to_string().as_bytes()).unwrap();
        let ids = |id: Option<&str>| keys.candidates(id).count();
        assert_eq!((ids(Some("a")), ids(Some("b")), ids(None)), (1, 1, 3));
        for id in ["shared", "enc", "new", "c"] {
            assert_eq!(ids(Some(id)), 0, "{id}");
        }
        let many = json!({"keys": (0..100).map(|n| rsa(&n.to_string())).collect::<Vec<_>>()});
        assert_eq!(Keys::parse(many.to_string().as_bytes()).unwrap().all.len(), MAX_KEYS);
        assert!(matches!(Keys::parse(b"{}"), Err(ProviderError::Keys(_))));
    }

    #[tokio::test]
    async fn whoever_hangs_up_stops_no_fetch() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Issuer { url: format!("https://{}", silent.local_addr().unwrap()), ..Issuer::default() };
        let provider = Arc::new(Provider::new(&issuer, Arc::new(IssuerMetrics::new(&issuer.url))));
        let asked = tokio::time::timeout(Duration::from_millis(50), provider.keys(Some("a"))).await;
        assert!(asked.is_err(), "nobody answers");
        assert!(provider.last_fetch.try_lock().is_err(), "it goes on");
    }
}
