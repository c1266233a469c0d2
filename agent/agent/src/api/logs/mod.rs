//! `/containerLogs`: what a container wrote, from its log files.

// Query options.
pub mod options;
// One line of a log file.
pub mod line;
// Whole lines out of files.
pub mod reader;
// The files of one container's log, rotated ones too.
pub mod segments;
// Sends and follows log files.
pub mod follow;

use coracle_cli::causes;
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::PodStatus;
use std::borrow::Cow;
use std::path::PathBuf;
use tokio::sync::mpsc;

use super::containers::Containers;
use super::query::{ContainerPath, first, query};
use super::response::{ApiResponse, streamed, text};
use crate::lifecycle::table::Entry;
use crate::pod::spec;
use options::LogOptions;

/// `/containerLogs/{namespace}/{pod}/{container}`.
pub async fn handle<B>(
    containers: &Containers,
    (namespace, pod, container): ContainerPath<'_>,
    request: &Request<B>,
) -> ApiResponse {
    let query = query(request);
    let options = match LogOptions::parse(&query, jiff::Timestamp::now()) {
        Ok(options) => options,
        Err(error) => return text(error.status(), error.to_string()),
    };
    let Some(entry) = containers.pods.find_exact(namespace, pod, first(&query, "uid")) else {
        return text(StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist"));
    };
    if !spec::containers(&spec::spec(&entry.pod)).any(|(_, found)| found.name == container) {
        return text(StatusCode::NOT_FOUND, format!("container {container:?} not found in pod {pod:?}"));
    }
    let status = containers.reporter.status(spec::uid(&entry.pod)).or_else(|| entry.pod.status.clone());
    let (id, path) = match log_of(&entry, container, options.previous, &status.unwrap_or_default()) {
        Ok(found) => found,
        Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let (sender, receiver) = mpsc::channel(4);
    let runtime = containers.runtime.clone();
    tokio::spawn(async move {
        let ended = follow::ended(runtime, id.clone());
        if let Err(error) = follow::send(&path, &options, ended, &sender).await {
            tracing::debug!(container = id, path = %path.display(), error = %causes::chain(&error), "log");
        }
    });
    streamed(receiver)
}

/// Why a container has no log. The wording is the kubelet's.
#[derive(Debug, thiserror::Error)]
enum LogError {
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is not available")]
    NotAvailable { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is terminated")]
    Terminated { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is waiting to start{}", waiting(.reason))]
    Waiting { container: String, pod: String, reason: String },
}

fn waiting(reason: &str) -> Cow<'static, str> {
    match reason {
        "ErrImagePull" => ": image can't be pulled".into(),
        "ImagePullBackOff" => ": trying and failing to pull image".into(),
        "" => " - no logs yet".into(),
        reason => format!(": {reason}").into(),
    }
}

/// Selects the container instance: its id and log file.
fn log_of(
    entry: &Entry,
    container: &str,
    previous: bool,
    status: &PodStatus,
) -> Result<(String, PathBuf), LogError> {
    let mut instances = entry.view.containers.iter().filter(|view| view.name == container);
    let (newest, before) = (instances.next(), instances.next());
    let found = if previous { before } else { newest };
    if let Some(found) = found {
        return Ok((found.id.clone(), found.log_path.clone()));
    }
    let (container, pod) = (container.to_owned(), spec::name(&entry.pod).to_owned());
    if previous {
        return Err(LogError::NoPrevious { container, pod });
    }
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let found = lists.into_iter().flatten().flatten().find(|status| status.name == container);
    let Some(status) = found else {
        return Err(LogError::NotAvailable { container, pod });
    };
    let state = status.state.clone().unwrap_or_default();
    if state.terminated.is_some() {
        return Err(LogError::Terminated { container, pod });
    }
    let reason = state.waiting.and_then(|waiting| waiting.reason).unwrap_or_default();
    Err(LogError::Waiting { container, pod, reason })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::lifecycle::table::{ContainerView, PodView};
    use crate::pod::observed::State;
    use serde_json::json;
    use std::sync::Arc;

    fn entry(instances: &[(&str, u32)]) -> Entry {
        let pod =
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": []}})).unwrap();
        let view = |(name, attempt): &(&str, u32)| ContainerView {
            name: (*name).to_owned(),
            id: format!("{name}{attempt}"),
            attempt: *attempt,
            state: State::Exited,
            log_path: PathBuf::from(format!("{name}/{attempt}.log")),
        };
        let containers = instances.iter().map(view).collect();
        Entry { pod: Arc::new(pod), view: PodView { containers, ..PodView::default() } }
    }

    #[test]
    fn finds_the_instance_or_says_why_not() {
        let waiting = |reason: &str| -> PodStatus {
            serde_json::from_value(json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "",
                "ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}}]}))
            .unwrap()
        };
        let none = PodStatus::default();
        let log = |entry: &Entry, previous, status: &PodStatus| {
            log_of(entry, "c", previous, status).map(|(id, _)| id).map_err(|error| error.to_string())
        };
        let twice = entry(&[("c", 1), ("c", 0), ("d", 0)]);
        assert_eq!(log(&twice, false, &none).unwrap(), "c1");
        assert_eq!(log(&twice, true, &none).unwrap(), "c0");
        let once = entry(&[("c", 0)]);
        assert_eq!(
            log(&once, true, &none).unwrap_err(),
            r#"previous terminated container "c" in pod "p" not found"#
        );
        let never = entry(&[]);
        assert_eq!(log(&never, false, &none).unwrap_err(), r#"container "c" in pod "p" is not available"#);
        for (reason, text) in [
            ("ContainerCreating", "is waiting to start: ContainerCreating"),
            ("ErrImagePull", "is waiting to start: image can't be pulled"),
            ("ImagePullBackOff", "is waiting to start: trying and failing to pull image"),
        ] {
            assert_eq!(
                log(&never, false, &waiting(reason)).unwrap_err(),
                format!(r#"container "c" in pod "p" {text}"#)
            );
        }
    }
}
