//! Resources and properties of the node that pods are admitted and configured with.

use k8s_openapi::api::core::v1::Taint;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Resource pressure of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Disk.
    pub disk: bool,
    /// Process numbers.
    pub pids: bool,
}

impl Pressure {
    /// The corresponding node conditions.
    pub fn conditions(self) -> Vec<&'static str> {
        let all = [("DiskPressure", self.disk), ("MemoryPressure", self.memory), ("PIDPressure", self.pids)];
        all.into_iter().filter(|(_, on)| *on).map(|(condition, _)| condition).collect()
    }
}

/// Security modules that the kernel enforces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// AppArmor profiles.
    pub apparmor: bool,
    /// SELinux labels.
    pub selinux: bool,
}

impl Confinement {
    /// Detects the modules of this machine.
    pub fn of_host() -> Self {
        Self { apparmor: coracle_engine::host::has_apparmor(), selinux: coracle_engine::host::has_selinux() }
    }
}

/// Resources and properties of the node: cpu in thousandths, the rest in units.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// Allocatable resources.
    pub allocatable: BTreeMap<String, i64>,
    /// All memory of the machine.
    pub memory: i64,
    /// The Node object's labels.
    pub labels: BTreeMap<String, String>,
    /// The Node object's taints.
    pub taints: Vec<Taint>,
    /// Resource pressure.
    pub pressure: Pressure,
    /// Security modules of its kernel.
    pub confinement: Confinement,
    /// The machine is shutting down: new pods are rejected.
    pub shutting_down: bool,
}

/// The facts as they are now: the node's status task writes them, pod workers read them.
pub type SharedFacts = Arc<RwLock<NodeFacts>>;
