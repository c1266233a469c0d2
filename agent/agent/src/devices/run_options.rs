//! What a container needs to use its devices, merged from the answers of all its plugins. Pure.

use coracle_devices::v1beta1::ContainerAllocateResponse;
use coracle_proto::cri;
use std::collections::{BTreeMap, BTreeSet};

/// Additions to a container's configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunOptions {
    /// Environment variables.
    pub envs: BTreeMap<String, String>,
    /// Mounts, by their path in the container.
    pub mounts: BTreeMap<String, cri::Mount>,
    /// Device nodes, by their path in the container.
    pub devices: BTreeMap<String, cri::Device>,
    /// Annotations for the runtime.
    pub annotations: BTreeMap<String, String>,
    /// Qualified names of CDI devices.
    pub cdi_devices: BTreeSet<String>,
}

impl RunOptions {
    /// Of several answers that set the same, the first one counts.
    pub fn merge(
        container: &str,
        answers: impl IntoIterator<Item = (String, ContainerAllocateResponse)>,
    ) -> Self {
        let mut all = Self::default();
        for (resource, answer) in answers {
            let set_twice = |what: &str, key: &str| {
                tracing::warn!(
                    container,
                    resource,
                    what,
                    key,
                    "two device plugins disagree, the first one counts"
                );
            };
            put(&mut all.envs, answer.envs, |key| set_twice("env", key));
            put(&mut all.annotations, answer.annotations, |key| set_twice("annotation", key));
            let mounts = answer.mounts.into_iter().map(|mount| {
                let cri_mount = cri::Mount {
                    container_path: mount.container_path.clone(),
                    host_path: mount.host_path,
                    readonly: mount.read_only,
                    ..cri::Mount::default()
                };
                (mount.container_path, cri_mount)
            });
            put(&mut all.mounts, mounts, |key| set_twice("mount", key));
            let devices = answer.devices.into_iter().map(|device| {
                let cri_device = cri::Device {
                    container_path: device.container_path.clone(),
                    host_path: device.host_path,
                    permissions: device.permissions,
                };
                (device.container_path, cri_device)
            });
            put(&mut all.devices, devices, |key| set_twice("device", key));
            all.cdi_devices.extend(answer.cdi_devices.into_iter().map(|device| device.name));
        }
        all
    }

    /// Adds them to a container's configuration. What the pod sets itself stays.
    pub fn apply(self, config: &mut cri::ContainerConfig) {
        let own = std::mem::take(&mut config.envs);
        // Of variables of the same name the last one counts.
        config.envs =
            self.envs.into_iter().map(|(key, value)| cri::KeyValue { key, value }).chain(own).collect();
        let own = std::mem::take(&mut config.mounts);
        config.mounts = self.mounts.into_values().chain(own).collect();
        config.devices.extend(self.devices.into_values());
        for (key, value) in self.annotations {
            config.annotations.entry(key).or_insert(value);
        }
        config.cdi_devices.extend(self.cdi_devices.into_iter().map(|name| cri::CdiDevice { name }));
    }
}

fn put<V: PartialEq>(
    all: &mut BTreeMap<String, V>,
    new: impl IntoIterator<Item = (String, V)>,
    conflict: impl Fn(&str),
) {
    for (key, value) in new {
        match all.get(&key) {
            Some(old) if *old != value => conflict(&key),
            Some(_) => {}
            None => drop(all.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_devices::v1beta1::{CdiDevice, DeviceSpec, Mount};

    #[test]
    fn answers_of_two_plugins_are_merged_into_the_configuration() {
        let answer = |number: &str| ContainerAllocateResponse {
            envs: [("SHARED".to_owned(), number.to_owned()), (format!("E{number}"), number.to_owned())]
                .into(),
            mounts: vec![Mount {
                container_path: "/lib/x".into(),
                host_path: format!("/opt/{number}"),
                read_only: true,
            }],
            devices: vec![DeviceSpec {
                container_path: format!("/dev/x{number}"),
                host_path: format!("/dev/y{number}"),
                permissions: "rw".into(),
            }],
            annotations: [
                ("io.kubernetes.container.hash".to_owned(), "forged".to_owned()),
                ("a".to_owned(), number.to_owned()),
            ]
            .into(),
            cdi_devices: vec![CdiDevice { name: "vendor.example/x=0".into() }],
        };
        let mut config = cri::ContainerConfig {
            envs: vec![cri::KeyValue { key: "SHARED".into(), value: "of the pod".into() }],
            annotations: [("io.kubernetes.container.hash".to_owned(), "own".to_owned())].into(),
            mounts: vec![cri::Mount { container_path: "/data".into(), ..cri::Mount::default() }],
            ..cri::ContainerConfig::default()
        };
        let both = [("r/1".to_owned(), answer("1")), ("r/2".to_owned(), answer("2"))];
        RunOptions::merge("c", both).apply(&mut config);
        let envs: Vec<_> = config.envs.iter().map(|env| format!("{}={}", env.key, env.value)).collect();
        assert_eq!(envs, ["E1=1", "E2=2", "SHARED=1", "SHARED=of the pod"], "the last one counts");
        let mounts: Vec<_> =
            config.mounts.iter().map(|mount| (&*mount.container_path, &*mount.host_path)).collect();
        assert_eq!(mounts, [("/lib/x", "/opt/1"), ("/data", "")]);
        assert!(config.mounts[0].readonly);
        assert_eq!(config.devices.len(), 2);
        assert_eq!(config.annotations["io.kubernetes.container.hash"], "own");
        assert_eq!(config.annotations["a"], "1");
        assert_eq!(config.cdi_devices, [cri::CdiDevice { name: "vendor.example/x=0".into() }]);
    }
}
