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
use k8s_openapi::api::core::v1::{ContainerStateTerminated, PodStatus};
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
    #[error("container {container:?} in pod {pod:?} is waiting to start{}", waiting(.reason.as_deref()))]
    Waiting { container: String, pod: String, reason: Option<String> },
    #[error("unable to retrieve container logs for {id}")]
    Gone { id: String },
}

fn waiting(reason: Option<&str>) -> Cow<'static, str> {
    match reason {
        Some("ErrImagePull") => ": image can't be pulled".into(),
        Some("ImagePullBackOff") => ": trying and failing to pull image".into(),
        Some(reason) => format!(": {reason}").into(),
        None => " - no logs yet".into(),
    }
}

/// Selects the container instance: its id and log file. What the status names decides, so that the previous instance is the one
/// whose end people read in `lastState`, also while the container waits to run again.
fn log_of(
    entry: &Entry,
    container: &str,
    previous: bool,
    status: &PodStatus,
) -> Result<(String, PathBuf), LogError> {
    let id = instance_of(spec::name(&entry.pod), container, previous, status)?;
    let own = id.split_once("://").map_or(id.as_str(), |(_, own)| own);
    match entry.view.containers.iter().find(|view| view.name == container && view.id == own) {
        Some(found) => Ok((found.id.clone(), found.log_path.clone())),
        None => Err(LogError::Gone { id }),
    }
}

/// The id of the instance in the status, with the name of the runtime before it.
fn instance_of(pod: &str, container: &str, previous: bool, status: &PodStatus) -> Result<String, LogError> {
    let (name, pod) = (container.to_owned(), pod.to_owned());
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let found = lists.into_iter().flatten().flatten().find(|status| status.name == container);
    let Some(status) = found else {
        return Err(LogError::NotAvailable { container: name, pod });
    };
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let last_id = last.and_then(id_of);
    if previous {
        return last_id.ok_or(LogError::NoPrevious { container: name, pod });
    }
    let state = status.state.clone().unwrap_or_default();
    if state.running.is_some() {
        return Ok(status.container_id.clone().unwrap_or_default());
    }
    if let Some(ended) = &state.terminated {
        return id_of(ended).or(last_id).ok_or(LogError::Terminated { container: name, pod });
    }
    if last.is_some() {
        return last_id.ok_or(LogError::Terminated { container: name, pod });
    }
    let reason = state.waiting.map(|waiting| waiting.reason.unwrap_or_default());
    Err(LogError::Waiting { container: name, pod, reason })
}

fn id_of(ended: &ContainerStateTerminated) -> Option<String> {
    ended.container_id.clone().filter(|id| !id.is_empty())
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
    fn the_status_names_the_instance_or_says_why_not() {
        let two: &[(&str, u32)] = &[("c", 1), ("c", 0), ("d", 0)];
        let (one, nothing) = (&two[..1], &two[..0]);
        let ended = |id: &str| json!({"terminated": {"exitCode": 1, "containerID": id}});
        let running = json!({"running": {}});
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        let none = json!({});
        for (instances, state, last, current, before) in [
            (two, running.clone(), ended("r://c0"), "c1", "c0"),
            // It waits to be started again: the newest dead instance is the previous one.
            (two, waits("CrashLoopBackOff"), ended("r://c1"), "c1", "c1"),
            (one, waits("CrashLoopBackOff"), ended("r://c1"), "c1", "c1"),
            (two, ended("r://c1"), ended("r://c0"), "c1", "c0"),
            (two, ended(""), ended("r://c0"), "c0", "c0"),
            (one, ended("r://c1"), ended("r://c0"), "c1", "unable to retrieve container logs for r://c0"),
            (one, running, none.clone(), "c1", r#"previous terminated container "c" in pod "p" not found"#),
            (
                two,
                ended(""),
                none.clone(),
                r#"container "c" in pod "p" is terminated"#,
                r#"previous terminated container "c" in pod "p" not found"#,
            ),
            (
                nothing,
                waits("ContainerCreating"),
                none.clone(),
                r#"container "c" in pod "p" is waiting to start: ContainerCreating"#,
                r#"previous terminated container "c" in pod "p" not found"#,
            ),
            (
                nothing,
                waits("ErrImagePull"),
                none.clone(),
                r#"container "c" in pod "p" is waiting to start: image can't be pulled"#,
                r#"previous terminated container "c" in pod "p" not found"#,
            ),
            (
                nothing,
                waits("ImagePullBackOff"),
                none.clone(),
                r#"container "c" in pod "p" is waiting to start: trying and failing to pull image"#,
                r#"previous terminated container "c" in pod "p" not found"#,
            ),
            (
                nothing,
                none.clone(),
                none,
                r#"container "c" in pod "p" is waiting to start - no logs yet"#,
                r#"previous terminated container "c" in pod "p" not found"#,
            ),
        ] {
            let shown = format!("{instances:?} {state} {last}");
            let status: PodStatus = serde_json::from_value(json!({"containerStatuses": [{"name": "c", "image": "",
                "imageID": "", "ready": false, "restartCount": 0, "containerID": "r://c1", "state": state, "lastState": last}]}))
            .unwrap();
            let log = |previous| {
                let found = log_of(&entry(instances), "c", previous, &status);
                found.map_or_else(|error| error.to_string(), |(id, _)| id)
            };
            assert_eq!((log(false).as_str(), log(true).as_str()), (current, before), "{shown}");
        }
        let unknown = log_of(&entry(two), "c", true, &PodStatus::default());
        assert_eq!(unknown.unwrap_err().to_string(), r#"container "c" in pod "p" is not available"#);
    }
}
