//! Bound service account tokens: cached, and renewed at 80 % of their lifetime.

use coracle_cli::causes;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use std::collections::HashMap;

use crate::pod::spec;

/// However long a token lives, it is renewed after a day.
const MAX_AGE: i64 = 24 * 3600;

/// Why a pod has no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The API server did not give one.
    #[error("failed to fetch token: {0}")]
    Request(#[source] Box<kube::Error>),
    /// It answered without one.
    #[error("failed to fetch token: empty status")]
    Empty,
}

/// A token and when to ask for the next one.
#[derive(Clone, Debug)]
pub struct Token {
    /// The token.
    pub text: String,
    /// When it is to be renewed, seconds since the epoch.
    pub renew_at: i64,
    /// When it expires, seconds since the epoch.
    pub expires_at: i64,
}

/// Tokens of the node's pods.
pub struct Tokens {
    client: kube::Client,
    known: Mutex<HashMap<(String, String), Token>>,
}

impl Tokens {
    /// None yet.
    pub fn new(client: kube::Client) -> Self {
        Tokens { client, known: Mutex::default() }
    }

    /// The token a projection asks for. An old one that is still valid is kept when a new one cannot be had.
    pub async fn token(
        &self,
        pod: &Pod,
        projection: &ServiceAccountTokenProjection,
    ) -> Result<Token, TokenError> {
        let audience = projection.audience.clone().unwrap_or_default();
        let seconds = projection.expiration_seconds.unwrap_or(3600);
        let key = (spec::uid(pod).to_owned(), format!("{audience}/{seconds}"));
        let known = self.known.lock().get(&key).cloned();
        let now = Timestamp::now().as_second();
        if let Some(token) = known.as_ref().filter(|token| now < token.renew_at) {
            return Ok(token.clone());
        }
        match self.request(pod, &audience, seconds).await {
            Ok(token) => {
                self.known.lock().insert(key, token.clone());
                Ok(token)
            }
            Err(error) => match known {
                Some(token) => {
                    tracing::warn!(uid = spec::uid(pod), error = %causes::chain(&error), "service account token not renewed, will retry");
                    Ok(Token { renew_at: now + 60, ..token })
                }
                None => Err(error),
            },
        }
    }

    async fn request(&self, pod: &Pod, audience: &str, seconds: i64) -> Result<Token, TokenError> {
        let spec = spec::spec(pod);
        let account =
            spec.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), spec::namespace(pod));
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Some(audience)
                    .filter(|audience| !audience.is_empty())
                    .map(str::to_owned)
                    .into_iter()
                    .collect(),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
                expiration_seconds: Some(seconds),
            },
            ..TokenRequest::default()
        };
        let answer = api
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .map_err(|error| TokenError::Request(Box::new(error)))?;
        let status = answer.status.ok_or(TokenError::Empty)?;
        let now = Timestamp::now().as_second();
        let expires_at = status.expiration_timestamp.0.as_second();
        let life = (expires_at - now).clamp(1, MAX_AGE * 5 / 4);
        Ok(Token { text: status.token, renew_at: now + life * 4 / 5, expires_at })
    }

    /// The pod is gone.
    pub fn release(&self, uid: &str) {
        self.known.lock().retain(|(of, _), _| of != uid);
    }
}
