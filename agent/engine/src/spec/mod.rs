//! Generates the OCI `config.json` from CRI messages. Pure: everything looked up on the host is passed in as [`Facts`].

// Why a configuration is rejected.
mod error;
// Inputs that are looked up on the host.
mod facts;
// Arguments, environment, capabilities, user.
pub mod process;
// Capability names and sets.
pub mod capabilities;
// Mounts.
pub mod mounts;
// Devices.
pub mod devices;
// The default seccomp profile.
pub mod seccomp;
// Labels of AppArmor and SELinux.
pub mod labels;
// Compiles a seccomp profile to BPF.
pub mod seccomp_bpf;

pub use error::{DEFAULT_PROFILE, Error, ProfileError};
pub use facts::{Contexts, Facts, Host, Namespaces, SeLinux, User};

use coracle_proto::cri;
use serde_json::{Value, json};

use self::devices::Node;
use super::image::ImageConfig;
use super::limits;

/// The runtime's configuration of a container.
pub fn generate(
    config: &cri::ContainerConfig,
    sandbox: &cri::PodSandboxConfig,
    image: &ImageConfig,
    facts: &Facts,
    host: &Host,
) -> Result<Value, Error> {
    let linux = config.linux.clone().unwrap_or_default();
    let security = linux.security_context.clone().unwrap_or_default();
    let mounts = mounts::generate(config, &security, facts)?;
    let mut spec = json!({
        "ociVersion": "1.0.2",
        "process": process::generate(config, image, &security, facts, host)?,
        "root": { "path": "rootfs", "readonly": security.readonly_rootfs },
        "mounts": mounts.list,
        "annotations": annotations(config, sandbox, facts),
        "linux": {
            "cgroupsPath": facts.cgroup,
            "namespaces": namespaces(&security, &facts.namespaces),
            "resources": resources(&linux.resources.unwrap_or_default(), &security, facts, host),
            "devices": facts.devices,
        },
    });
    if let Some(labels) = &facts.selinux {
        spec["process"]["selinuxLabel"] = labels.process.as_str().into();
        spec["linux"]["mountLabel"] = labels.mount.as_str().into();
    }
    let linux = &mut spec["linux"];
    if let Some(propagation) = mounts.root_propagation {
        linux["rootfsPropagation"] = propagation.into();
    }
    if !security.privileged {
        linux["maskedPaths"] = json!(security.masked_paths);
        linux["readonlyPaths"] = json!(security.readonly_paths);
        if let Some(filter) = filter(&security, facts, host)? {
            linux["seccomp"] = filter;
        }
    }
    let of_pod = sandbox.linux.as_ref().and_then(|l| l.security_context.as_ref());
    let options = of_pod.and_then(|s| s.namespace_options.as_ref());
    if let Some(user) = options.and_then(|n| n.userns_options.as_ref())
        && facts.namespaces.join.contains_key("user")
    {
        linux["uidMappings"] = mappings(&user.uids);
        linux["gidMappings"] = mappings(&user.gids);
    }
    Ok(spec)
}

fn mappings(ids: &[cri::IdMapping]) -> Value {
    let one =
        |m: &cri::IdMapping| json!({ "containerID": m.container_id, "hostID": m.host_id, "size": m.length });
    ids.iter().map(one).collect()
}

fn annotations(config: &cri::ContainerConfig, sandbox: &cri::PodSandboxConfig, facts: &Facts) -> Value {
    let pod = sandbox.metadata.clone().unwrap_or_default();
    let name = config.metadata.clone().unwrap_or_default().name;
    json!({
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": name,
        "io.kubernetes.cri.sandbox-id": facts.sandbox,
        "io.kubernetes.cri.sandbox-name": pod.name,
        "io.kubernetes.cri.sandbox-namespace": pod.namespace,
        "io.kubernetes.cri.sandbox-uid": pod.uid,
    })
}

fn namespaces(security: &cri::LinuxContainerSecurityContext, spaces: &Namespaces) -> Value {
    let mut kinds = vec!["mount", "pid", "network", "ipc", "uts"];
    if !security.privileged {
        kinds.push("cgroup");
    }
    if spaces.join.contains_key("user") {
        kinds.push("user");
    }
    kinds.retain(|kind| !spaces.host.contains(kind));
    let one = |kind: &&str| match spaces.join.get(kind) {
        Some(path) => json!({ "type": kind, "path": path }),
        None => json!({ "type": kind }),
    };
    kinds.iter().map(one).collect()
}

fn resources(
    resources: &cri::LinuxContainerResources,
    security: &cri::LinuxContainerSecurityContext,
    facts: &Facts,
    host: &Host,
) -> Value {
    // As files of cgroup v2, so that every runtime writes the same; limits of absent controllers would fail.
    let mut files = limits::files(resources);
    limits::keep_available(&mut files, &host.controllers);
    let mut rules = vec![json!({ "allow": security.privileged, "access": "rwm" })];
    if !security.privileged {
        rules.extend(facts.devices.iter().map(Node::rule));
    }
    json!({ "unified": files, "devices": rules })
}

/// The system call filter, none for unconfined.
fn filter(
    security: &cri::LinuxContainerSecurityContext,
    facts: &Facts,
    host: &Host,
) -> Result<Option<Value>, Error> {
    use cri::security_profile::ProfileType;
    let Some(profile) = &security.seccomp else { return Ok(None) };
    let kind = ProfileType::try_from(profile.profile_type).unwrap_or(ProfileType::Unconfined);
    if kind == ProfileType::Unconfined {
        return Ok(None);
    }
    if !host.seccomp {
        return match kind {
            ProfileType::RuntimeDefault => Ok(None),
            _ => Err(ProfileError::NoSeccomp.into()),
        };
    }
    match kind {
        ProfileType::RuntimeDefault => {
            let effective = capabilities::effective(security, &host.capabilities)?;
            Ok(Some(seccomp::default_profile(&effective)))
        }
        _ => Ok(facts.seccomp.clone()),
    }
}

#[cfg(test)]
mod tests;
