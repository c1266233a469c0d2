//! Builds the request for commands that enter a container without the OCI runtime, from the container's OCI configuration.
//!
//! [`coracle_keeper::enter`] executes it and explains why.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use oci_spec::runtime::{self, LinuxCapabilities, LinuxNamespaceType, Spec};

use super::Execs;
use crate::objects::Container;
use crate::oci_implementation::Implementation;
use crate::spec::capabilities;
use coracle_keeper::enter::{Capabilities, Request};
use coracle_seccomp::bpf;

impl Execs {
    /// The request for a process in the container, without the command; `None` if only the OCI runtime can start it.
    pub(super) fn enter_request(&self, container: &Container) -> Option<Arc<Request>> {
        let entry = container
            .enter_request
            .get_or_init(|| self.build_enter_request(container).map(Arc::new))
            .clone()?;
        // Falls back to the runtime if the container has child cgroups (processes must be in a leaf) or is frozen.
        let holds = |file: &str, what: &str| {
            let read = entry.cgroup.as_ref().and_then(|dir| fs::read_to_string(dir.join(file)).ok());
            read.is_none_or(|text| text.trim() == what)
        };
        (holds("cgroup.subtree_control", "") && holds("cgroup.freeze", "0")).then_some(entry)
    }

    fn build_enter_request(&self, container: &Container) -> Option<Request> {
        // A container of another runtime may be a VM.
        let runtime = Implementation::of(&self.oci.program_of(container))?;
        // With noexec memfds the kernel cannot run the sealed copy.
        let no_sealed = fs::read_to_string("/proc/sys/vm/memfd_noexec").is_ok_and(|text| text.trim() == "2");
        if no_sealed {
            return None;
        }
        let bundle = self.paths.bundle(&container.id);
        let text = fs::read(bundle.join("config.json")).ok()?;
        // Left to the runtime if oci-spec cannot read it: a seccomp profile of the node is in it as its file has it.
        let spec: Spec = serde_json::from_slice(&text).ok()?;
        let mut request = request_from_spec(&spec)?;
        let (pid, start_time, cgroup) = {
            let record = container.record.lock();
            (record.pid, record.start_time, record.cgroup.clone())
        };
        (request.pid, request.start_time) = (pid, start_time);
        request.keyring = runtime.keyring(&container.id);
        request.cgroup = Some(self.hierarchy.cgroup(&cgroup).ok()?.path().to_owned());
        if let Some(profile) = spec.linux().as_ref()?.seccomp() {
            let (path, fresh): (PathBuf, _) = (bundle.join("seccomp.bpf"), bundle.join(".seccomp.bpf"));
            fs::write(&fresh, bpf::compile(profile)?).ok()?;
            // By rename: a command started by an earlier agent may be reading the file.
            fs::rename(&fresh, &path).ok()?;
            request.filter = Some(path);
        }
        Some(request)
    }
}

/// User, capabilities and labels of an OCI process configuration; `None` if it has settings that are not supported here.
fn request_from_spec(spec: &Spec) -> Option<Request> {
    let process = spec.process().as_ref()?;
    let spaces = spec.linux().as_ref()?.namespaces().as_ref()?;
    let user_namespace = spaces.iter().any(|space| space.typ() == LinuxNamespaceType::User);
    let beyond = process.rlimits().is_some()
        || process.scheduler().is_some()
        || process.io_priority().is_some()
        || process.exec_cpu_affinity().is_some();
    if user_namespace || beyond {
        return None;
    }
    let set = |of: fn(&LinuxCapabilities) -> &Option<runtime::Capabilities>| -> Option<u64> {
        let names = process.capabilities().as_ref().and_then(|sets| of(sets).as_ref());
        names
            .into_iter()
            .flatten()
            .map(|capability| Some(1 << capabilities::number(&capability.to_string())?))
            .try_fold(0, |set, bit: Option<u64>| Some(set | bit?))
    };
    let label = |label: &Option<String>| label.clone().filter(|text| !text.is_empty());
    let user = process.user();
    Some(Request {
        env: process.env().clone()?,
        cwd: process.cwd().to_str()?.to_owned(),
        uid: user.uid(),
        gid: user.gid(),
        groups: user.additional_gids().clone().unwrap_or_default(),
        capabilities: Capabilities {
            bounding: set(LinuxCapabilities::bounding)?,
            effective: set(LinuxCapabilities::effective)?,
            permitted: set(LinuxCapabilities::permitted)?,
            inheritable: set(LinuxCapabilities::inheritable)?,
            ambient: set(LinuxCapabilities::ambient)?,
        },
        no_new_privileges: process.no_new_privileges().unwrap_or(false),
        apparmor: label(process.apparmor_profile()),
        selinux: label(process.selinux_label()),
        oom_score_adj: process.oom_score_adj(),
        ..Request::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    /// As the file of a bundle is read.
    fn request(spec: Value) -> Option<Request> {
        request_from_spec(&serde_json::from_value(spec).ok()?)
    }

    fn spec() -> Value {
        json!({
            "process": {
                "user": { "uid": 7, "gid": 8, "additionalGids": [9, 10] },
                "env": ["A=b"], "cwd": "/srv", "noNewPrivileges": true, "oomScoreAdj": 1000,
                "capabilities": { "bounding": ["CAP_CHOWN", "CAP_KILL"], "effective": ["CAP_KILL"], "permitted": ["CAP_KILL"] },
            },
            "linux": { "namespaces": [{ "type": "mount" }, { "type": "pid" }] },
        })
    }

    #[test]
    fn a_command_gets_what_the_container_has() {
        let request = request(spec()).unwrap();
        assert_eq!((request.uid, request.gid, request.groups), (7, 8, vec![9, 10]));
        assert_eq!(
            (&*request.cwd, request.env, request.oom_score_adj),
            ("/srv", vec!["A=b".to_owned()], Some(1000))
        );
        assert!(request.no_new_privileges);
        assert_eq!((request.apparmor, request.selinux), (None, None));
        let mut labelled = spec();
        labelled["process"]["apparmorProfile"] = json!("mine");
        labelled["process"]["selinuxLabel"] = json!("u:r:t:s0");
        let labelled = self::request(labelled).unwrap();
        assert_eq!(
            (labelled.apparmor.as_deref(), labelled.selinux.as_deref()),
            (Some("mine"), Some("u:r:t:s0"))
        );
        let sets = request.capabilities;
        assert_eq!(
            (sets.bounding, sets.effective, sets.permitted, sets.ambient),
            (0b10_0001, 0b10_0000, 0b10_0000, 0)
        );
    }

    #[test]
    fn the_rest_is_the_runtimes() {
        for (at, value) in [
            ("/process/apparmorProfile", json!(1)),
            ("/process/rlimits", json!([])),
            ("/process/capabilities/bounding", json!(["CAP_FLY"])),
            ("/linux/namespaces", json!([{ "type": "user" }])),
        ] {
            let mut spec = spec();
            let (parent, field) = at.rsplit_once('/').unwrap();
            spec.pointer_mut(parent).unwrap()[field] = value;
            assert_eq!(request(spec), None, "{at}");
        }
    }
}
