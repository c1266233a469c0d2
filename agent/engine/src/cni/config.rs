//! Network configurations: single plugins (`.conf`, `.json`) and lists (`.conflist`).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::{Error, Result};

/// Supported protocol versions, oldest first.
pub const VERSIONS: &[&str] = &["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON.
    #[error("error parsing configuration")]
    Syntax(#[source] serde_json::Error),
    /// A file of a single plugin that is not a JSON object.
    #[error(transparent)]
    PluginFile(serde_json::Error),
    /// The cached copy cannot be decoded.
    #[error("the cached configuration is unreadable")]
    Cache,
    /// JSON, but not an object.
    #[error("configuration is not a JSON object")]
    NotAnObject,
    /// Without `name`.
    #[error("missing network name")]
    NoName,
    /// A `name` that cannot be part of file names.
    #[error("invalid characters found in network name {name:?}")]
    BadName {
        /// The name as given.
        name: String,
    },
    /// An element of `plugins` that is not an object.
    #[error("plugin {at} is not an object")]
    PluginNotAnObject {
        /// Its index.
        at: usize,
    },
    /// A plugin without the name of its executable.
    #[error("failed to parse plugin config {at}: missing 'type'")]
    NoType {
        /// Its index.
        at: usize,
    },
    /// None of its versions is supported.
    #[error("incompatible CNI versions; config is {version:?}, supported are {VERSIONS:?}")]
    Version {
        /// The version as given.
        version: String,
    },
    /// A list without plugins.
    #[error("CNI config list has no networks")]
    NoPlugins,
}

/// A network: the plugins that make it, in the order of ADD.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkList {
    /// The network's name; part of cache file names and of IPAM state.
    pub name: String,
    /// The version used with the plugins.
    pub version: String,
    /// CHECK is not to be used on this network.
    pub disable_check: bool,
    /// GC is not to be used on this network.
    pub disable_gc: bool,
    /// One configuration per plugin, as written.
    pub plugins: Vec<Map<String, Value>>,
    /// The list exactly as it is cached for a later DEL.
    pub source: Value,
}

impl NetworkList {
    /// Reads a configuration file of either form.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes =
            fs::read(path).map_err(|source| Error::Io { action: "reading", path: path.into(), source })?;
        let bad = |reason| Error::BadConfig { path: path.into(), reason };
        let value: Value = serde_json::from_slice(&bytes).map_err(|e| bad(ConfigError::Syntax(e)))?;
        let mut list = Self::parse(value).map_err(bad)?;
        if list.source.get("loadOnlyInlinedPlugins") != Some(&Value::Bool(true)) {
            list.load_plugin_files(path)?;
        }
        if list.plugins.is_empty() {
            return Err(bad(ConfigError::NoPlugins));
        }
        Ok(list)
    }

    /// Interprets a configuration; a single plugin becomes a list of one.
    pub fn parse(value: Value) -> Result<Self, ConfigError> {
        let Value::Object(root) = &value else { return Err(ConfigError::NotAnObject) };
        let source = match root.contains_key("plugins") || !root.contains_key("type") {
            true => value.clone(),
            false => json!({
                "name": root.get("name"), "cniVersion": root.get("cniVersion"), "plugins": [value],
            }),
        };
        let text = |key: &str| source.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("name");
        if name.is_empty() {
            return Err(ConfigError::NoName);
        }
        if !valid_name(&name) {
            return Err(ConfigError::BadName { name });
        }
        let mut plugins = Vec::new();
        for (at, plugin) in source.get("plugins").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let Value::Object(plugin) = plugin else { return Err(ConfigError::PluginNotAnObject { at }) };
            match plugin_type(plugin) {
                Some(kind) if !kind.is_empty() && !kind.contains('/') => plugins.push(plugin.clone()),
                _ => return Err(ConfigError::NoType { at }),
            }
        }
        let flag = |key: &str| match source.get(key) {
            Some(Value::Bool(set)) => *set,
            Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
            _ => false,
        };
        Ok(NetworkList {
            version: pick_version(&source)?,
            disable_check: flag("disableCheck"),
            disable_gc: flag("disableGC"),
            name,
            plugins,
            source,
        })
    }

    /// CNI 1.1: plugins may also lie as files in `<dir>/<network>/`, appended in name order.
    fn load_plugin_files(&mut self, path: &Path) -> Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        for file in files_with(&parent.join(&self.name), &["conf"])? {
            let bytes = fs::read(&file).map_err(|source| Error::Io {
                action: "reading",
                path: file.clone(),
                source,
            })?;
            let plugin: Map<String, Value> = serde_json::from_slice(&bytes)
                .map_err(|e| Error::BadConfig { path: file.clone(), reason: ConfigError::PluginFile(e) })?;
            self.plugins.push(plugin.clone());
            if let Some(list) = self.source.get_mut("plugins").and_then(Value::as_array_mut) {
                list.push(Value::Object(plugin));
            }
        }
        Ok(())
    }

    /// Whether the network's version is at least `version`.
    pub fn at_least(&self, version: &str) -> bool {
        rank(&self.version) >= rank(version)
    }

    /// What one plugin reads on stdin: its configuration with name, version, capabilities and the previous result.
    pub fn stdin_of(
        &self,
        plugin: &Map<String, Value>,
        runtime: &Map<String, Value>,
        prev: Option<&Value>,
    ) -> Value {
        let mut conf = plugin.clone();
        conf.insert("name".into(), Value::String(self.name.clone()));
        conf.insert("cniVersion".into(), Value::String(self.version.clone()));
        let granted: Map<String, Value> = runtime
            .iter()
            .filter(|(name, _)| has_capability(plugin, name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !granted.is_empty() {
            conf.insert("runtimeConfig".into(), Value::Object(granted));
        }
        match prev {
            Some(prev) => conf.insert("prevResult".into(), prev.clone()),
            None => conf.remove("prevResult"),
        };
        Value::Object(conf)
    }
}

/// The name of a plugin's executable.
pub(super) fn plugin_type(plugin: &Map<String, Value>) -> Option<&str> {
    plugin.get("type")?.as_str()
}

/// Whether a plugin's configuration asks for a capability.
pub(super) fn has_capability(plugin: &Map<String, Value>, name: &str) -> bool {
    plugin.get("capabilities").and_then(|capabilities| capabilities.get(name)) == Some(&Value::Bool(true))
}

/// The first configuration of `dir` in name order: the cluster network. If it is invalid, the others are not tried.
pub fn first(dir: &Path) -> Result<NetworkList> {
    match files_with(dir, &["conf", "conflist", "json"])?.first() {
        Some(path) => NetworkList::load(path),
        None => Err(Error::NoConfig { dir: dir.into() }),
    }
}

fn files_with(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let failed = |source| Error::Io { action: "listing", path: dir.into(), source };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(e) => return Err(failed(e)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if extensions.contains(&extension) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The newest supported version of `cniVersions` (CNI 1.1).
fn pick_version(source: &Value) -> Result<String, ConfigError> {
    let single = source.get("cniVersion").and_then(Value::as_str).unwrap_or_default();
    let listed = source.get("cniVersions").and_then(Value::as_array).into_iter().flatten();
    let best = listed
        .filter_map(Value::as_str)
        .chain([single])
        .filter(|v| rank(v).is_some())
        .max_by_key(|v| rank(v));
    match (best, single) {
        (Some(version), _) => Ok(version.to_owned()),
        (None, "") => Ok("0.1.0".to_owned()),
        (None, other) => Err(ConfigError::Version { version: other.to_owned() }),
    }
}

fn rank(version: &str) -> Option<usize> {
    VERSIONS.iter().position(|known| *known == version)
}

fn valid_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}
