//! Observed state of one pod: its sandboxes and container instances in the runtime.

use coracle_proto::cri;
use std::collections::HashMap;

/// Labels by which a restarted agent finds its pods' sandboxes and containers (the kubelet's own names).
pub mod label {
    /// Pod name.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// Pod namespace.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// Pod uid.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Container name.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
}

/// Annotations on containers that the agent reads back after a restart.
pub mod annotation {
    /// Hash of the container's spec.
    pub const HASH: &str = "io.kubernetes.container.hash";
    /// Restart count.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// Path of the termination message inside the container.
    pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    /// Policy of the termination message.
    pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// The pod's grace period in seconds.
    pub const POD_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
    /// The pod's deletion grace period in seconds.
    pub const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
}

/// State of a container instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Created, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited,
    /// The runtime cannot tell.
    Unknown,
}

/// One pod sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sandbox {
    /// Runtime's id.
    pub id: String,
    /// How many were made before it for this pod.
    pub attempt: u32,
    /// Whether it can hold containers.
    pub ready: bool,
    /// Its addresses; none with the host's network.
    pub ips: Vec<String>,
    /// When it was made, in nanoseconds since the epoch.
    pub created_at: i64,
}

/// One container instance: the `attempt`-th run of the container `name`.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Runtime's id.
    pub id: String,
    /// The sandbox it lives in.
    pub sandbox: String,
    /// Container name in the spec.
    pub name: String,
    /// Restart count.
    pub attempt: u32,
    /// State.
    pub state: State,
    /// Exit code, once exited.
    pub exit_code: i32,
    /// Runtime's reason for the end.
    pub reason: String,
    /// Termination message, or the runtime's.
    pub message: String,
    /// Times in nanoseconds since the epoch; 0 when they did not happen.
    pub created_at: i64,
    /// When it was started.
    pub started_at: i64,
    /// When it ended.
    pub finished_at: i64,
    /// Image as the spec asked for it.
    pub image: String,
    /// Image reference as the runtime resolved it.
    pub image_ref: String,
    /// Hash of the container spec it was made from.
    pub hash: String,
    /// Its log file.
    pub log_path: String,
    /// Resources the runtime reports.
    pub resources: Option<cri::LinuxContainerResources>,
    /// User the runtime reports.
    pub user: Option<cri::LinuxContainerUser>,
}

impl Default for Instance {
    fn default() -> Self {
        Instance {
            id: String::new(),
            sandbox: String::new(),
            name: String::new(),
            attempt: 0,
            state: State::Unknown,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            created_at: 0,
            started_at: 0,
            finished_at: 0,
            image: String::new(),
            image_ref: String::new(),
            hash: String::new(),
            log_path: String::new(),
            resources: None,
            user: None,
        }
    }
}

/// Everything observed of one pod, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Sandboxes, newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Instances, newest first.
    pub instances: Vec<Instance>,
}

impl Observed {
    /// The newest instance of a container, in whichever sandbox.
    pub fn latest(&self, name: &str) -> Option<&Instance> {
        self.instances.iter().find(|instance| instance.name == name)
    }

    /// The instance before the newest.
    pub fn previous(&self, name: &str) -> Option<&Instance> {
        self.instances.iter().filter(|instance| instance.name == name).nth(1)
    }

    /// The newest instance of a container inside one sandbox.
    pub fn latest_in(&self, sandbox: &str, name: &str) -> Option<&Instance> {
        self.latest(name).filter(|instance| instance.sandbox == sandbox)
    }

    /// The sandbox containers go into: the newest one, when it is ready.
    pub fn ready_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|sandbox| sandbox.ready)
    }

    /// Instances whose process may be alive.
    pub fn alive(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|instance| matches!(instance.state, State::Running | State::Unknown))
    }

    /// Whether a container certainly runs.
    pub fn is_any_running(&self) -> bool {
        self.instances.iter().any(|instance| instance.state == State::Running)
    }

    /// Puts newest first; to be called after the lists were filled.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by_key(|sandbox| std::cmp::Reverse((sandbox.attempt, sandbox.created_at)));
        self.instances.sort_by_key(|instance| std::cmp::Reverse((instance.attempt, instance.created_at)));
    }
}

/// Translates a container status of the runtime.
pub fn instance(status: cri::ContainerStatus, sandbox: String) -> Instance {
    let state = match cri::ContainerState::try_from(status.state) {
        Ok(cri::ContainerState::ContainerCreated) => State::Created,
        Ok(cri::ContainerState::ContainerRunning) => State::Running,
        Ok(cri::ContainerState::ContainerExited) => State::Exited,
        _ => State::Unknown,
    };
    let metadata = status.metadata.unwrap_or_default();
    let named = |map: &HashMap<String, String>, key: &str| map.get(key).cloned().unwrap_or_default();
    Instance {
        id: status.id,
        sandbox,
        name: if metadata.name.is_empty() {
            named(&status.labels, label::CONTAINER_NAME)
        } else {
            metadata.name
        },
        attempt: metadata.attempt,
        state,
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        created_at: status.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        image: status
            .image
            .map(
                |image| {
                    if image.user_specified_image.is_empty() {
                        image.image
                    } else {
                        image.user_specified_image
                    }
                },
            )
            .unwrap_or_default(),
        image_ref: status.image_ref,
        hash: named(&status.annotations, annotation::HASH),
        log_path: status.log_path,
        resources: status.resources.and_then(|resources| resources.linux),
        user: status.user.and_then(|user| user.linux),
    }
}

/// Translates a sandbox status of the runtime.
pub fn sandbox(status: &cri::PodSandboxStatus) -> Sandbox {
    let ips = status
        .network
        .iter()
        .flat_map(|network| {
            std::iter::once(&network.ip).chain(network.additional_ips.iter().map(|ip| &ip.ip))
        })
        .filter(|ip| !ip.is_empty())
        .cloned()
        .collect();
    Sandbox {
        id: status.id.clone(),
        attempt: status.metadata.as_ref().map(|metadata| metadata.attempt).unwrap_or_default(),
        ready: status.state == cri::PodSandboxState::SandboxReady as i32,
        ips,
        created_at: status.created_at,
    }
}
