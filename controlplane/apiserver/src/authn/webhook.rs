//! Token webhook: sends a TokenReview. Responses are cached.

use super::authenticated::Authenticated;
use crate::https_client::{HttpsClient, HttpsClientError};
use coracle_client::user::User;
use coracle_fields::authentication::v1::{TokenReview, TokenReviewStatus};
use coracle_fields::{List, Schema as _, Text, View, make};
use http::Method;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an answer is believed.
const TTL: Duration = Duration::from_secs(120);
/// How many answers are kept.
const KEPT: usize = 4096;

/// Why a webhook does not say whose a token is.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// No answer.
    #[error(transparent)]
    HttpsClient(#[from] HttpsClientError),
    /// An answer that is an error.
    #[error("the token webhook answered {0}")]
    Status(u16),
    /// The webhook refuses the token.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Why the answer of a webhook does not let a token through.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// The webhook says why.
    #[error("{0}")]
    Explained(String),
    /// The webhook does not say why.
    #[error("not known to the webhook")]
    Unknown,
    /// It names no user.
    #[error("the webhook named no user")]
    NoUser,
    /// The token is for others.
    #[error("another audience")]
    Audience,
}

/// Answers by the hash of token and audiences: tokens themselves are not kept.
type Answers = HashMap<[u8; 32], (Instant, Result<Authenticated, Refusal>)>;

/// Asks a webhook.
pub struct TokenWebhook {
    remote: HttpsClient,
    answers: Mutex<Answers>,
}

impl TokenWebhook {
    /// The webhook of a kubeconfig.
    pub fn new(remote: HttpsClient) -> Self {
        Self { remote, answers: Mutex::default() }
    }

    async fn ask(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Result<Authenticated, Refusal>, WebhookError> {
        let mut review = make!(TokenReview { spec: { token } });
        review.edit().metadata().section();
        if !audiences.is_empty() {
            review.edit().spec().audiences().set(audiences.to_vec());
        }
        let (code, answer) = self.remote.send(Method::POST, "", Some(&review.into_value())).await?;
        if !(200..300).contains(&code) {
            return Err(WebhookError::Status(code));
        }
        Ok(read(TokenReview::of(&answer).status(), audiences))
    }
}

/// What the webhook says. Only `true` authenticates; what is no text is no group and no audience.
fn read(status: View<'_, TokenReviewStatus>, audiences: &[String]) -> Result<Authenticated, Refusal> {
    if !status.authenticated().flag() {
        let why = status.error().filled();
        return Err(why.map_or(Refusal::Unknown, |why| Refusal::Explained(why.to_owned())));
    }
    let list = |texts: View<'_, List<Text>>| -> Vec<String> {
        texts.items().filter_map(|text| text.get().map(str::to_owned)).collect()
    };
    let info = status.user();
    let name = info.username().filled().ok_or(Refusal::NoUser)?;
    let mut user = User::new(name, list(info.groups()));
    user.uid = info.uid().text().into();
    user.extra = info.extra().entries().map(|(key, values)| (key.to_owned(), list(values))).collect();
    let told = list(status.audiences());
    // A webhook that does not know audiences speaks for this server only.
    if told.is_empty() {
        return Ok(Authenticated::for_this_server(user));
    }
    if !audiences.is_empty() && !told.iter().any(|audience| audiences.contains(audience)) {
        return Err(Refusal::Audience);
    }
    Ok(Authenticated { user, audiences: told })
}

impl TokenWebhook {
    /// The owner of a token, from the webhook or its last answer.
    pub(super) async fn known(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<Authenticated>, WebhookError> {
        let mut hash = Sha256::new();
        hash.update(token);
        audiences.iter().for_each(|audience| {
            hash.update([0]);
            hash.update(audience);
        });
        let key: [u8; 32] = hash.finalize().into();
        if let Some((at, answer)) = self.answers.lock().get(&key)
            && at.elapsed() < TTL
        {
            return Ok(Some(answer.clone().map_err(WebhookError::Refused)?));
        }
        // No answer is not kept: the next request asks again.
        let answer = self.ask(token, audiences).await?;
        let mut answers = self.answers.lock();
        if answers.len() >= KEPT {
            answers.retain(|_, (at, _)| at.elapsed() < TTL);
        }
        if answers.len() < KEPT {
            answers.insert(key, (Instant::now(), answer.clone()));
        }
        Ok(Some(answer.map_err(WebhookError::Refused)?))
    }
}
