//! Inputs of the OCI configuration that are looked up on the host.

use std::collections::BTreeMap;
use std::fs::{self, File};

use coracle_cli::causes;
use coracle_proto::cri::{self, NamespaceMode};
use oci_spec::runtime::LinuxNamespaceType;

use super::Bundles;
use crate::error::internal;
use crate::image::ImageConfig;
use crate::namespace::{hostname, is_host, namespace_options, root_of, user_maps};
use crate::record::{ContainerPhase, ContainerRecord, SandboxRecord};
use crate::rootfs::Rootfs;
use crate::runtime::{Result, RuntimeError};
use crate::spec::{Facts, Namespaces, SeLinux, devices, labels};
use crate::user::{self, Accounts};
use crate::{apparmor, host};

impl Bundles {
    /// The pod's user namespace, when it has one.
    pub(super) fn user_namespace(&self, sandbox: &SandboxRecord) -> Result<Option<File>> {
        if user_maps(&namespace_options(&sandbox.config)).is_none() {
            return Ok(None);
        }
        let path = self.paths.namespace(&sandbox.id, "user");
        File::open(&path).map(Some).map_err(internal("user namespace"))
    }

    /// The container's SELinux labels, if requested. Checks that the policy accepts them, for a better error than the
    /// runtime's.
    pub(super) fn selinux(
        &self,
        record: &ContainerRecord,
        sandbox: &SandboxRecord,
    ) -> Result<Option<SeLinux>> {
        let linux = record.config.linux.clone().unwrap_or_default();
        let security = linux.security_context.unwrap_or_default();
        let labels = labels::selinux(&security, &sandbox.id, &self.host)?;
        let unknown = labels
            .iter()
            .flat_map(|labels| [&labels.process, &labels.mount])
            .find(|label| !host::has_label(label));
        if let Some(label) = unknown {
            return Err(RuntimeError::InvalidArgument(format!(
                "seLinuxOptions make the label {label:?}, which the host's SELinux policy does not have"
            )));
        }
        Ok(labels)
    }

    /// Checks that the profile is loaded, for a better error than the runtime's.
    fn check_apparmor(&self, security: &cri::LinuxContainerSecurityContext) -> Result<()> {
        use cri::security_profile::ProfileType;
        let Some((ProfileType::Localhost, name)) = labels::requested(security) else { return Ok(()) };
        match apparmor::loaded() {
            Some(loaded) if self.host.apparmor && !loaded.contains(&name) => {
                Err(RuntimeError::InvalidArgument(format!("apparmor profile not found {name}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn facts(
        &self,
        record: &ContainerRecord,
        sandbox: &SandboxRecord,
        image: &ImageConfig,
        rootfs: &Rootfs,
    ) -> Result<Facts> {
        let linux = record.config.linux.clone().unwrap_or_default();
        let security = linux.security_context.unwrap_or_default();
        self.check_apparmor(&security)?;
        let mut volumes = BTreeMap::new();
        for (number, destination) in image.volumes.iter().enumerate() {
            let owner = root_of(&namespace_options(&sandbox.config));
            let dir = rootfs.volume(number, destination, owner).map_err(internal("image volume"))?;
            volumes.insert(destination.clone(), dir);
        }
        let devices = devices::of_container(&record.config.devices, security.privileged);
        let devices = devices.map_err(|e| RuntimeError::InvalidArgument(causes::chain(&e)))?;
        let dir = self.paths.sandbox(&sandbox.id);
        let host_net = is_host(namespace_options(&sandbox.config).network());
        Ok(Facts {
            id: record.id.clone(),
            sandbox: sandbox.id.clone(),
            hostname: hostname(&sandbox.config, host_net),
            sandbox_dir: dir,
            cgroup: record.cgroup.clone(),
            user: user::resolve(&Accounts::read(&rootfs.mount), &security, &image.user)?,
            namespaces: self.namespaces(sandbox, &security)?,
            volumes,
            devices,
            seccomp: self.seccomp_profile(&security)?,
            selinux: None,
        })
    }

    fn namespaces(
        &self,
        sandbox: &SandboxRecord,
        security: &cri::LinuxContainerSecurityContext,
    ) -> Result<Namespaces> {
        let pod = namespace_options(&sandbox.config);
        let own = security.namespace_options.clone().unwrap_or_else(|| pod.clone());
        let pin = |kind: &str| self.paths.namespace(&sandbox.id, kind);
        let mut spaces = Namespaces::default();
        if is_host(pod.network()) {
            spaces.host.extend([LinuxNamespaceType::Network, LinuxNamespaceType::Uts]);
        } else {
            spaces.join.insert(LinuxNamespaceType::Network, pin("net"));
            spaces.join.insert(LinuxNamespaceType::Uts, pin("uts"));
        }
        if is_host(pod.ipc()) {
            spaces.host.insert(LinuxNamespaceType::Ipc);
        } else {
            spaces.join.insert(LinuxNamespaceType::Ipc, pin("ipc"));
        }
        match own.pid() {
            NamespaceMode::Node => drop(spaces.host.insert(LinuxNamespaceType::Pid)),
            NamespaceMode::Pod if pod.pid() == NamespaceMode::Pod => {
                spaces.join.insert(LinuxNamespaceType::Pid, format!("/proc/{}/ns/pid", sandbox.pid).into());
            }
            NamespaceMode::Target => {
                let target = self.objects.container(&own.target_id)?;
                let record = target.record.lock();
                if record.phase != ContainerPhase::Running || record.sandbox != sandbox.id {
                    return Err(RuntimeError::FailedPrecondition(format!(
                        "target container {:?} is not running in this sandbox",
                        own.target_id
                    )));
                }
                spaces.join.insert(LinuxNamespaceType::Pid, format!("/proc/{}/ns/pid", record.pid).into());
            }
            NamespaceMode::Pod | NamespaceMode::Container => {}
        }
        if user_maps(&pod).is_some() {
            spaces.join.insert(LinuxNamespaceType::User, pin("user"));
        }
        Ok(spaces)
    }

    /// The profile a pod names: a full path, or a name in the profile directory.
    fn seccomp_profile(
        &self,
        security: &cri::LinuxContainerSecurityContext,
    ) -> Result<Option<serde_json::Value>> {
        use cri::security_profile::ProfileType;
        let Some(profile) = security.seccomp.as_ref().filter(|p| p.profile_type() == ProfileType::Localhost)
        else {
            return Ok(None);
        };
        let name = profile.localhost_ref.trim_start_matches("localhost/");
        let path = self.seccomp_profiles.join(name);
        let failed = |e: &dyn std::fmt::Display| {
            RuntimeError::InvalidArgument(format!("cannot load seccomp profile {:?}: {e}", path.display()))
        };
        let text = fs::read(&path).map_err(|e| failed(&e))?;
        serde_json::from_slice(&text).map(Some).map_err(|e| failed(&e))
    }
}
