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
// Labels of AppArmor and SELinux.
pub mod labels;

pub use error::{DEFAULT_PROFILE, Error, ProfileError};
pub use facts::{Contexts, Facts, Host, Namespaces, SeLinux, User};

use std::collections::HashMap;
use std::path::PathBuf;

use coracle_proto::cri;
use coracle_seccomp::default::default_profile;
use oci_spec::runtime::{
    Linux, LinuxDeviceCgroup, LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceType,
    LinuxResources, LinuxSeccomp, Root, Spec,
};
use serde_json::Value;

use self::devices::Node;
use super::cdi::{self, CdiError};
use super::image::ImageConfig;
use super::limits;

/// The runtime's configuration of a container.
#[derive(Debug)]
pub struct Config {
    spec: Spec,
    /// A seccomp profile of the node as its file has it: oci-spec drops fields that it does not know and refuses rules
    /// that runtimes accept, such as conditions without an index.
    profile: Option<Value>,
}

impl Config {
    /// Adds CDI devices, by name.
    pub fn inject(&mut self, dirs: &[PathBuf], names: &[String]) -> Result<(), CdiError> {
        cdi::inject(&mut self.spec, dirs, names)
    }

    /// The content of `config.json`; fails if a path is not UTF-8.
    ///
    /// oci-spec keeps annotations, `unified` and capabilities in hash maps. They are sorted here: crun writes the files of
    /// `unified` in the order of the document.
    pub fn into_json(self) -> serde_json::Result<Value> {
        let mut json = serde_json::to_value(&self.spec)?;
        for at in ["/annotations", "/linux/resources/unified"] {
            if let Some(map) = json.pointer_mut(at).and_then(Value::as_object_mut) {
                map.sort_keys();
            }
        }
        let sets = json.pointer_mut("/process/capabilities").and_then(Value::as_object_mut);
        for set in sets.into_iter().flat_map(|sets| sets.values_mut()).filter_map(Value::as_array_mut) {
            set.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
        }
        if let Some(profile) = self.profile {
            json["linux"]["seccomp"] = profile;
        }
        Ok(json)
    }
}

/// The runtime's configuration of a container. Sets every field for which oci-spec has a default of its own.
pub fn generate(
    config: &cri::ContainerConfig,
    sandbox: &cri::PodSandboxConfig,
    image: &ImageConfig,
    facts: &Facts,
    host: &Host,
) -> Result<Config, Error> {
    let own = config.linux.clone().unwrap_or_default();
    let security = own.security_context.unwrap_or_default();
    let mounts = mounts::generate(config, &security, facts)?;
    let process = process::generate(config, image, &security, facts, host)?;
    let mut root = Root::default();
    root.set_path("rootfs".into()).set_readonly(Some(security.readonly_rootfs));
    let mut linux = Linux::default();
    linux
        .set_cgroups_path(Some(facts.cgroup.as_str().into()))
        .set_namespaces(Some(namespaces(&security, &facts.namespaces)))
        .set_resources(Some(resources(&own.resources.unwrap_or_default(), &security, facts, host)))
        .set_devices(Some(facts.devices.iter().map(|node| node.device.clone()).collect()))
        .set_mount_label(facts.selinux.as_ref().map(|labels| labels.mount.clone()))
        .set_rootfs_propagation(mounts.root_propagation.map(str::to_owned))
        .set_masked_paths(None)
        .set_readonly_paths(None);
    let mut profile = None;
    if !security.privileged {
        match filter(&security, facts, host)? {
            Filter::None => {}
            Filter::Default(filter) => {
                linux.set_seccomp(Some(filter));
            }
            Filter::OfNode(filter) => profile = Some(filter),
        }
        linux.set_masked_paths(Some(security.masked_paths)).set_readonly_paths(Some(security.readonly_paths));
    }
    let of_pod = sandbox.linux.as_ref().and_then(|l| l.security_context.as_ref());
    let options = of_pod.and_then(|s| s.namespace_options.as_ref());
    if let Some(user) = options.and_then(|n| n.userns_options.as_ref())
        && facts.namespaces.join.contains_key(&LinuxNamespaceType::User)
    {
        linux.set_uid_mappings(Some(mappings(&user.uids))).set_gid_mappings(Some(mappings(&user.gids)));
    }
    let mut spec = Spec::default();
    spec.set_version("1.0.2".into())
        .set_process(Some(process))
        .set_root(Some(root))
        .set_mounts(Some(mounts.list))
        .set_hostname(None)
        .set_annotations(Some(annotations(config, sandbox, facts)))
        .set_linux(Some(linux));
    Ok(Config { spec, profile })
}

fn mappings(ids: &[cri::IdMapping]) -> Vec<LinuxIdMapping> {
    let one = |m: &cri::IdMapping| {
        let mapping = LinuxIdMappingBuilder::default().container_id(m.container_id).host_id(m.host_id);
        mapping.size(m.length).build().expect("all fields have defaults")
    };
    ids.iter().map(one).collect()
}

fn annotations(
    config: &cri::ContainerConfig,
    sandbox: &cri::PodSandboxConfig,
    facts: &Facts,
) -> HashMap<String, String> {
    let pod = sandbox.metadata.clone().unwrap_or_default();
    let name = config.metadata.clone().unwrap_or_default().name;
    // Those of Kubernetes are the client's own; others are for the runtime, such as those of device plugins.
    let own = |key: &str| key.split_once('/').map_or(key, |(domain, _)| domain).contains("kubernetes.");
    let given = config.annotations.iter().filter(|(key, _)| !own(key));
    let mut all: HashMap<String, String> = given.map(|(key, value)| (key.clone(), value.clone())).collect();
    all.extend(
        [
            ("container-type", "container".to_owned()),
            ("container-name", name),
            ("sandbox-id", facts.sandbox.clone()),
            ("sandbox-name", pod.name),
            ("sandbox-namespace", pod.namespace),
            ("sandbox-uid", pod.uid),
        ]
        .map(|(key, value)| (format!("io.kubernetes.cri.{key}"), value)),
    );
    all
}

fn namespaces(security: &cri::LinuxContainerSecurityContext, spaces: &Namespaces) -> Vec<LinuxNamespace> {
    use LinuxNamespaceType::{Cgroup, Ipc, Mount, Network, Pid, User, Uts};
    let mut kinds = vec![Mount, Pid, Network, Ipc, Uts];
    if !security.privileged {
        kinds.push(Cgroup);
    }
    if spaces.join.contains_key(&User) {
        kinds.push(User);
    }
    kinds.retain(|kind| !spaces.host.contains(kind));
    let one = |kind: LinuxNamespaceType| {
        let mut space = LinuxNamespace::default();
        space.set_typ(kind).set_path(spaces.join.get(&kind).cloned());
        space
    };
    kinds.into_iter().map(one).collect()
}

fn resources(
    asked: &cri::LinuxContainerResources,
    security: &cri::LinuxContainerSecurityContext,
    facts: &Facts,
    host: &Host,
) -> LinuxResources {
    // As files of cgroup v2, so that every runtime writes the same; limits of absent controllers would fail.
    let mut files = limits::files(asked);
    limits::keep_available(&mut files, &host.controllers);
    let mut every = LinuxDeviceCgroup::default();
    every.set_allow(security.privileged).set_access(Some("rwm".into()));
    let mut rules = vec![every];
    if !security.privileged {
        rules.extend(facts.devices.iter().map(Node::rule));
    }
    let mut resources = LinuxResources::default();
    resources.set_unified(Some(files.into_iter().collect())).set_devices(Some(rules));
    resources
}

/// The system call filter of a container.
enum Filter {
    /// Unconfined.
    None,
    Default(LinuxSeccomp),
    OfNode(Value),
}

fn filter(
    security: &cri::LinuxContainerSecurityContext,
    facts: &Facts,
    host: &Host,
) -> Result<Filter, Error> {
    use cri::security_profile::ProfileType;
    let Some(profile) = &security.seccomp else { return Ok(Filter::None) };
    let kind = ProfileType::try_from(profile.profile_type).unwrap_or(ProfileType::Unconfined);
    if kind == ProfileType::Unconfined {
        return Ok(Filter::None);
    }
    if !host.seccomp {
        return match kind {
            ProfileType::RuntimeDefault => Ok(Filter::None),
            _ => Err(ProfileError::NoSeccomp.into()),
        };
    }
    match kind {
        ProfileType::RuntimeDefault => {
            let effective = capabilities::effective(security, &host.capabilities)?;
            Ok(Filter::Default(default_profile(&effective)))
        }
        _ => Ok(facts.seccomp.clone().map_or(Filter::None, Filter::OfNode)),
    }
}

#[cfg(test)]
mod tests;
