//! Ensures that a container's image is on the node, according to its pull policy.

// Records of image pulls.
pub mod records;
// Errors of pulls.
mod pull_error;
// Access of pods to images on the node.
mod access;
// Garbage collection.
pub mod gc;

use coracle_cli::causes::chain;
use coracle_proto::cri;
use coracle_trace::{Span, Stage, stage, stage_named, tracked};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::pull_error::PullError;
use self::records::PullRecords;
use crate::config::verification::Verification;
use crate::events::{Kind, Recorder};
use crate::pod::backoff::Backoffs;
use crate::pod::pull_secret::PullCredential;
use crate::pod::security::ImageUser;
use crate::pod::spec;
use crate::trace::metrics::NodeMetrics;
use coracle_engine::runtime::{ASK_REGISTRY, IMPORTED, Runtime, RuntimeError};

/// Why an image is missing: reason and message of the container's waiting state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullFailure {
    /// `ErrImagePull`, `ImagePullBackOff`, …
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// When to try again.
    pub retry: Duration,
}

/// An image that is on the node.
#[derive(Debug, Clone, Default)]
pub struct Present {
    /// What to give the runtime.
    pub spec: cri::ImageSpec,
    /// The user it runs as.
    pub user: ImageUser,
    /// Imported from an archive.
    imported: bool,
    /// Its names on the node, by tag and by digest.
    names: Vec<String>,
}

impl Present {
    /// Whether it is used without contacting the registry. Imported images always are, as in the engine.
    fn suffices(&self, policy: &str) -> bool {
        policy != "Always" || self.imported
    }
}

/// An image that a container or a volume of a pod needs.
#[derive(Clone, Copy)]
pub struct ImageRequest<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What events are about.
    pub about: &'a ObjectReference,
    /// The image as the pod names it.
    pub image: &'a str,
    /// The pull policy; the image's tag decides without one.
    pub policy: Option<&'a str>,
    /// The pod's credentials for the image.
    pub credentials: &'a [PullCredential],
    /// The pod's sandbox, for the runtime.
    pub sandbox: &'a cri::PodSandboxConfig,
}

impl ImageRequest<'_> {
    fn policy(&self) -> &str {
        self.policy.unwrap_or_else(|| default_policy(self.image))
    }

    /// Key of the attempts for the pod: begins with its uid.
    fn key(&self) -> String {
        format!("{}_{}", spec::uid(self.pod), self.image)
    }
}

/// Pulls images; concurrent pulls of one image are merged.
pub struct Images {
    runtime: Arc<dyn Runtime>,
    events: Recorder,
    verification: Verification,
    records: PullRecords,
    backoffs: Mutex<Backoffs>,
    last_errors: Mutex<HashMap<String, LastError>>,
    pulling: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    metrics: Arc<NodeMetrics>,
}

/// Why the last attempt for a pod failed.
struct LastError {
    text: String,
    /// Until the next attempt.
    waiting: Option<Span>,
}

impl Images {
    /// Pulls through this runtime.
    pub fn new(
        runtime: Arc<dyn Runtime>,
        events: Recorder,
        verification: Verification,
        records: PullRecords,
        metrics: Arc<NodeMetrics>,
    ) -> Self {
        Images {
            runtime,
            events,
            verification,
            records,
            backoffs: Mutex::new(Backoffs::default()),
            last_errors: Mutex::default(),
            pulling: Mutex::default(),
            metrics,
        }
    }

    /// Ensures that an image is on the node and that the pod may use it: any pod may, or the pod has credentials that
    /// have pulled it. Otherwise it is pulled with the pod's credentials, which the registry verifies.
    pub async fn ensure(&self, request: ImageRequest<'_>) -> Result<Present, PullFailure> {
        let image = request.image;
        let ensured = tracked(Stage::Image, image, Box::pin(self.find_or_pull(request))).await;
        let mut last_errors = self.last_errors.lock();
        if !last_errors.is_empty()
            && let Some(last) = last_errors.get_mut(&request.key())
        {
            if ensured.is_ok() {
                // It may have come to the node by another pod.
                last.waiting = None;
            } else if last.waiting.is_none() {
                last.waiting = Some(stage_named(Stage::ImageBackoff, &format!("{image}\n{}", last.text)));
            }
        }
        drop(last_errors);
        ensured
    }

    async fn find_or_pull(&self, request: ImageRequest<'_>) -> Result<Present, PullFailure> {
        let ImageRequest { about, image, .. } = request;
        let policy = request.policy();
        let mut wanted = cri::ImageSpec {
            image: with_tag(image),
            user_specified_image: image.to_owned(),
            ..cri::ImageSpec::default()
        };
        let found = self.present(&wanted).await;
        let admitted =
            matches!(&found, Ok(Some(present)) if self.admits(image, present, request.credentials));
        match found {
            Ok(Some(present)) if admitted && present.suffices(policy) => {
                let text = format!(
                    "Container image {image:?} already present on machine and can be accessed by the pod"
                );
                self.events.record(about.clone(), Kind::Normal, "Pulled", text);
                return Ok(present);
            }
            // The engine would take it as it is and check nothing.
            Ok(Some(present)) if !admitted && present.imported && policy != "Never" => {
                wanted.annotations.insert(ASK_REGISTRY.to_owned(), "true".to_owned());
            }
            // The pull finds out what is wrong, if anything is.
            _ if policy == "Always" => {}
            // Pods without access must not learn whether the image is present.
            Ok(_) if policy == "Never" => {
                let message = format!("Container image {image:?} is not present with pull policy of Never");
                self.events.record(about.clone(), Kind::Warning, "ErrImageNeverPull", message.clone());
                return Err(PullFailure {
                    reason: "ErrImageNeverPull",
                    message,
                    retry: Duration::from_secs(10),
                });
            }
            Ok(_) => {}
            Err(error @ RuntimeError::BadImageName(_)) => return Err(self.invalid(about, image, &error)),
            Err(error) => {
                let message = format!("Failed to inspect image {image:?}: {error}");
                self.events.record(about.clone(), Kind::Warning, "InspectFailed", message.clone());
                return Err(PullFailure {
                    reason: "ImageInspectError",
                    message,
                    retry: Duration::from_secs(10),
                });
            }
        }
        self.pull(request, wanted).await
    }

    /// Whether `ensure` will find the image without a pull.
    pub async fn is_at_hand(&self, request: ImageRequest<'_>) -> bool {
        let wanted = cri::ImageSpec { image: with_tag(request.image), ..cri::ImageSpec::default() };
        let Ok(Some(present)) = self.present(&wanted).await else { return false };
        present.suffices(request.policy()) && self.admits(request.image, &present, request.credentials)
    }

    async fn present(&self, wanted: &cri::ImageSpec) -> Result<Option<Present>, RuntimeError> {
        let image = self.runtime.image_status(wanted.clone()).await?;
        Ok(image.map(|image| found_as(image, wanted)))
    }

    fn invalid(&self, about: &ObjectReference, image: &str, error: &RuntimeError) -> PullFailure {
        let message = format!("Failed to apply default image tag {image:?}: {error}");
        self.events.record(about.clone(), Kind::Warning, "InspectFailed", message.clone());
        PullFailure { reason: "InvalidImageName", message, retry: Duration::from_secs(300) }
    }

    async fn pull(&self, request: ImageRequest<'_>, wanted: cri::ImageSpec) -> Result<Present, PullFailure> {
        let ImageRequest { pod, about, image, credentials, sandbox, .. } = request;
        let key = request.key();
        if let Some(wait) = self.waits(&key) {
            let mut message = format!("Back-off pulling image {image:?}");
            self.events.record(about.clone(), Kind::Normal, "BackOff", message.clone());
            if let Some(last) = self.last_errors.lock().get(&key) {
                message += &format!(": {}", last.text);
            }
            return Err(PullFailure { reason: "ImagePullBackOff", message, retry: wait });
        }
        if let Some(last) = self.last_errors.lock().get_mut(&key) {
            last.waiting = None;
        }
        self.events.record(about.clone(), Kind::Normal, "Pulling", format!("Pulling image {image:?}"));
        let asked = Instant::now();
        let turn = self.pulling.lock().entry(wanted.image.clone()).or_default().clone();
        let queued = stage(Stage::ImageQueue);
        let guard = turn.lock().await;
        queued.finish();
        let started = Instant::now();
        let result = self.pull_and_record(image, &wanted, credentials, sandbox).await;
        drop(guard);
        self.pulling.lock().retain(|_, turn| Arc::strong_count(turn) > 1);
        match result {
            Ok(present) => {
                self.backoffs.lock().forget(&key);
                self.last_errors.lock().remove(&key);
                let size = self
                    .runtime
                    .image_status(wanted)
                    .await
                    .ok()
                    .flatten()
                    .map(|image| image.size)
                    .unwrap_or(0);
                self.metrics.image_pulled(spec::uid(pod), size, started.elapsed());
                let text = format!(
                    "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {size} bytes.",
                    seconds(started.elapsed()),
                    seconds(asked.elapsed())
                );
                self.events.record(about.clone(), Kind::Normal, "Pulled", text);
                Ok(present)
            }
            Err(PullError::Runtime(error @ RuntimeError::BadImageName(_))) => {
                Err(self.invalid(about, image, &error))
            }
            Err(error) => {
                let (reason, message) = (error.reason(), chain(&error));
                let text = format!("Failed to pull image {image:?}: {message}");
                self.events.record(about.clone(), Kind::Warning, "Failed", text);
                let now = nanos();
                self.backoffs.lock().retried(&key, now, now);
                let last = LastError { text: format!("{reason}: {message}"), waiting: None };
                self.last_errors.lock().insert(key, last);
                Err(PullFailure { reason, message, retry: Duration::from_millis(500) })
            }
        }
    }

    fn waits(&self, key: &str) -> Option<Duration> {
        let backoffs = self.backoffs.lock();
        let now = nanos();
        // Since the last attempt, which is when the entry was made.
        let until = backoffs.since_update(key)?;
        u64::try_from(until - now).ok().filter(|left| *left > 0).map(Duration::from_nanos)
    }

    /// The pod is gone.
    pub fn release(&self, uid: &str) {
        self.last_errors.lock().retain(|key, _| !key.starts_with(uid));
        self.backoffs.lock().forget_prefix(uid);
    }
}

/// Converts the runtime's image status.
fn found_as(image: cri::Image, wanted: &cri::ImageSpec) -> Present {
    Present {
        names: image.repo_tags.into_iter().chain(image.repo_digests).collect(),
        imported: image.spec.is_some_and(|spec| spec.annotations.contains_key(IMPORTED)),
        spec: cri::ImageSpec {
            image: image.id,
            user_specified_image: wanted.user_specified_image.clone(),
            ..cri::ImageSpec::default()
        },
        user: ImageUser { uid: image.uid.map(|uid| uid.value), name: image.username },
    }
}

fn nanos() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

fn seconds(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1000 { format!("{millis}ms") } else { format!("{}.{:03}s", millis / 1000, millis % 1000) }
}

/// `Always` for `latest`, else `IfNotPresent`.
fn default_policy(image: &str) -> &'static str {
    if with_tag(image).ends_with(":latest") { "Always" } else { "IfNotPresent" }
}

/// The name with `:latest` where it has neither tag nor digest.
fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_imported_image_is_not_pulled_whatever_the_policy() {
        let marked = [(IMPORTED.to_owned(), "true".to_owned())].into();
        for (annotations, policy, suffices) in [
            (Default::default(), "IfNotPresent", true),
            (Default::default(), "Never", true),
            (Default::default(), "Always", false),
            (marked, "Always", true),
        ] {
            let spec = cri::ImageSpec { annotations, ..cri::ImageSpec::default() };
            let image = cri::Image { spec: Some(spec), ..cri::Image::default() };
            let present = found_as(image, &cri::ImageSpec::default());
            assert_eq!(present.suffices(policy), suffices, "{policy} {present:?}");
        }
    }

    #[test]
    fn tags_and_policies() {
        for (image, tagged, policy) in [
            ("nginx", "nginx:latest", "Always"),
            ("nginx:1", "nginx:1", "IfNotPresent"),
            ("host:5000/a/b", "host:5000/a/b:latest", "Always"),
            ("a@sha256:1", "a@sha256:1", "IfNotPresent"),
        ] {
            assert_eq!((with_tag(image).as_str(), default_policy(image)), (tagged, policy));
        }
        assert_eq!(seconds(Duration::from_millis(1234)), "1.234s");
    }
}
