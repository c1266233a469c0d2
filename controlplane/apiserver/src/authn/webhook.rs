//! A webhook that knows tokens: it is sent a TokenReview and says whose it is. Answers are kept for a while.

use super::{Known, TokenAuthenticator};
use crate::remote::Remote;
use async_trait::async_trait;
use coracle_client::user::User;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an answer is believed.
const TTL: Duration = Duration::from_secs(120);
/// How many answers are kept.
const KEPT: usize = 4096;

/// Answers by the hash of token and audiences: tokens themselves are not kept.
type Answers = HashMap<[u8; 32], (Instant, Result<Known, String>)>;

/// Asks a webhook.
pub struct TokenWebhook {
    remote: Remote,
    answers: Mutex<Answers>,
}

impl TokenWebhook {
    /// The webhook of a kubeconfig.
    pub fn new(remote: Remote) -> Self {
        Self { remote, answers: Mutex::default() }
    }

    async fn ask(&self, token: &str, audiences: &[String]) -> Result<Result<Known, String>, String> {
        let mut review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "metadata": {}, "spec": {"token": token}});
        if !audiences.is_empty() {
            review["spec"]["audiences"] = json!(audiences);
        }
        let (code, answer) =
            self.remote.send(Method::POST, "", Some(&review)).await.map_err(|e| e.to_string())?;
        if !(200..300).contains(&code) {
            return Err(format!("the token webhook answered {code}"));
        }
        Ok(read(&answer["status"], audiences))
    }
}

/// What the webhook says.
fn read(status: &Value, audiences: &[String]) -> Result<Known, String> {
    if status["authenticated"] != true {
        let why = status["error"].as_str().filter(|e| !e.is_empty()).unwrap_or("not known to the webhook");
        return Err(why.to_owned());
    }
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let info = &status["user"];
    let name =
        info["username"].as_str().filter(|name| !name.is_empty()).ok_or("the webhook named no user")?;
    let mut user = User::new(name, list(&info["groups"]));
    user.uid = info["uid"].as_str().unwrap_or_default().into();
    user.extra = info["extra"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), list(v))).collect();
    let told = list(&status["audiences"]);
    // A webhook that does not know audiences speaks for this server only.
    if told.is_empty() {
        return Ok(Known::here(user));
    }
    if !audiences.is_empty() && !told.iter().any(|audience| audiences.contains(audience)) {
        return Err("another audience".into());
    }
    Ok(Known { user, audiences: told })
}

#[async_trait]
impl TokenAuthenticator for TokenWebhook {
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Result<Option<Known>, String> {
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
            return answer.clone().map(Some);
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
        answer.map(Some)
    }
}
