//! Profiles and weights from a file in the form of upstream's `KubeSchedulerConfiguration`. What concerns how upstream
//! works inside (parallelism, percentages of nodes, client limits) is accepted and means nothing here.

use super::scores::{Packing, Weights};
use coracle_cli::yaml::YamlError;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The scheduler that takes pods that name none.
pub const DEFAULT_NAME: &str = "default-scheduler";

/// Weights by scheduler name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiles(pub BTreeMap<String, Weights>);

impl Default for Profiles {
    fn default() -> Self {
        Self(BTreeMap::from([(DEFAULT_NAME.to_owned(), Weights::default())]))
    }
}

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no YAML of this form.
    #[error("not a KubeSchedulerConfiguration: {0}")]
    Malformed(YamlError),
    /// It is of another kind.
    #[error("not a KubeSchedulerConfiguration: {api_version} {kind}")]
    Kind {
        /// The group and version of the file.
        api_version: String,
        /// The kind of the file.
        kind: String,
    },
    /// Two profiles have one name.
    #[error("profiles[{1}].schedulerName: Duplicate value: \"{0}\"")]
    Duplicate(String, usize),
    /// A plugin that is not known.
    #[error("profiles[{1}].plugins: unknown plugin \"{0}\"")]
    UnknownPlugin(String, usize),
    /// A scoring strategy that is not known.
    #[error("profiles[{1}].pluginConfig: unsupported scoring strategy \"{0}\"")]
    UnknownStrategy(String, usize),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    api_version: String,
    kind: String,
    profiles: Vec<Profile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Profile {
    scheduler_name: String,
    plugins: BTreeMap<String, Plugins>,
    plugin_config: Vec<PluginConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Plugins {
    enabled: Vec<Plugin>,
    disabled: Vec<Plugin>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Plugin {
    name: String,
    weight: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PluginConfig {
    name: String,
    /// Of a type that depends on the plugin.
    args: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeResourcesFitArgs {
    scoring_strategy: ScoringStrategy,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ScoringStrategy {
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl Profiles {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// From YAML or JSON; without profiles, the default one.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: File = coracle_cli::yaml::from_str(text).map_err(ConfigError::Malformed)?;
        if file.kind != "KubeSchedulerConfiguration"
            || !file.api_version.starts_with("kubescheduler.config.k8s.io/")
        {
            return Err(ConfigError::Kind { api_version: file.api_version, kind: file.kind });
        }
        let mut made = BTreeMap::new();
        for (at, profile) in file.profiles.iter().enumerate() {
            let name = if profile.scheduler_name.is_empty() { DEFAULT_NAME } else { &profile.scheduler_name };
            if made.insert(name.to_owned(), weights(profile, at)?).is_some() {
                return Err(ConfigError::Duplicate(name.to_owned(), at));
            }
        }
        if made.is_empty() { Ok(Self::default()) } else { Ok(Self(made)) }
    }
}

fn weights(profile: &Profile, at: usize) -> Result<Weights, ConfigError> {
    let mut weights = Weights::default();
    for point in ["multiPoint", "score"] {
        let Some(plugins) = profile.plugins.get(point) else { continue };
        for plugin in &plugins.disabled {
            if plugin.name == "*" {
                let packing = weights.packing;
                weights = Weights {
                    taints: 0,
                    node_affinity: 0,
                    spread: 0,
                    pod_affinity: 0,
                    fit: 0,
                    balance: 0,
                    images: 0,
                    packing,
                };
            } else if let Some(weight) = weight(&mut weights, &plugin.name, at)? {
                *weight = 0;
            }
        }
        for plugin in &plugins.enabled {
            if let Some(weight) = weight(&mut weights, &plugin.name, at)? {
                *weight = plugin.weight.clamp(1, 100);
            }
        }
    }
    for config in profile.plugin_config.iter().filter(|c| c.name == "NodeResourcesFit") {
        let args = NodeResourcesFitArgs::deserialize(&config.args).unwrap_or_default();
        match args.scoring_strategy.kind.as_deref() {
            None | Some("LeastAllocated") => {}
            Some("MostAllocated") => weights.packing = Packing::MostAllocated,
            Some(other) => return Err(ConfigError::UnknownStrategy(other.to_owned(), at)),
        }
    }
    Ok(weights)
}

/// The weight of a plugin; none for plugins that do not score.
fn weight<'w>(weights: &'w mut Weights, name: &str, at: usize) -> Result<Option<&'w mut i64>, ConfigError> {
    Ok(Some(match name {
        "TaintToleration" => &mut weights.taints,
        "NodeAffinity" => &mut weights.node_affinity,
        "PodTopologySpread" => &mut weights.spread,
        "InterPodAffinity" => &mut weights.pod_affinity,
        "NodeResourcesFit" => &mut weights.fit,
        "NodeResourcesBalancedAllocation" => &mut weights.balance,
        "ImageLocality" => &mut weights.images,
        "SchedulingGates" | "PrioritySort" | "NodeUnschedulable" | "NodeName" | "NodePorts"
        | "VolumeRestrictions" | "NodeVolumeLimits" | "VolumeBinding" | "VolumeZone"
        | "DefaultPreemption" | "DefaultBinder" => {
            return Ok(None);
        }
        other => return Err(ConfigError::UnknownPlugin(other.to_owned(), at)),
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    #[test]
    fn profiles_set_weights_and_packing() {
        let text = format!(
            "{HEAD}percentageOfNodesToScore: 50\nprofiles:\n- schedulerName: default-scheduler\n- schedulerName: packer\n  plugins:\n    score:\n      disabled: [{{name: ImageLocality}}]\n      enabled: [{{name: NodeResourcesFit, weight: 5}}]\n  pluginConfig:\n  - name: NodeResourcesFit\n    args: {{scoringStrategy: {{type: MostAllocated}}}}\n"
        );
        let profiles = Profiles::parse(&text).unwrap();
        assert_eq!(profiles.0[DEFAULT_NAME], Weights::default());
        let packer = profiles.0["packer"];
        assert_eq!((packer.fit, packer.images, packer.packing), (5, 0, Packing::MostAllocated));
        assert_eq!(Profiles::parse(HEAD).unwrap(), Profiles::default());
    }

    #[test]
    fn files_with_mistakes_are_refused() {
        let table = [
            ("kind: Pod\napiVersion: v1\n".to_owned(), "not a KubeSchedulerConfiguration"),
            (format!("{HEAD}profiles: [{{}}, {{}}]\n"), "Duplicate value: \"default-scheduler\""),
            (
                format!("{HEAD}profiles: [{{plugins: {{score: {{enabled: [{{name: Magic}}]}}}}}}]\n"),
                "unknown plugin \"Magic\"",
            ),
            (
                format!(
                    "{HEAD}profiles: [{{pluginConfig: [{{name: NodeResourcesFit, args: {{scoringStrategy: {{type: Best}}}}}}]}}]\n"
                ),
                "unsupported scoring strategy \"Best\"",
            ),
        ];
        for (text, expected) in table {
            let error = Profiles::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
