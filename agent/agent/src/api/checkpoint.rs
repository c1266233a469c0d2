//! `/checkpoint`: a container's state as an archive on the node.

use http::{Request, StatusCode};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

use super::containers::Containers;
use super::query::{ContainerPath, query};
use super::response::{ApiResponse, json as as_json, text};
use crate::pod::spec;
use coracle_engine::runtime::RuntimeError;
use coracle_host_dir::HostDir;

/// Writes the archive below `root` and returns its path; 501 if the runtime does not support checkpoints.
pub async fn handle<B>(
    containers: &Containers,
    root: &Path,
    (namespace, pod, container): ContainerPath<'_>,
    request: &Request<B>,
) -> ApiResponse {
    let Some(entry) = containers.pods.find(namespace, pod) else {
        return text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    if !spec::containers(&spec::spec(&entry.pod)).any(|(_, found)| found.name == container) {
        return text(StatusCode::NOT_FOUND, format!("container {container} does not exist"));
    }
    let query = query(request);
    let timeout = query.iter().rfind(|(key, _)| key == "timeout").map(|(_, value)| value.parse::<u64>());
    let Ok(timeout) = timeout.transpose() else {
        return text(StatusCode::NOT_FOUND, "cannot parse value of timeout parameter");
    };
    let failed = |status: StatusCode, why: &str| {
        text(status, format!("checkpointing of {namespace}/{pod}/{container} failed ({why})"))
    };
    let view = entry.view.containers.iter().find(|view| view.name == container);
    let Some(id) = view.map(|view| view.id.clone()) else {
        return failed(StatusCode::INTERNAL_SERVER_ERROR, &format!("container {container} not found"));
    };
    let dir = root.join("checkpoints");
    if let Err(error) = HostDir::create(&dir) {
        return failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string());
    }
    let now = format!("{:.0}", jiff::Timestamp::now());
    let to = dir.join(format!("checkpoint-{pod}_{namespace}-{container}-{now}.tar"));
    let timeout = Duration::from_secs(timeout.unwrap_or(0));
    match containers.runtime.checkpoint_container(&id, &to, timeout).await {
        Ok(()) => as_json(&json!({"items": [to]})),
        Err(RuntimeError::Unimplemented(why)) => failed(StatusCode::NOT_IMPLEMENTED, &why),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
