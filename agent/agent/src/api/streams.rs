//! Exec, attach and port-forward: requests are validated before the upgrade, so that errors get an HTTP response.

// The error type is an HTTP response, created once per request.
#![allow(clippy::result_large_err)]

use coracle_proto::cri;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::time::Duration;

use super::containers::Containers;
use super::query::{ContainerPath, first, query};
use super::response::{ApiResponse, text};
use crate::lifecycle::table::Entry;
use crate::pod::observed::State;
use crate::pod::spec;
use coracle_engine::streams::command::{self, RequestedStreams, Verb};
use coracle_engine::streams::handshake::{Accepted, Purpose, negotiate};
use coracle_engine::streams::port_forward::{self, Target};

const RUN_TIMEOUT: Duration = Duration::from_secs(120);

fn on(query: &[(String, String)], key: &str) -> bool {
    matches!(first(query, key), Some("1" | "true"))
}

fn asked(query: &[(String, String)]) -> Result<RequestedStreams, ApiResponse> {
    let tty = on(query, "tty");
    let asked = RequestedStreams {
        stdin: on(query, "input"),
        stdout: on(query, "output"),
        // One terminal carries both.
        stderr: on(query, "error") && !tty,
        tty,
    };
    if asked.stdin || asked.stdout || asked.stderr {
        return Ok(asked);
    }
    Err(text(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr"))
}

/// Finds the pod by name, and by uid if the path or query has one: the authorized pod may be gone and its name reused.
fn find(
    containers: &Containers,
    (namespace, pod): (&str, &str),
    uid: Option<&str>,
    query: &[(String, String)],
) -> Result<Entry, ApiResponse> {
    let uid = uid.or_else(|| first(query, "uid"));
    let found = containers.pods.find_exact(namespace, pod, uid);
    found.ok_or_else(|| text(StatusCode::NOT_FOUND, "pod does not exist"))
}

/// The id of the container's newest instance, which must run.
fn running(entry: &Entry, container: &str, missing: String) -> Result<String, ApiResponse> {
    let refuse = |message: String| Err(text(StatusCode::INTERNAL_SERVER_ERROR, message));
    match entry.view.containers.iter().find(|view| view.name == container) {
        Some(view) if view.state == State::Exited => refuse("container is in CONTAINER_EXITED state".into()),
        Some(view) if view.state == State::Created => {
            refuse("container is in CONTAINER_CREATED state".into())
        }
        Some(view) => Ok(view.id.clone()),
        None => refuse(missing),
    }
}

/// Negotiates the framing and returns the 101 response.
fn upgrade(purpose: Purpose, request: &Request<Incoming>) -> Result<(Accepted, ApiResponse), ApiResponse> {
    let mut accepted =
        negotiate(purpose, request.headers()).map_err(|refused| text(refused.status, refused.message))?;
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = std::mem::take(&mut accepted.headers);
    Ok((accepted, response))
}

/// Merges both variants of the result.
fn either(result: Result<ApiResponse, ApiResponse>) -> ApiResponse {
    result.unwrap_or_else(|refused| refused)
}

/// `/exec`.
pub fn exec(
    containers: &Containers,
    (namespace, pod, container): ContainerPath<'_>,
    uid: Option<&str>,
    mut request: Request<Incoming>,
) -> ApiResponse {
    either((|| {
        let query = query(&request);
        let asked = asked(&query)?;
        let entry = find(containers, (namespace, pod), uid, &query)?;
        let id = running(&entry, container, format!("container not found ({container:?})"))?;
        let cmd: Vec<String> =
            query.iter().filter(|(key, _)| key == "command").map(|(_, value)| value.clone()).collect();
        let (accepted, answer) = upgrade(Purpose::Command, &request)?;
        let RequestedStreams { stdin, stdout, stderr, tty } = asked;
        let order = cri::ExecRequest { container_id: id, cmd, tty, stdin, stdout, stderr };
        let (upgraded, runtime) = (hyper::upgrade::on(&mut request), containers.runtime.clone());
        tokio::spawn(async move {
            let Ok(upgraded) = upgraded.await else { return };
            let io = TokioIo::new(upgraded);
            command::serve(io, accepted.framing, asked, Verb::Exec, runtime.exec(order)).await;
        });
        Ok(answer)
    })())
}

/// `/attach`.
pub fn attach(
    containers: &Containers,
    (namespace, pod, container): ContainerPath<'_>,
    uid: Option<&str>,
    mut request: Request<Incoming>,
) -> ApiResponse {
    either((|| {
        let query = query(&request);
        let mut asked = asked(&query)?;
        let entry = find(containers, (namespace, pod), uid, &query)?;
        let id =
            running(&entry, container, format!("container {container} not found in pod {pod}_{namespace}"))?;
        // Whether the container has a terminal is fixed.
        let described = spec::spec(&entry.pod);
        let tty = spec::containers(&described)
            .find(|(_, found)| found.name == container)
            .is_some_and(|(_, found)| found.tty == Some(true));
        asked.stderr &= !tty;
        let (accepted, answer) = upgrade(Purpose::Command, &request)?;
        let RequestedStreams { stdin, stdout, stderr, .. } = asked;
        let order = cri::AttachRequest { container_id: id, stdin, tty, stdout, stderr };
        let (upgraded, runtime) = (hyper::upgrade::on(&mut request), containers.runtime.clone());
        tokio::spawn(async move {
            let Ok(upgraded) = upgraded.await else { return };
            let io = TokioIo::new(upgraded);
            command::serve(io, accepted.framing, asked, Verb::Attach, runtime.attach(order)).await;
        });
        Ok(answer)
    })())
}

/// `/portForward`.
pub fn port_forward(
    containers: &Containers,
    (namespace, pod): (&str, &str),
    uid: Option<&str>,
    mut request: Request<Incoming>,
) -> ApiResponse {
    either((|| {
        let query = query(&request);
        let entry = find(containers, (namespace, pod), uid, &query)?;
        let Some(sandbox) = entry.view.sandbox.clone() else {
            let message = format!("pod not found (\"{pod}_{namespace}\")");
            return Err(text(StatusCode::INTERNAL_SERVER_ERROR, message));
        };
        let (accepted, answer) = upgrade(Purpose::Ports, &request)?;
        let ports = match accepted.framing {
            coracle_engine::streams::handshake::Framing::Channels { .. } => {
                port_forward::asked(query.iter().map(|(key, value)| (key.as_str(), value.as_str())))
                    .map_err(|error| text(StatusCode::BAD_REQUEST, error.to_string()))?
            }
            _ => Vec::new(),
        };
        let target = Target {
            runtime: containers.runtime.clone(),
            pod: sandbox.clone(),
            sandbox,
            uid: spec::uid(&entry.pod).to_owned(),
        };
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let Ok(upgraded) = upgraded.await else { return };
            port_forward::serve(TokioIo::new(upgraded), accepted.framing, target, ports).await;
        });
        Ok(answer)
    })())
}

/// `/run`: a command to its end, its output as the answer.
pub async fn run<B>(
    containers: &Containers,
    (namespace, pod, container): ContainerPath<'_>,
    uid: Option<&str>,
    request: &Request<B>,
) -> ApiResponse {
    let query = query(request);
    let id = find(containers, (namespace, pod), uid, &query)
        .and_then(|entry| running(&entry, container, format!("container not found ({container:?})")));
    let id = match id {
        Ok(id) => id,
        Err(refused) => return refused,
    };
    let command = first(&query, "cmd").unwrap_or_default().split(' ').map(str::to_owned).collect();
    match containers.runtime.exec_sync(&id, command, RUN_TIMEOUT).await {
        Ok(mut done) if done.exit_code == 0 => {
            done.stdout.append(&mut done.stderr);
            text(StatusCode::OK, done.stdout)
        }
        Ok(mut done) => {
            done.stdout.append(&mut done.stderr);
            text(StatusCode::INTERNAL_SERVER_ERROR, done.stdout)
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
