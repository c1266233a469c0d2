//! `/containerLogs`: what a container wrote, from its log files.

// What was asked.
pub mod options;
// One line of a log file.
pub mod line;
// The files of one container's log, rotated ones too.
pub mod segments;
// From files to the client, and on as they grow.
pub mod follow;

use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;

use super::answer::{Answer, streamed, text};
use super::streams::Place;
use super::{first, query};
use crate::context::Context;
use crate::pod::spec;
use crate::pod::table::Entry;
use options::LogOptions;

/// `/containerLogs/{namespace}/{pod}/{container}`.
pub async fn handle<B>(
    context: &Arc<Context>,
    (namespace, pod, container): Place<'_>,
    request: &Request<B>,
) -> Answer {
    let query = query(request);
    let options = match LogOptions::parse(&query, jiff::Timestamp::now()) {
        Ok(options) => options,
        Err(error) => return text(error.status(), error.to_string()),
    };
    let Some(entry) = context.pods.meant(namespace, pod, first(&query, "uid")) else {
        return text(StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist"));
    };
    if !spec::containers(&spec::spec(&entry.pod)).any(|(_, found)| found.name == container) {
        return text(StatusCode::NOT_FOUND, format!("container {container:?} not found in pod {pod:?}"));
    }
    let status = context.reporter.status(spec::uid(&entry.pod)).or_else(|| entry.pod.status.clone());
    let (id, path) = match log_of(&entry, container, options.previous, &status.unwrap_or_default()) {
        Ok(found) => found,
        Err(message) => return text(StatusCode::BAD_REQUEST, message),
    };
    let (sender, receiver) = mpsc::channel(4);
    let context = context.clone();
    tokio::spawn(async move {
        let ended = {
            let id = id.clone();
            follow::ended(context.runtime.clone(), id)
        };
        if let Err(error) = follow::send(&path, &options, ended, &sender).await {
            tracing::debug!(container = id, path = %path.display(), %error, "log");
        }
    });
    streamed(receiver)
}

/// Which instance's log is meant: its id and file. The wording of what cannot be had is the kubelet's.
fn log_of(
    entry: &Entry,
    container: &str,
    previous: bool,
    status: &PodStatus,
) -> Result<(String, PathBuf), String> {
    let pod = spec::name(&entry.pod);
    let mut instances = entry.view.containers.iter().filter(|view| view.name == container);
    let (newest, before) = (instances.next(), instances.next());
    let found = if previous { before } else { newest };
    if let Some(found) = found {
        return Ok((found.id.clone(), found.log_path.clone()));
    }
    if previous {
        return Err(format!("previous terminated container {container:?} in pod {pod:?} not found"));
    }
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let found = lists.into_iter().flatten().flatten().find(|status| status.name == container);
    Err(match found {
        None => format!("container {container:?} in pod {pod:?} is not available"),
        Some(status) => format!("container {container:?} in pod {pod:?} {}", why_none(status)),
    })
}

fn why_none(status: &ContainerStatus) -> String {
    let state = status.state.clone().unwrap_or_default();
    if state.terminated.is_some() {
        return "is terminated".to_owned();
    }
    let reason = state.waiting.and_then(|waiting| waiting.reason).unwrap_or_default();
    match reason.as_str() {
        "ErrImagePull" => "is waiting to start: image can't be pulled".to_owned(),
        "ImagePullBackOff" => "is waiting to start: trying and failing to pull image".to_owned(),
        "" => "is waiting to start - no logs yet".to_owned(),
        reason => format!("is waiting to start: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pod::observed::State;
    use crate::pod::table::{ContainerView, View};
    use serde_json::json;

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
        Entry { pod: Arc::new(pod), view: View { containers, ..View::default() } }
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
            log_of(entry, "c", previous, status).map(|(id, _)| id)
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
