//! Lifecycle hooks: something done right after a start or before a stop.

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use std::time::Duration;

use crate::probe::{check, http};
use coracle_engine::runtime::Runtime;

/// A hook that never answers is given up with its container's grace period; this is for `postStart`, which has none.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Runs a hook to its end.
pub async fn run(
    runtime: &dyn Runtime,
    handler: &LifecycleHandler,
    container: &Container,
    id: &str,
    ip: &str,
) -> Result<(), String> {
    if let Some(action) = &handler.exec {
        let command = action.command.clone().unwrap_or_default();
        let text = command.join(" ");
        let answer =
            runtime.exec_sync(id, command, Duration::ZERO).await.map_err(|error| error.to_string())?;
        if answer.exit_code != 0 {
            let output = String::from_utf8_lossy(&[answer.stdout, answer.stderr].concat()).into_owned();
            return Err(format!("command '{text}' exited with {}: {output}", answer.exit_code));
        }
        return Ok(());
    }
    if let Some(action) = &handler.http_get {
        let port = check::port(&action.port, container).unwrap_or(80);
        let target = http::Target::new(action, port, ip, "kube-lifecycle/1.35");
        let answer = http::get(&target, PATIENCE).await;
        // Many servers only speak HTTP on the port that the hook names HTTPS for: upstream falls back, so do we.
        let answer = match answer {
            Err(_) if target.scheme == "https" => {
                http::get(&http::Target { scheme: "http", ..target }, PATIENCE).await
            }
            other => other,
        };
        return answer.map(|_| ());
    }
    if let Some(action) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0))).await;
        return Ok(());
    }
    Err("invalid handler: no action".to_owned())
}
