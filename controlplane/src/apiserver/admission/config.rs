//! The file of `--admission-control-config-file`: settings of plugins by their names.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Why the chain cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// No such plugin.
    #[error("unknown admission plugin: {0}")]
    Unknown(String),
    /// The file cannot be read.
    #[error("admission configuration {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The file is not what it should be.
    #[error("admission configuration {0} is not valid")]
    Parse(PathBuf, #[source] Box<serde_saphyr::Error>),
    /// A plugin does not understand its settings.
    #[error("configuration of admission plugin {plugin}: {why}")]
    Plugin {
        /// The plugin.
        plugin: &'static str,
        /// What is wrong.
        why: String,
    },
}

/// Settings by plugin.
#[derive(Debug, Clone, Default)]
pub struct Configuration(BTreeMap<String, Value>);

impl Configuration {
    /// Reads an AdmissionConfiguration; a plugin's settings stand in it or in a file of their own beside it.
    pub fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let file = parse(path)?;
        let mut settings = BTreeMap::new();
        for plugin in file["plugins"].as_array().into_iter().flatten() {
            let name = plugin["name"].as_str().unwrap_or_default().to_owned();
            let own = match plugin["path"].as_str() {
                Some(own) if !own.is_empty() => parse(&path.parent().unwrap_or(Path::new(".")).join(own))?,
                _ => plugin["configuration"].clone(),
            };
            settings.insert(name, own);
        }
        Ok(Self(settings))
    }

    /// The settings of one plugin; its defaults when there are none.
    pub fn of<T: DeserializeOwned + Default>(&self, plugin: &'static str) -> Result<T, ConfigurationError> {
        match self.0.get(plugin).filter(|value| !value.is_null()) {
            None => Ok(T::default()),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|error| ConfigurationError::Plugin { plugin, why: error.to_string() }),
        }
    }

    /// With settings for a plugin, for tests.
    #[cfg(test)]
    pub fn with(plugin: &str, settings: Value) -> Self {
        Self(BTreeMap::from([(plugin.to_owned(), settings)]))
    }
}

fn parse(path: &Path) -> Result<Value, ConfigurationError> {
    let text = std::fs::read_to_string(path).map_err(|e| ConfigurationError::Read(path.into(), e))?;
    serde_saphyr::from_str(&text).map_err(|e| ConfigurationError::Parse(path.into(), Box::new(e)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn settings_stand_in_the_file_or_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("own.yaml"), "limits: [{type: Server, qps: 5, burst: 10}]\n").unwrap();
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n\
                    - name: PodSecurity\n  configuration: {defaults: {enforce: baseline}}\n\
                    - name: EventRateLimit\n  path: own.yaml\n";
        std::fs::write(at("all.yaml"), text).unwrap();
        let read = Configuration::read(&at("all.yaml")).unwrap();
        let enforce: Value = read.of("PodSecurity").unwrap();
        assert_eq!(enforce["defaults"]["enforce"], "baseline");
        let limits: Value = read.of("EventRateLimit").unwrap();
        assert_eq!(limits["limits"][0]["qps"], 5);
        assert_eq!(read.of::<Value>("Other").unwrap(), Value::Null);
        assert!(Configuration::read(&at("none.yaml")).is_err());
    }
}
