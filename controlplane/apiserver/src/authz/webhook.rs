//! Authorization webhook: sends a SubjectAccessReview. Responses are cached, denials for a shorter time.

use super::{Authorizer, Decision, Rules};
use crate::https_client::HttpsClient;
use crate::request_info::RequestInfo;
use async_trait::async_trait;
use coracle_cli::causes;
use coracle_client::user::User;
use coracle_fields::authorization::v1::{
    SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use coracle_fields::{Made, Schema as _, View, make};
use http::Method;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a yes and a no are believed.
const YES: Duration = Duration::from_secs(300);
const NO: Duration = Duration::from_secs(30);
/// How many answers are kept.
const KEPT: usize = 8192;

/// Asks a webhook.
pub struct AccessWebhook {
    remote: HttpsClient,
    answers: Mutex<HashMap<String, (Instant, Decision)>>,
}

impl AccessWebhook {
    /// The webhook of a kubeconfig.
    pub fn new(remote: HttpsClient) -> Self {
        Self { remote, answers: Mutex::default() }
    }
}

fn spec(user: &User, request: &RequestInfo) -> Made<SubjectAccessReviewSpec> {
    fn some(text: &str) -> Option<&str> {
        Some(text).filter(|text| !text.is_empty())
    }
    let mut made = make!(part SubjectAccessReviewSpec {
        user: &user.name,
        groups: &user.groups,
        uid: some(&user.uid),
        extra: Some(&user.extra).filter(|extra| !extra.is_empty()),
    });
    let mut spec = made.edit();
    if request.is_resource {
        let mut attributes = spec.resource_attributes();
        attributes.verb().set(request.verb.as_str());
        attributes.namespace().set(some(&request.namespace));
        attributes.group().set(some(&request.group));
        attributes.version().set(some(&request.version));
        attributes.resource().set(some(&request.resource));
        attributes.subresource().set(some(&request.subresource));
        attributes.name().set(some(&request.name));
    } else {
        let mut attributes = spec.non_resource_attributes();
        attributes.path().set(&request.path);
        attributes.verb().set(request.verb.as_str());
    }
    made
}

/// What the webhook decided. Only `true` allows or denies.
fn decision(status: View<'_, SubjectAccessReviewStatus>) -> Decision {
    let why = || status.reason().text().to_owned();
    match (status.allowed().flag(), status.denied().flag()) {
        (true, false) => Decision::Allow,
        (true, true) => Decision::Contradiction("the authorization webhook both allows and denies".into()),
        (false, true) => Decision::Deny(why()),
        (false, false) => Decision::NoOpinion(why()),
    }
}

#[async_trait]
impl Authorizer for AccessWebhook {
    async fn authorize(&self, user: &User, request: &RequestInfo) -> Decision {
        let spec = spec(user, request).into_value();
        let key = spec.to_string();
        if let Some((until, known)) = self.answers.lock().get(&key)
            && *until > Instant::now()
        {
            return known.clone();
        }
        let mut review = make!(SubjectAccessReview {});
        review.edit().metadata().section();
        review.edit().spec().put(spec);
        let answer = match self.remote.send(Method::POST, "", Some(&review.into_value())).await {
            Ok((200..300, answer)) => answer,
            Ok((code, _)) => {
                tracing::warn!(code, "authorization webhook");
                return Decision::Failed(format!("the authorization webhook answered with {code}"));
            }
            Err(error) => {
                let error = causes::chain(&error).to_string();
                tracing::warn!(error, "authorization webhook");
                return Decision::Failed(format!("the authorization webhook failed: {error}"));
            }
        };
        let decided = decision(SubjectAccessReview::of(&answer).status());
        let ttl = if decided == Decision::Allow { YES } else { NO };
        let mut answers = self.answers.lock();
        if answers.len() >= KEPT {
            let now = Instant::now();
            answers.retain(|_, (until, _)| *until > now);
        }
        if answers.len() < KEPT && key.len() < 10_000 {
            answers.insert(key, (Instant::now() + ttl, decided.clone()));
        }
        decided
    }

    fn rules(&self, _user: &User, _namespace: &str) -> Rules {
        Rules { incomplete: true, ..Rules::default() }
    }
}
