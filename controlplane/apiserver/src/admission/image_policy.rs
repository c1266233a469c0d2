//! ImagePolicyWebhook: a webhook allows or denies the images of a pod.

use super::config::{Configuration, ConfigurationError, PluginError};
use super::{Attributes, Operation, Phase, Plugin, containers};
use crate::https_client::{HttpsClient, HttpsClientError};
use async_trait::async_trait;
use coracle_cli::causes;
use coracle_fields::core::v1::{Container, Pod};
use coracle_fields::{Schema as _, View};
use coracle_proto::status::ApiError;
use http::Method;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const NAME: &str = "ImagePolicyWebhook";
/// How many answers are remembered.
const REMEMBERED: usize = 1024;
/// How often an answer that does not come is asked for.
const TRIES: u32 = 5;

/// Why the backend does not decide.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error("no image policy backend is configured")]
    NoBackend,
    #[error("Error contacting webhook: {0}")]
    Status(u16),
    #[error(transparent)]
    HttpsClient(#[from] HttpsClientError),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Settings {
    image_policy: Policy,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Policy {
    kube_config_file: PathBuf,
    #[serde(rename = "allowTTL")]
    allow_ttl: i64,
    #[serde(rename = "denyTTL")]
    deny_ttl: i64,
    retry_backoff: i64,
    default_allow: bool,
}

/// What the backend decided; only `true` allows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ImageStatus {
    allowed: Value,
    reason: Value,
}

impl ImageStatus {
    /// The status of an ImageReview. Serde would read a list as the fields in order.
    fn of(review: &Value) -> Option<Self> {
        let status = review.get("status").filter(|status| status.is_object())?;
        Self::deserialize(status).ok()
    }
}

/// The plugin.
pub struct ImagePolicyWebhook {
    policy: Policy,
    remote: Option<HttpsClient>,
    answers: Mutex<HashMap<String, (ImageStatus, Instant)>>,
}

impl ImagePolicyWebhook {
    /// The plugin with its backend; without one it cannot be on.
    pub fn new(configuration: &Configuration) -> Result<Self, ConfigurationError> {
        let Settings { image_policy: mut policy } = configuration.of(NAME)?;
        let wrong = |error| ConfigurationError::Plugin { plugin: NAME, error };
        policy.allow_ttl = within("allowTTL", policy.allow_ttl, 1800, 300).map_err(wrong)?;
        policy.deny_ttl = within("denyTTL", policy.deny_ttl, 1800, 30).map_err(wrong)?;
        policy.retry_backoff = within("retryBackoff", policy.retry_backoff, 300_000, 500).map_err(wrong)?;
        let remote = if policy.kube_config_file.as_os_str().is_empty() {
            None
        } else {
            let remote = HttpsClient::from_kubeconfig(&policy.kube_config_file);
            Some(remote.map_err(|error| wrong(PluginError::Kubeconfig(error)))?)
        };
        Ok(Self { policy, remote, answers: Mutex::default() })
    }

    /// What the backend says, or said a moment ago.
    async fn ask(&self, spec: &Value) -> Result<ImageStatus, ReviewError> {
        let (key, now) = (spec.to_string(), Instant::now());
        if let Some((answer, _)) = self.answers.lock().get(&key).filter(|(_, until)| *until > now) {
            return Ok(answer.clone());
        }
        let remote = self.remote.as_ref().ok_or(ReviewError::NoBackend)?;
        let review =
            json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "spec": spec});
        let mut last = ReviewError::NoBackend;
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_millis(self.policy.retry_backoff.unsigned_abs()) * attempt)
                    .await;
            }
            let sent = remote.send(Method::POST, "", Some(&review)).await;
            match sent.map(|(code, answer)| (code, ImageStatus::of(&answer))) {
                Ok((200..=299, Some(status))) => {
                    let allowed = status.allowed == true;
                    let ttl = if allowed { self.policy.allow_ttl } else { self.policy.deny_ttl };
                    let mut answers = self.answers.lock();
                    if answers.len() >= REMEMBERED {
                        answers.retain(|_, (_, until)| *until > now);
                    }
                    if answers.len() < REMEMBERED {
                        answers.insert(
                            key,
                            (status.clone(), now + Duration::from_secs(ttl.max(0).unsigned_abs())),
                        );
                    }
                    return Ok(status);
                }
                Ok((code, _)) if code < 500 && code != 429 => {
                    return Err(ReviewError::Status(code));
                }
                Ok((code, _)) => last = ReviewError::Status(code),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }
}

#[async_trait]
impl Plugin for ImagePolicyWebhook {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ready(&self) -> Result<(), PluginError> {
        if self.remote.is_some() { Ok(()) } else { Err(PluginError::NoKubeconfig) }
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && at.writes() && at.kind.group.is_empty() && at.kind.plural == "pods"
    }

    async fn validate(&self, at: &mut Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        let pods = at.kind.group.is_empty() && at.kind.plural == "pods";
        if !pods || !matches!(at.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let pod = Pod::of(pod);
        let spec = pod.spec();
        let asked = match at.subresource {
            "" => review(pod, spec.containers().items().chain(spec.init_containers().items()), at.namespace),
            "ephemeralcontainers" => review(pod, containers::ephemeral(spec).items(), at.namespace),
            _ => return Ok(()),
        };
        match self.ask(&asked).await {
            Ok(status) if status.allowed == true => Ok(()),
            Ok(status) => {
                Err(at.forbidden(match status.reason.as_str().filter(|reason| !reason.is_empty()) {
                    Some(reason) => {
                        format!("image policy webhook backend denied one or more images: {reason}")
                    }
                    None => "one or more images rejected by webhook backend".into(),
                }))
            }
            Err(why) if self.policy.default_allow => {
                at.audit("imagepolicywebhook.image-policy.k8s.io/failed-open", "true");
                tracing::warn!(why = %causes::chain(&why), "image policy webhook failed; images are allowed by default");
                Ok(())
            }
            Err(why) => Err(at.forbidden(why)),
        }
    }
}

/// A time of the settings: -1 is none, 0 the usual.
fn within(field: &'static str, value: i64, most: i64, usual: i64) -> Result<i64, PluginError> {
    match value {
        -1 => Ok(0),
        0 => Ok(usual),
        value if (1..=most).contains(&value) => Ok(value),
        value => Err(PluginError::Range { field, most, value }),
    }
}

/// What is asked: the images, the annotations that are meant for it, the namespace.
fn review<'a>(
    pod: View<'a, Pod>,
    containers: impl Iterator<Item = View<'a, Container>>,
    namespace: &str,
) -> Value {
    let containers: Vec<Value> = containers.map(|container| json!({"image": container.image()})).collect();
    let annotations = pod.metadata().annotations().entries();
    let annotations: Map<String, Value> = annotations
        .filter(|(key, _)| key.contains(".image-policy.k8s.io/"))
        .map(|(key, value)| (key.to_owned(), value.to_value()))
        .collect();
    json!({"containers": containers, "annotations": annotations, "namespace": namespace})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A backend that allows images of one registry.
    async fn backend() -> std::net::SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut bytes = vec![0; 8192];
                    while let Ok(read) = stream.read(&mut bytes).await
                        && read > 0
                    {
                        let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                        let status = if text.contains("good.example.com/") {
                            json!({"allowed": true})
                        } else {
                            json!({"allowed": false, "reason": "nobody knows it"})
                        };
                        let body = json!({"status": status}).to_string();
                        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                        let _ = stream.write_all(head.as_bytes()).await;
                    }
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn a_backend_decides_about_images() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kubeconfig");
        let address = backend().await;
        std::fs::write(&file, format!("clusters:\n- name: b\n  cluster: {{server: \"http://{address}\"}}\n"))
            .unwrap();
        let settings = json!({"imagePolicy": {"kubeConfigFile": file, "allowTTL": 60}});
        let plugin = ImagePolicyWebhook::new(&Configuration::with(NAME, settings)).unwrap();
        let ask = |image: &str| {
            let pod = json!({"metadata": {"annotations": {"a.image-policy.k8s.io/b": "1", "other": "2"}},
                "spec": {"containers": [{"image": image}]}});
            let pod = Pod::of(&pod);
            review(pod, pod.spec().containers().items(), "ns")
        };
        assert_eq!(ask("i")["annotations"], json!({"a.image-policy.k8s.io/b": "1"}));
        assert_eq!(plugin.ask(&ask("good.example.com/i")).await.unwrap().allowed, true);
        assert_eq!(plugin.ask(&ask("bad.example.com/i")).await.unwrap().reason, "nobody knows it");
        assert_eq!(plugin.answers.lock().len(), 2);
        let off = ImagePolicyWebhook::new(&Configuration::default()).unwrap();
        assert!(off.ask(&ask("i")).await.is_err() && off.ready().is_err());
        for (value, expected) in [(-1, 0), (0, 30), (7, 7)] {
            assert_eq!(within("denyTTL", value, 1800, 30).unwrap(), expected);
        }
        assert!(within("denyTTL", 1801, 1800, 30).unwrap_err().to_string().contains("imagePolicy.denyTTL"));
    }
}
