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
    /// A plugin does not understand its settings, or cannot do without.
    #[error("couldn't init admission plugin {plugin:?}: {why}")]
    Plugin {
        /// The plugin.
        plugin: &'static str,
        /// What is wrong.
        why: String,
    },
}

/// Settings by plugin, with the file that they are from.
#[derive(Debug, Clone, Default)]
pub struct Configuration(BTreeMap<String, (PathBuf, Value)>);

impl Configuration {
    /// Reads an AdmissionConfiguration; a plugin's settings stand in it or in a file of their own beside it.
    pub fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let file = parse(path)?;
        let mut settings = BTreeMap::new();
        for plugin in file["plugins"].as_array().into_iter().flatten() {
            let name = plugin["name"].as_str().unwrap_or_default().to_owned();
            let own = match plugin["path"].as_str() {
                Some(own) if !own.is_empty() => {
                    let own = path.parent().unwrap_or(Path::new(".")).join(own);
                    let settings = parse(&own)?;
                    (own, settings)
                }
                _ => (path.to_owned(), plugin["configuration"].clone()),
            };
            settings.insert(name, own);
        }
        Ok(Self(settings))
    }

    /// The settings of one plugin; its defaults when there are none.
    pub fn of<T: DeserializeOwned + Default>(&self, plugin: &'static str) -> Result<T, ConfigurationError> {
        let Some((file, value)) = self.0.get(plugin).filter(|(_, value)| !value.is_null()) else {
            return Ok(T::default());
        };
        let read =
            |value: &Value| serde_json::from_value::<T>(value.clone()).map_err(|error| error.to_string());
        read(value).map_err(|why| {
            // What is left out of a part lacks a field more: that is the same mistake.
            let lacks = |text: &str| text.starts_with("missing field");
            let same = |other: String| other == why || lacks(&why) && lacks(&other);
            let field = culprit(value, &|part| read(part).err().is_some_and(same));
            let place = [file.display().to_string(), field].join(": ");
            ConfigurationError::Plugin { plugin, why: format!("{}: {why}", place.trim_end_matches(": ")) }
        })
    }

    /// With settings for a plugin, for tests.
    #[cfg(test)]
    pub fn with(plugin: &str, settings: Value) -> Self {
        Self(BTreeMap::from([(plugin.to_owned(), ("test.yaml".into(), settings))]))
    }
}

/// The field at which a reader stumbles: the innermost without which it does not stumble any more, or over something else.
fn culprit(whole: &Value, stumbles: &dyn Fn(&Value) -> bool) -> String {
    let (mut pointer, mut path) = (String::new(), String::new());
    loop {
        let keys: Vec<String> = match whole.pointer(&pointer) {
            Some(Value::Object(map)) => map.keys().cloned().collect(),
            Some(Value::Array(list)) => (0..list.len()).map(|index| index.to_string()).collect(),
            _ => return path,
        };
        let matters = |key: &&String| {
            let mut without = whole.clone();
            match without.pointer_mut(&pointer) {
                Some(Value::Object(map)) => drop(map.remove(*key)),
                Some(Value::Array(list)) => drop(key.parse().map(|index: usize| list.remove(index))),
                _ => {}
            }
            !stumbles(&without)
        };
        let Some(key) = keys.iter().find(matters) else { return path };
        match whole.pointer(&pointer) {
            Some(Value::Array(_)) => path += &format!("[{key}]"),
            _ if path.is_empty() => path.clone_from(key),
            _ => path += &format!(".{key}"),
        }
        pointer += &format!("/{}", key.replace('~', "~0").replace('/', "~1"));
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
    use serde_json::json;

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

    #[test]
    fn mistakes_are_told_with_file_and_field() {
        #[derive(Debug, Default, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Settings {
            #[allow(dead_code)]
            limits: Vec<Limit>,
        }
        #[derive(Debug, serde::Deserialize)]
        struct Limit {
            #[allow(dead_code)]
            burst: u32,
            #[allow(dead_code)]
            qps: u32,
        }
        for (settings, expected) in [
            (
                json!({"limits": [{"burst": 1, "qps": 1}, {"burst": 1, "qps": "x"}]}),
                "test.yaml: limits[1].qps: ",
            ),
            (json!({"limits": [{"burst": 1}]}), "test.yaml: limits[0]: missing field `qps`"),
            (json!({"limits": [], "lids": 1}), "test.yaml: lids: unknown field `lids`"),
            (json!([1]), "test.yaml: "),
        ] {
            let said = Configuration::with("P", settings).of::<Settings>("P").unwrap_err().to_string();
            assert!(said.starts_with(&format!("couldn't init admission plugin \"P\": {expected}")), "{said}");
        }
    }
}
