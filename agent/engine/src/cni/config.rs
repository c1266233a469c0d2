//! Network configurations: single plugins (`.conf`, `.json`) and lists (`.conflist`).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::{Error, Result};

/// Protocol versions this runtime speaks, oldest first.
pub const VERSIONS: &[&str] = &["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// A network: the plugins that make it, in the order of ADD.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkList {
    /// The network's name; part of cache file names and of IPAM state.
    pub name: String,
    /// The version the plugins are spoken to in.
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
        let bad = |reason: String| Error::BadConfig { path: path.into(), reason };
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|e| bad(format!("error parsing configuration: {e}")))?;
        let mut list = Self::parse(value).map_err(bad)?;
        if list.source.get("loadOnlyInlinedPlugins") != Some(&Value::Bool(true)) {
            list.load_plugin_files(path)?;
        }
        if list.plugins.is_empty() {
            return Err(bad("CNI config list has no networks".into()));
        }
        Ok(list)
    }

    /// Interprets a configuration; a single plugin becomes a list of one.
    pub fn parse(value: Value) -> std::result::Result<Self, String> {
        let Value::Object(root) = &value else { return Err("configuration is not a JSON object".into()) };
        let source = match root.contains_key("plugins") || !root.contains_key("type") {
            true => value.clone(),
            false => json!({
                "name": root.get("name"), "cniVersion": root.get("cniVersion"), "plugins": [value],
            }),
        };
        let text = |key: &str| source.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("name");
        if name.is_empty() {
            return Err("missing network name".into());
        }
        if !valid_name(&name) {
            return Err(format!("invalid characters found in network name {name:?}"));
        }
        let mut plugins = Vec::new();
        for (at, plugin) in source.get("plugins").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let Value::Object(plugin) = plugin else { return Err(format!("plugin {at} is not an object")) };
            match plugin.get("type").and_then(Value::as_str) {
                Some(kind) if !kind.is_empty() && !kind.contains('/') => plugins.push(plugin.clone()),
                _ => return Err(format!("failed to parse plugin config {at}: missing 'type'")),
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
                .map_err(|e| Error::BadConfig { path: file.clone(), reason: e.to_string() })?;
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
        let wanted = plugin.get("capabilities").and_then(Value::as_object);
        let granted: Map<String, Value> = wanted
            .into_iter()
            .flatten()
            .filter(|(_, on)| on.as_bool() == Some(true))
            .filter_map(|(name, _)| runtime.get(name).map(|value| (name.clone(), value.clone())))
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

/// The first configuration of `dir`, in name order: the cluster network. It decides even when it is broken.
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

/// `cniVersions` (CNI 1.1) lists what the configuration can be read as: the newest that we speak wins.
fn pick_version(source: &Value) -> std::result::Result<String, String> {
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
        (None, other) => {
            Err(format!("incompatible CNI versions; config is {other:?}, supported are {VERSIONS:?}"))
        }
    }
}

fn rank(version: &str) -> Option<usize> {
    VERSIONS.iter().position(|known| *known == version)
}

fn valid_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}
