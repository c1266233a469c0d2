//! One check of a container, of any kind.

use coracle_proto::version::PROBE_AGENT;
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::TcpStream;

use super::dial::DialError;
use super::{grpc, http};
use coracle_engine::runtime::{Runtime, RuntimeError};

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Success,
    /// Failure with a human-readable message.
    Failure(String),
    /// The check could not be made.
    Error(String),
}

/// Checks a container once.
pub async fn check(
    runtime: &dyn Runtime,
    probe: &Probe,
    container: &Container,
    id: &str,
    ip: &str,
) -> Outcome {
    let seconds = probe.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(1).max(1);
    let timeout = Duration::from_secs(seconds);
    if let Some(action) = &probe.exec {
        return exec(runtime, id, action.command.clone().unwrap_or_default(), timeout).await;
    }
    if let Some(action) = &probe.http_get {
        let Some(port) = port(&action.port, container) else { return unresolved(&action.port) };
        let target = http::Target::new(action, port, ip, PROBE_AGENT);
        return match http::get(&target, timeout).await {
            Ok((status, _)) if (200..400).contains(&status.as_u16()) => Outcome::Success,
            Ok((status, _)) => {
                Outcome::Failure(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
            }
            // Nothing was asked: that says nothing about the container.
            Err(error @ http::GetError { source: http::RequestError::Request(_), .. }) => {
                Outcome::Error(error.to_string())
            }
            Err(error) => Outcome::Failure(error.to_string()),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let Some(port) = port(&action.port, container) else { return unresolved(&action.port) };
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
        let dialled = tokio::time::timeout(timeout, TcpStream::connect((host, port))).await;
        return match dialled.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
            Ok(_) => Outcome::Success,
            Err(source) => {
                let error = DialError { address: format!("{host}:{port}"), source };
                Outcome::Failure(error.to_string())
            }
        };
    }
    if let Some(action) = &probe.grpc {
        let port = u16::try_from(action.port).unwrap_or(0);
        return match grpc::check(ip, port, action.service.as_deref().unwrap_or_default(), timeout).await {
            Ok(()) => Outcome::Success,
            Err(error) => Outcome::Failure(error.to_string()),
        };
    }
    Outcome::Error(format!("missing probe handler for container {}", container.name))
}

async fn exec(runtime: &dyn Runtime, id: &str, command: Vec<String>, timeout: Duration) -> Outcome {
    let text = command.join(" ");
    match runtime.exec_sync(id, command, timeout).await {
        Ok(answer) if answer.exit_code == 0 => Outcome::Success,
        Ok(answer) => {
            let mut output = answer.stdout;
            output.extend(answer.stderr);
            output.truncate(10 << 10);
            Outcome::Failure(String::from_utf8_lossy(&output).into_owned())
        }
        Err(RuntimeError::DeadlineExceeded(_)) => {
            Outcome::Failure(format!("command timed out: {text:?} timed out after {}s", timeout.as_secs()))
        }
        Err(error) => Outcome::Error(error.to_string()),
    }
}

/// A port by number, or by the name the container gives it.
pub fn port(port: &IntOrString, container: &Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            match container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name)) {
                Some(port) => port.container_port,
                None => name.parse().ok()?,
            }
        }
    };
    u16::try_from(number).ok().filter(|port| *port > 0)
}

fn unresolved(port: &IntOrString) -> Outcome {
    Outcome::Error(format!("couldn't find port: {port:?}"))
}
