//! Reads the state of one pod from the runtime.

use coracle_proto::cri;
use std::collections::HashMap;
use std::path::Path;

use crate::config::NodeConfig;
use crate::pod::observed::{self, Instance, Observed, State, annotation, label};
use coracle_engine::runtime::{Result, Runtime, RuntimeError};
use coracle_host_dir::HostDir;

/// Longest termination message, from a file.
const FILE_LIMIT: usize = 4096;
/// Longest termination message, from the log.
const LOG_LIMIT: usize = 2048;
const LOG_LINES: usize = 80;

/// Sandboxes and containers of a pod. Instances that had exited before are not queried again.
pub async fn observe(
    runtime: &dyn Runtime,
    config: &NodeConfig,
    uid: &str,
    last: &Observed,
) -> Result<Observed> {
    let selector = HashMap::from([(label::POD_UID.to_owned(), uid.to_owned())]);
    let filter =
        cri::PodSandboxFilter { label_selector: selector.clone(), ..cri::PodSandboxFilter::default() };
    let mut all = Observed::default();
    for sandbox in runtime.list_pod_sandboxes(Some(filter)).await? {
        match runtime.pod_sandbox_status(&sandbox.id, false).await {
            Ok(answer) => all.sandboxes.extend(answer.status.iter().map(observed::sandbox)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    let filter = cri::ContainerFilter { label_selector: selector, ..cri::ContainerFilter::default() };
    for container in runtime.list_containers(Some(filter)).await? {
        let known = last
            .instances
            .iter()
            .find(|instance| instance.id == container.id && instance.state == State::Exited);
        let instance = match known {
            Some(instance) => Some(instance.clone()),
            None => instance(runtime, config, uid, &container).await?,
        };
        all.instances.extend(instance);
    }
    all.sort();
    Ok(all)
}

async fn instance(
    runtime: &dyn Runtime,
    config: &NodeConfig,
    uid: &str,
    container: &cri::Container,
) -> Result<Option<Instance>> {
    let status = match runtime.container_status(&container.id, false).await {
        Ok(answer) => {
            answer.status.ok_or_else(|| RuntimeError::Internal(format!("no status of {}", container.id)))?
        }
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let fallback = status.annotations.get(annotation::TERMINATION_MESSAGE_POLICY).map(String::as_str)
        == Some("FallbackToLogsOnError");
    let mut instance = observed::instance(status, container.pod_sandbox_id.clone());
    if instance.state == State::Exited {
        let file = config.termination_log(uid, &instance.name, instance.attempt);
        let mut message = read_head(&file, FILE_LIMIT);
        if message.is_empty() && fallback && instance.exit_code != 0 {
            message = log_tail(Path::new(&instance.log_path));
        }
        if !message.is_empty() {
            instance.message = message;
        }
    }
    Ok(Some(instance))
}

fn read_head(path: &Path, limit: usize) -> String {
    let read = HostDir::of_file(path).and_then(|(dir, name)| dir.read_head(name, limit as u64));
    String::from_utf8_lossy(&read.unwrap_or_default()).into_owned()
}

/// The end of a log in the CRI format: `time stream tag text`.
fn log_tail(path: &Path) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let opened = HostDir::of_file(path).and_then(|(dir, name)| dir.open_file(name));
    let Ok(mut file) = opened else { return String::new() };
    let size = file.metadata().map(|meta| meta.len()).unwrap_or(0);
    // Each line has a prefix of some 40 bytes.
    let window = (LOG_LIMIT * 4) as u64;
    let _ = file.seek(SeekFrom::Start(size.saturating_sub(window)));
    let mut bytes = Vec::new();
    let _ = file.take(window).read_to_end(&mut bytes);
    tail(&String::from_utf8_lossy(&bytes))
}

fn tail(log: &str) -> String {
    let mut text = String::new();
    let lines: Vec<&str> = log.lines().collect();
    for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
        let mut fields = line.splitn(4, ' ');
        let (Some(_), Some("stdout" | "stderr"), Some(tag), Some(content)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        text.push_str(content);
        if tag.starts_with('F') {
            text.push('\n');
        }
    }
    let mut from = text.len().saturating_sub(LOG_LIMIT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.split_off(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_tails_join_parts_and_stay_short() {
        let log = "2024-01-01T00:00:00Z stdout P part\n2024-01-01T00:00:00Z stdout F  one\n2024-01-01T00:00:00Z stderr F two\nbroken\n";
        assert_eq!(tail(log), "part one\ntwo\n");
        let long: String = (0..200).map(|i| format!("t stdout F {i:0>60}\n")).collect();
        let got = tail(&long);
        assert!(got.len() <= LOG_LIMIT && got.ends_with("199\n"));
    }
}
