//! CRI status of sandboxes and containers.

use std::collections::HashMap;

use coracle_proto::cri;
use serde_json::{Value, json};

use super::namespace::namespace_options;
use super::objects::{Container, Objects, Sandbox};
use super::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};
use super::signal::signal_named;
use super::stamp::now;

fn sandbox_state(record: &SandboxRecord) -> cri::PodSandboxState {
    match record.phase {
        SandboxPhase::Ready => cri::PodSandboxState::SandboxReady,
        _ => cri::PodSandboxState::SandboxNotready,
    }
}

/// A container whose hooks run counts as running: its devices must not be given to the next one.
fn container_state(record: &ContainerRecord) -> cri::ContainerState {
    match record.phase {
        ContainerPhase::Exited if record.releasing => cri::ContainerState::ContainerRunning,
        ContainerPhase::Creating | ContainerPhase::Created | ContainerPhase::Starting => {
            cri::ContainerState::ContainerCreated
        }
        ContainerPhase::Running => cri::ContainerState::ContainerRunning,
        ContainerPhase::Exited | ContainerPhase::Removing => cri::ContainerState::ContainerExited,
    }
}

fn sandbox_status(record: &SandboxRecord) -> cri::PodSandboxStatus {
    let config = &record.config;
    let mut ips = record.ips.iter().cloned();
    let network = cri::PodSandboxNetworkStatus {
        ip: ips.next().unwrap_or_default(),
        additional_ips: ips.map(|ip| cri::PodIp { ip }).collect(),
    };
    cri::PodSandboxStatus {
        id: record.id.clone(),
        metadata: config.metadata.clone(),
        state: sandbox_state(record).into(),
        created_at: record.created_at,
        network: Some(network),
        linux: Some(cri::LinuxPodSandboxStatus {
            namespaces: Some(cri::Namespace { options: Some(namespace_options(config)) }),
        }),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        runtime_handler: record.handler.clone(),
    }
}

fn container_status(record: &ContainerRecord) -> cri::ContainerStatus {
    let config = &record.config;
    let resources = config.linux.as_ref().and_then(|l| l.resources.clone());
    let state = container_state(record);
    let (finished_at, exit_code, reason, message) = match state {
        cri::ContainerState::ContainerExited => {
            (record.finished_at, record.exit_code, record.reason.clone(), record.message.clone())
        }
        _ => Default::default(),
    };
    cri::ContainerStatus {
        id: record.id.clone(),
        metadata: config.metadata.clone(),
        state: state.into(),
        created_at: record.created_at,
        started_at: record.started_at,
        finished_at,
        exit_code,
        image: config.image.clone(),
        image_ref: record.image_ref.clone(),
        image_id: record.image_id.clone(),
        reason,
        message,
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        mounts: config.mounts.clone(),
        log_path: record.log.display().to_string(),
        resources: Some(cri::ContainerResources { linux: resources, windows: None }),
        user: Some(cri::ContainerUser {
            linux: Some(cri::LinuxContainerUser {
                uid: record.uid.into(),
                gid: record.gid.into(),
                supplemental_groups: record.groups.iter().map(|g| (*g).into()).collect(),
            }),
        }),
        stop_signal: signal_named(record.stop_signal).into(),
    }
}

fn labels_match(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Sandbox {
    pub(super) fn matches(&self, filter: &cri::PodSandboxFilter) -> bool {
        let record = self.record.lock();
        (filter.id.is_empty() || record.id.starts_with(&filter.id))
            && filter.state.is_none_or(|s| s.state == i32::from(sandbox_state(&record)))
            && labels_match(&filter.label_selector, &record.config.labels)
    }

    pub(super) fn listed(&self) -> cri::PodSandbox {
        let record = self.record.lock();
        cri::PodSandbox {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            state: sandbox_state(&record).into(),
            created_at: record.created_at,
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
            runtime_handler: record.handler.clone(),
        }
    }
}

impl Container {
    pub(super) fn matches(&self, filter: &cri::ContainerFilter) -> bool {
        let record = self.record.lock();
        (filter.id.is_empty() || record.id.starts_with(&filter.id))
            && (filter.pod_sandbox_id.is_empty() || record.sandbox.starts_with(&filter.pod_sandbox_id))
            && filter.state.is_none_or(|s| s.state == i32::from(container_state(&record)))
            && labels_match(&filter.label_selector, &record.config.labels)
    }

    pub(super) fn listed(&self) -> cri::Container {
        let record = self.record.lock();
        cri::Container {
            id: record.id.clone(),
            pod_sandbox_id: record.sandbox.clone(),
            metadata: record.config.metadata.clone(),
            image: record.config.image.clone(),
            image_ref: record.image_ref.clone(),
            image_id: record.image_id.clone(),
            state: container_state(&record).into(),
            created_at: record.created_at,
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
        }
    }

    /// `spec` is the OCI configuration, for verbose status.
    pub(super) fn status(&self, verbose: bool, spec: Value) -> cri::ContainerStatusResponse {
        let record = self.record.lock();
        let info = json!({
            "pid": record.pid, "sandboxID": record.sandbox, "cgroup": record.cgroup, "config": record.config,
            "runtimeSpec": spec,
        });
        let info =
            if verbose { HashMap::from([("info".to_owned(), info.to_string())]) } else { HashMap::new() };
        cri::ContainerStatusResponse { status: Some(container_status(&record)), info }
    }
}

/// Status of a sandbox and its containers.
pub(super) fn sandbox_status_of(
    objects: &Objects,
    sandbox: &Sandbox,
    verbose: bool,
) -> cri::PodSandboxStatusResponse {
    let containers = objects.containers_of(&sandbox.id);
    let record = sandbox.record.lock();
    let info = json!({ "pid": record.pid, "cgroup": record.cgroup, "config": record.config });
    let info = if verbose { HashMap::from([("info".to_owned(), info.to_string())]) } else { HashMap::new() };
    cri::PodSandboxStatusResponse {
        status: Some(sandbox_status(&record)),
        info,
        containers_statuses: containers.iter().map(|c| container_status(&c.record.lock())).collect(),
        timestamp: now(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_container_whose_hooks_run_is_running() {
        let mut record = ContainerRecord {
            phase: ContainerPhase::Exited,
            releasing: true,
            started_at: 1,
            finished_at: 2,
            exit_code: 3,
            reason: "Error".into(),
            ..Default::default()
        };
        let running = container_status(&record);
        assert_eq!(running.state(), cri::ContainerState::ContainerRunning);
        assert_eq!((running.started_at, running.finished_at, running.exit_code), (1, 0, 0));
        assert_eq!(running.reason, "");
        assert!(!*Container::new(record.clone()).exited.borrow());
        record.releasing = false;
        let exited = container_status(&record);
        assert_eq!(exited.state(), cri::ContainerState::ContainerExited);
        assert_eq!((exited.finished_at, exited.exit_code, exited.reason.as_str()), (2, 3, "Error"));
        assert!(*Container::new(record).exited.borrow());
    }

    #[test]
    fn records_of_earlier_engines_say_that_the_exit_was_reported() {
        let record: ContainerRecord = serde_json::from_str(r#"{"phase": "exited"}"#).unwrap();
        assert_eq!(container_state(&record), cri::ContainerState::ContainerExited);
    }
}
