//! The content of a spec file. Unknown fields are errors: a runtime that leaves out what it does not know would start containers
//! without what they need.

use serde::Deserialize;
use std::collections::BTreeMap;

use super::error::SpecError;
use super::names::{is_device, is_kind};

/// A spec file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Version of the specification.
    pub cdi_version: String,
    /// `vendor/class`.
    pub kind: String,
    /// For whoever reads the file.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Devices.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// For every container that has one of the devices.
    #[serde(default)]
    pub container_edits: Edits,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    /// Unique within the kind.
    pub name: String,
    /// For whoever reads the file.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// For every container that has it.
    #[serde(default)]
    pub container_edits: Edits,
}

/// Changes of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Edits {
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Device nodes.
    pub device_nodes: Vec<DeviceNode>,
    /// Network interfaces; not supported here.
    pub net_devices: Vec<NetDevice>,
    /// Programs that the OCI runtime runs.
    pub hooks: Vec<Hook>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Cache and memory bandwidth.
    pub intel_rdt: Option<IntelRdt>,
    /// Groups of the container's process.
    pub additional_gids: Vec<u32>,
}

/// A device node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeviceNode {
    /// In the container.
    pub path: String,
    /// On the host; as in the container if it is empty.
    pub host_path: String,
    /// `b`, `c`, `u` or `p`; that of the host's if it is empty.
    #[serde(rename = "type")]
    pub kind: String,
    /// Numbers; those of the host's if they are zero.
    pub major: i64,
    /// See `major`.
    pub minor: i64,
    /// Mode of the node.
    pub file_mode: Option<u32>,
    /// Of `r`, `w` and `m`, or `none`; everything if it is empty.
    pub permissions: String,
    /// Owner; the user of the container by default.
    pub uid: Option<u32>,
    /// Group; that of the container by default.
    pub gid: Option<u32>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetDevice {
    /// On the host.
    pub host_interface_name: String,
    /// In the container.
    pub name: String,
}

/// A program that the OCI runtime runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hook {
    /// When.
    pub hook_name: String,
    /// The program.
    pub path: String,
    /// Its arguments, with its name.
    pub args: Vec<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Seconds.
    pub timeout: Option<i64>,
}

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mount {
    /// On the host.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// Options of the mount.
    pub options: Vec<String>,
    /// File system; a bind mount if it is empty.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Cache and memory bandwidth.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IntelRdt {
    /// Class of service.
    #[serde(rename = "closID")]
    pub clos_id: String,
    /// Of the cache.
    pub l3_cache_schema: String,
    /// Of the memory bandwidth.
    pub mem_bw_schema: String,
    /// Lines of the schemata file.
    pub schemata: Vec<String>,
    /// Monitoring, since 1.1.0.
    pub enable_monitoring: bool,
    /// Monitoring of the cache, before 1.1.0.
    #[serde(rename = "enableCMT")]
    pub enable_cmt: bool,
    /// Monitoring of the memory bandwidth, before 1.1.0.
    #[serde(rename = "enableMBM")]
    pub enable_mbm: bool,
}

const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

impl Spec {
    /// Everything that the file says of its devices, with where it stands.
    pub fn edits(&self) -> impl Iterator<Item = (String, &Edits)> {
        let of_devices = self.devices.iter().enumerate();
        let of_devices =
            of_devices.map(|(at, device)| (format!("devices[{at}].containerEdits"), &device.container_edits));
        std::iter::once(("containerEdits".to_owned(), &self.container_edits)).chain(of_devices)
    }

    /// Fails if a value is not allowed.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let wrong = |field: String, reason: String| Err(SpecError::Value { field, reason });
        if !is_kind(&self.kind) {
            return wrong("kind".into(), format!("{:?} is not vendor/class", self.kind));
        }
        if self.devices.is_empty() {
            return wrong("devices".into(), "there is none".into());
        }
        for (at, device) in self.devices.iter().enumerate() {
            let field = |name: &str| format!("devices[{at}].{name}");
            if !is_device(&device.name) {
                return wrong(field("name"), format!("{:?} is not a name of a device", device.name));
            }
            if self.devices[..at].iter().any(|other| other.name == device.name) {
                return wrong(field("name"), format!("{:?} is there twice", device.name));
            }
            if device.container_edits == Edits::default() {
                return wrong(field("containerEdits"), "they are empty".into());
            }
        }
        for (field, edits) in self.edits() {
            if let Some((part, reason)) = edits.problem() {
                return wrong(format!("{field}.{part}"), reason);
            }
        }
        Ok(())
    }
}

fn is_variable(text: &str) -> bool {
    text.find('=').is_some_and(|at| at > 0)
}

impl Edits {
    /// The first value that is not allowed: its field and what is wrong.
    fn problem(&self) -> Option<(String, String)> {
        if let Some(bad) = self.env.iter().find(|text| !is_variable(text)) {
            return Some(("env".into(), format!("{bad:?} is not NAME=value")));
        }
        if !self.net_devices.is_empty() {
            return Some(("netDevices".into(), "network devices are not supported".into()));
        }
        let mut nodes = self.device_nodes.iter().enumerate();
        let mut hooks = self.hooks.iter().enumerate();
        let mut mounts = self.mounts.iter().enumerate();
        let node = nodes.find_map(|(at, node)| Some((format!("deviceNodes[{at}]"), node.problem()?)));
        let hook = || hooks.find_map(|(at, hook)| Some((format!("hooks[{at}]"), hook.problem()?)));
        let mount = || mounts.find_map(|(at, mount)| Some((format!("mounts[{at}]"), mount.problem()?)));
        let rdt = || Some(("intelRdt.closID".to_owned(), self.intel_rdt.as_ref()?.problem()?));
        node.or_else(hook).or_else(mount).or_else(rdt)
    }
}

impl DeviceNode {
    fn problem(&self) -> Option<String> {
        if !self.path.starts_with('/') {
            return Some(format!("path {:?} is not absolute", self.path));
        }
        if !self.host_path.is_empty() && !self.host_path.starts_with('/') {
            return Some(format!("hostPath {:?} is not absolute", self.host_path));
        }
        if !matches!(self.kind.as_str(), "" | "b" | "c" | "u" | "p") {
            return Some(format!("type {:?} is not one of b, c, u, p", self.kind));
        }
        if self.major < 0 || self.minor < 0 {
            return Some(format!("{}:{} is not a device number", self.major, self.minor));
        }
        let known = self.permissions == "none" || self.permissions.chars().all(|c| "rwm".contains(c));
        (!known).then(|| format!("permissions {:?} are not of r, w and m", self.permissions))
    }
}

impl Hook {
    fn problem(&self) -> Option<String> {
        if !HOOKS.contains(&self.hook_name.as_str()) {
            return Some(format!("hookName {:?} is not one of {}", self.hook_name, HOOKS.join(", ")));
        }
        if !self.path.starts_with('/') {
            return Some(format!("path {:?} is not absolute", self.path));
        }
        if self.timeout.is_some_and(|timeout| timeout <= 0) {
            return Some("timeout is not positive".into());
        }
        let bad = self.env.iter().find(|text| !is_variable(text))?;
        Some(format!("env {bad:?} is not NAME=value"))
    }
}

impl Mount {
    fn problem(&self) -> Option<String> {
        if self.host_path.is_empty() {
            return Some("hostPath is empty".into());
        }
        let absolute =
            self.container_path.starts_with('/') && !self.container_path.trim_matches('/').is_empty();
        (!absolute)
            .then(|| format!("containerPath {:?} is not an absolute path below /", self.container_path))
    }
}

impl IntelRdt {
    fn problem(&self) -> Option<String> {
        let id = self.clos_id.as_str();
        let bad = id != "/" && (id.len() >= 4096 || matches!(id, "." | "..") || id.contains(['/', '\n']));
        bad.then(|| format!("{id:?} is not a name of a file"))
    }
}
