//! Authorization webhook: sends a SubjectAccessReview. Responses are cached, denials for a shorter time.

use super::{Authorizer, Decision, Rules};
use crate::https_client::HttpsClient;
use crate::request_info::RequestInfo;
use async_trait::async_trait;
use coracle_client::user::User;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
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

fn review(user: &User, request: &RequestInfo) -> Value {
    let mut spec = json!({"user": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        spec["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        spec["extra"] = json!(user.extra);
    }
    if request.is_resource {
        let mut attributes = json!({"verb": request.verb.as_str()});
        for (name, value) in [
            ("namespace", &request.namespace),
            ("group", &request.group),
            ("version", &request.version),
            ("resource", &request.resource),
            ("subresource", &request.subresource),
            ("name", &request.name),
        ] {
            if !value.is_empty() {
                attributes[name] = json!(value);
            }
        }
        spec["resourceAttributes"] = attributes;
    } else {
        spec["nonResourceAttributes"] = json!({"path": request.path, "verb": request.verb.as_str()});
    }
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "metadata": {}, "spec": spec})
}

fn decision(status: &Value) -> Decision {
    let why = || status["reason"].as_str().unwrap_or_default().to_owned();
    match (status["allowed"] == true, status["denied"] == true) {
        (true, false) => Decision::Allow,
        (true, true) => Decision::Deny("webhook subject access review returned both allow and deny".into()),
        (false, true) => Decision::Deny(why()),
        (false, false) => Decision::NoOpinion(why()),
    }
}

#[async_trait]
impl Authorizer for AccessWebhook {
    async fn authorize(&self, user: &User, request: &RequestInfo) -> Decision {
        let review = review(user, request);
        let key = review["spec"].to_string();
        if let Some((until, known)) = self.answers.lock().get(&key)
            && *until > Instant::now()
        {
            return known.clone();
        }
        let answer = match self.remote.send(Method::POST, "", Some(&review)).await {
            Ok((200..300, answer)) => answer,
            Ok((code, _)) => {
                tracing::warn!(code, "authorization webhook");
                return Decision::NoOpinion(String::new());
            }
            Err(error) => {
                tracing::warn!(%error, "authorization webhook");
                return Decision::NoOpinion(String::new());
            }
        };
        let decided = decision(&answer["status"]);
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
