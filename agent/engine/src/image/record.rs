//! Image records of the store.

use std::collections::BTreeMap;

use oci_spec::image::Config;
use serde::{Deserialize, Serialize};

use super::manifest::ConfigBlob;

/// One image, as listed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Digest of its config: `sha256:…`.
    pub id: String,
    /// Digest of its manifest; empty for docker archives, which have none.
    #[serde(default)]
    pub manifest: String,
    /// Names by tag. Kept in the store's name table, filled in when read.
    #[serde(skip_deserializing)]
    pub repo_tags: Vec<String>,
    /// Names by digest. Kept in the store's name table, filled in when read.
    #[serde(skip_deserializing)]
    pub repo_digests: Vec<String>,
    /// Bytes of its unpacked layers, shared ones included.
    pub size: u64,
    /// When it was built, RFC 3339.
    #[serde(default)]
    pub created: Option<String>,
    /// When it was last pulled, imported, or used, in seconds since 1970.
    #[serde(skip)]
    pub last_used: i64,
    /// Never removed by garbage collection.
    #[serde(default)]
    pub pinned: bool,
    /// Imported from an archive: pulling its name uses it without contacting a registry.
    #[serde(default)]
    pub imported: bool,
    /// Its layers, lowest first.
    pub layers: Vec<LayerRef>,
    /// Layers that it had before and that its containers may have mounted still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_layers: Vec<LayerRef>,
    /// How its processes run.
    pub config: ImageConfig,
}

/// A layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRef {
    /// Digest of the uncompressed tar.
    pub diff_id: String,
    /// Digest of this layer and all below it; none in records of earlier versions, which did not tell apart what lies
    /// below.
    #[serde(default)]
    pub chain_id: Option<String>,
    /// Bytes unpacked.
    pub size: u64,
}

/// Process defaults of an image.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// Entry point.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// Its default arguments.
    #[serde(default)]
    pub cmd: Vec<String>,
    /// `K=V`.
    #[serde(default)]
    pub env: Vec<String>,
    /// `user[:group]`, names or numbers; empty is root.
    #[serde(default)]
    pub user: String,
    /// Working directory.
    #[serde(default)]
    pub working_dir: String,
    /// Signal that asks it to stop; empty is SIGTERM.
    #[serde(default)]
    pub stop_signal: String,
    /// Paths that want a volume.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// `80/tcp`.
    #[serde(default)]
    pub exposed_ports: Vec<String>,
}

impl ImageConfig {
    /// Extracts the process defaults of a config blob.
    pub fn of(blob: &ConfigBlob) -> Self {
        let none = Config::default();
        let config = blob.config.as_ref().unwrap_or(&none);
        let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
        // oci-spec reads these maps in no order.
        let sorted = |names: &Option<Vec<String>>| {
            let mut names = list(names);
            names.sort_unstable();
            names
        };
        ImageConfig {
            entrypoint: list(config.entrypoint()),
            cmd: list(config.cmd()),
            env: list(config.env()),
            user: config.user().clone().unwrap_or_default(),
            working_dir: config.working_dir().clone().unwrap_or_default(),
            stop_signal: config.stop_signal().clone().unwrap_or_default(),
            volumes: sorted(config.volumes()),
            labels: config.labels().clone().unwrap_or_default().into_iter().collect(),
            exposed_ports: sorted(config.exposed_ports()),
        }
    }

    /// As an image config has it.
    pub(crate) fn to_oci(&self) -> Config {
        let mut config = Config::default();
        config
            .set_entrypoint(Some(self.entrypoint.clone()))
            .set_cmd(Some(self.cmd.clone()))
            .set_env(Some(self.env.clone()))
            .set_user(Some(self.user.clone()))
            .set_working_dir(Some(self.working_dir.clone()))
            .set_stop_signal(Some(self.stop_signal.clone()))
            .set_volumes(Some(self.volumes.clone()))
            .set_labels(Some(self.labels.clone().into_iter().collect()))
            .set_exposed_ports(Some(self.exposed_ports.clone()));
        config
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn process_defaults_of_a_config_and_back() {
        let blob = |config: serde_json::Value| -> ConfigBlob {
            serde_json::from_value(json!({ "config": config, "rootfs": { "diff_ids": ["sha256:1"] } }))
                .unwrap()
        };
        let given = json!({ "Entrypoint": ["/e"], "Cmd": ["a"], "Env": ["K=V"], "User": "1:2", "WorkingDir": "/w",
            "StopSignal": "SIGINT", "Labels": { "l": "m" }, "Volumes": { "/b": {}, "/a": {} },
            "ExposedPorts": { "90/udp": {}, "80/tcp": {} } });
        let config = ImageConfig::of(&blob(given.clone()));
        assert_eq!(
            (&*config.volumes, &*config.exposed_ports),
            (&["/a", "/b"].map(str::to_owned)[..], &["80/tcp", "90/udp"].map(str::to_owned)[..])
        );
        assert_eq!(serde_json::to_value(config.to_oci()).unwrap(), given);
        let nulls_inside = json!({ "Volumes": { "/a": null }, "ExposedPorts": { "80/tcp": null } });
        assert_eq!(*ImageConfig::of(&blob(nulls_inside)).volumes, ["/a".to_owned()]);
        let nulls = json!({ "Entrypoint": null, "Cmd": null, "Env": null, "User": null, "WorkingDir": null,
            "StopSignal": null, "Labels": null, "Volumes": null, "ExposedPorts": null, "Healthcheck": null });
        for empty in [nulls, json!({}), json!(null)] {
            assert_eq!(ImageConfig::of(&blob(empty)), ImageConfig::default());
        }
    }
}
