//! The file of `--admission-control-config-file`: configuration of plugins by plugin name.

// Why the chain cannot be set up.
mod error;

pub use error::{ConfigurationError, PluginError, SettingsError};

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Content {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    plugins: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    configuration: Value,
}

/// What the file may be: `apiVersion` and `kind`.
const FILE: &[(&str, &str)] = &[
    ("apiserver.config.k8s.io/v1", "AdmissionConfiguration"),
    ("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"),
];

/// What settings of a plugin are; none of these when they have no type, and nothing for a plugin that has no settings.
fn types(plugin: &str) -> Option<&'static [(&'static str, &'static str)]> {
    Some(match plugin {
        "PodSecurity" => &[
            ("pod-security.admission.config.k8s.io/v1", "PodSecurityConfiguration"),
            ("pod-security.admission.config.k8s.io/v1beta1", "PodSecurityConfiguration"),
            ("pod-security.admission.config.k8s.io/v1alpha1", "PodSecurityConfiguration"),
        ],
        "EventRateLimit" => &[("eventratelimit.admission.k8s.io/v1alpha1", "Configuration")],
        "InitialResources" => &[("initialresources.admission.k8s.io/v1alpha1", "Configuration")],
        "PodTolerationRestriction" => {
            &[("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration")]
        }
        "ResourceQuota" => &[
            ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
            ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
            ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
        ],
        "ImagePolicyWebhook" => &[],
        _ => return None,
    })
}

/// Settings of one plugin.
#[derive(Debug, Clone)]
struct Settings {
    /// The file that they are from.
    file: PathBuf,
    /// Where in it, when they are only a part of it.
    within: Option<String>,
    /// Where the plugin is named.
    named: String,
    value: Value,
}

impl Settings {
    /// The file, and the field in it.
    fn place(&self) -> String {
        match &self.within {
            Some(field) => format!("{}: {field}", self.file.display()),
            None => self.file.display().to_string(),
        }
    }
}

/// Settings by plugin.
#[derive(Debug, Clone, Default)]
pub struct Configuration(BTreeMap<String, Settings>);

impl Configuration {
    /// Reads an AdmissionConfiguration; a plugin's settings stand in it or in a file of their own beside it.
    pub fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let wrong = |error| ConfigurationError::Content(path.into(), error);
        let file = parse(path)?;
        of_type(&file, FILE).map_err(wrong)?;
        let file: Content = strict(&file).map_err(wrong)?;
        let mut settings = BTreeMap::new();
        for (index, plugin) in file.plugins.into_iter().enumerate() {
            if plugin.name.is_empty() {
                return Err(ConfigurationError::Unnamed { path: path.into(), index });
            }
            // What stands here counts before a file, and the first of a name, as upstream has it.
            let named = format!("{}: plugins[{index}].name", path.display());
            let own = match plugin.configuration {
                Value::Null if !plugin.path.is_empty() => {
                    let own = path.parent().unwrap_or(Path::new(".")).join(&plugin.path);
                    Settings { value: parse(&own)?, file: own, within: None, named }
                }
                value => {
                    let within = Some(format!("plugins[{index}].configuration"));
                    Settings { file: path.to_owned(), within, named, value }
                }
            };
            settings.entry(plugin.name).or_insert(own);
        }
        Ok(Self(settings))
    }

    /// An error when there are settings that nobody would read; `all` are the plugins that there are.
    pub fn read_by(&self, all: &[&'static str]) -> Result<(), ConfigurationError> {
        for (name, settings) in &self.0 {
            let Some(plugin) = all.iter().copied().find(|plugin| plugin == name) else {
                let (place, name) = (settings.named.clone(), name.clone());
                return Err(ConfigurationError::Settings { place, name });
            };
            if !settings.value.is_null() && types(plugin).is_none() {
                let error = PluginError::NoSettings(settings.place());
                return Err(ConfigurationError::Plugin { plugin, error });
            }
        }
        Ok(())
    }

    /// Whether the file names a plugin.
    pub fn names(&self, plugin: &str) -> bool {
        self.0.contains_key(plugin)
    }

    /// The settings of one plugin; its defaults when there are none.
    pub fn of<T: DeserializeOwned + Default>(&self, plugin: &'static str) -> Result<T, ConfigurationError> {
        let Some(settings) = self.0.get(plugin).filter(|settings| !settings.value.is_null()) else {
            return Ok(T::default());
        };
        let wrong = |error| {
            let error = PluginError::Settings { place: settings.place(), error: Box::new(error) };
            ConfigurationError::Plugin { plugin, error }
        };
        of_type(&settings.value, types(plugin).unwrap_or_default()).map_err(wrong)?;
        let mut value = settings.value.clone();
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|field, _| field != "apiVersion" && field != "kind");
        }
        strict(&value).map_err(wrong)
    }

    /// With settings for a plugin, of its newest type, for tests.
    #[cfg(test)]
    pub fn with(plugin: &str, mut value: Value) -> Self {
        let known = types(plugin).and_then(|types| types.first());
        if let (Some((version, kind)), Some(fields)) = (known, value.as_object_mut()) {
            fields.entry("apiVersion").or_insert((*version).into());
            fields.entry("kind").or_insert((*kind).into());
        }
        let settings = Settings { file: "test.yaml".into(), within: None, named: String::new(), value };
        Self(BTreeMap::from([(plugin.to_owned(), settings)]))
    }
}

/// Whether something is of one of the types; anything is when there are none.
pub fn of_type(value: &Value, types: &[(&str, &str)]) -> Result<(), SettingsError> {
    if types.is_empty() {
        return Ok(());
    }
    let object = value.as_object().ok_or(SettingsError::NotAnObject)?;
    let said = |field: &str| object.get(field).unwrap_or(&Value::Null);
    let (version, kind) = (said("apiVersion"), said("kind"));
    if types.iter().any(|(v, k)| version == v && kind == k) {
        return Ok(());
    }
    let (field, found, mut expected): (_, _, Vec<String>) = match types.iter().any(|(v, _)| version == v) {
        true => ("kind", kind, types.iter().map(|(_, k)| (*k).to_owned()).collect()),
        false => ("apiVersion", version, types.iter().map(|(v, _)| (*v).to_owned()).collect()),
    };
    expected.dedup();
    Err(match found {
        Value::Null => SettingsError::Untyped { field, expected },
        found => SettingsError::OtherType { field, found: found.to_string(), expected },
    })
}

/// Reads something, and says at which field it cannot. A field that is null is a field that is left out.
pub fn strict<T: DeserializeOwned>(value: &Value) -> Result<T, SettingsError> {
    let mut value = value.clone();
    drop_nulls(&mut value);
    let read = |value: &Value| serde_json::from_value::<T>(value.clone());
    read(&value).map_err(|error| {
        let why = error.to_string();
        // What is left out of a part lacks a field more: that is the same mistake. The library tells it by its text only.
        let lacks = |text: &str| text.starts_with("missing field");
        let same = |other: serde_json::Error| {
            let other = other.to_string();
            other == why || lacks(&why) && lacks(&other)
        };
        let field = culprit(&value, &|part| read(part).err().is_some_and(same));
        if field.is_empty() { SettingsError::Whole(error) } else { SettingsError::Field { field, error } }
    })
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Reads a list of objects that have no fields but these.
pub fn only<'de, D: Deserializer<'de>>(
    deserializer: D,
    fields: &'static [&'static str],
) -> Result<Vec<Value>, D::Error> {
    let list = Vec::<serde_json::Map<String, Value>>::deserialize(deserializer)?;
    match list.iter().flat_map(|object| object.keys()).find(|key| !fields.contains(&key.as_str())) {
        Some(unknown) => Err(D::Error::unknown_field(unknown, fields)),
        None => Ok(list.into_iter().map(Value::Object).collect()),
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
    coracle_cli::yaml::from_str(&text).map_err(|e| ConfigurationError::Parse(path.into(), e))
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
        let limits = "limits: [{type: Server, qps: 5, burst: 10}]\n";
        let typed = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n";
        std::fs::write(at("own.yaml"), format!("{typed}{limits}")).unwrap();
        std::fs::write(at("untyped.yaml"), limits).unwrap();
        let read = |plugins: &str| {
            let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
            std::fs::write(at("all.yaml"), format!("{head}plugins: [{plugins}]\n")).unwrap();
            Configuration::read(&at("all.yaml")).unwrap()
        };
        let security = "apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration";
        let both = read(&format!(
            "{{name: PodSecurity, configuration: {{{security}, defaults: {{enforce: baseline}}}}}}, \
             {{name: EventRateLimit, path: own.yaml}}, {{name: Priority}}"
        ));
        let enforce: Value = both.of("PodSecurity").unwrap();
        assert_eq!(enforce["defaults"]["enforce"], "baseline");
        let limits: Value = both.of("EventRateLimit").unwrap();
        assert_eq!(limits["limits"][0]["qps"], 5);
        assert_eq!(both.of::<Value>("Other").unwrap(), Value::Null);
        both.read_by(&["PodSecurity", "EventRateLimit", "Priority"]).unwrap();
        assert!(Configuration::read(&at("none.yaml")).is_err());
        // What has no type, and what nobody reads, is told with file and field.
        let file = at("all.yaml").display().to_string();
        let untyped = read("{name: EventRateLimit, path: untyped.yaml}").of::<Value>("EventRateLimit");
        let said = untyped.unwrap_err().to_string();
        let own = at("untyped.yaml").display().to_string();
        assert!(said.contains(&format!("{own}: apiVersion: must be eventratelimit.")), "{said}");
        let untyped = read("{name: PodSecurity, configuration: {defaults: {enforce: baseline}}}");
        let said = untyped.of::<Value>("PodSecurity").unwrap_err().to_string();
        let field = format!("{file}: plugins[0].configuration: apiVersion: must be pod-security.");
        assert!(said.contains(&field), "{said}");
        for (plugins, expected) in [
            ("{name: Nonsense}", "plugins[0].name: unknown admission plugin \"Nonsense\""),
            ("{name: Priority, configuration: {}}", "plugins[0].configuration: it has no settings here"),
        ] {
            let said = read(plugins).read_by(&["Priority"]).unwrap_err().to_string();
            assert!(said.contains(&format!("{file}: {expected}")), "{said}");
        }
    }

    #[test]
    fn what_is_no_admission_configuration_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
        for (text, expected) in [
            ("bad".to_owned(), "is no object with apiVersion and kind"),
            (String::new(), "is no object with apiVersion and kind"),
            ("{}".into(), "apiVersion: must be apiserver.config.k8s.io/v1 or "),
            ("apiVersion: v1\nkind: AdmissionConfiguration".into(), "apiVersion: \"v1\" is not known here"),
            (head.replace("kind: Admission", "kind: Foo"), "kind: \"FooConfiguration\" is not known here"),
            (format!("{head}plugin: []"), "plugin: unknown field `plugin`"),
            (format!("{head}plugins: [{{name: A}}, {{name: B, pth: b}}]"), "plugins[1].pth: unknown field"),
            (format!("{head}plugins: [{{path: b}}]"), "plugins[0]: missing field `name`"),
            (format!("{head}plugins: [{{name: ''}}]"), "plugins[0].name: must not be empty"),
            (head.to_owned(), ""),
            (format!("{head}plugins:"), ""),
            (format!("{head}plugins: [{{name: A, path: null, configuration: null}}]"), ""),
            (head.replace("config.k8s.io/v1", "k8s.io/v1alpha1"), ""),
        ] {
            std::fs::write(&path, &text).unwrap();
            let said = Configuration::read(&path).err().map(|error| error.to_string()).unwrap_or_default();
            let expected = match expected {
                "" => String::new(),
                expected => format!("admission configuration {}: {expected}", path.display()),
            };
            assert!(said.starts_with(&expected) && said.is_empty() == expected.is_empty(), "{text}: {said}");
        }
    }

    #[test]
    fn settings_are_of_the_plugins_type() {
        let typed = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind});
        let quota = "apiserver.config.k8s.io/v1";
        for (plugin, settings, expected) in [
            ("PodSecurity", typed("v1", "PodSecurityConfiguration"), "test.yaml: apiVersion: \"v1\""),
            ("PodSecurity", json!({"kind": "Foo"}), "test.yaml: kind: \"Foo\""),
            ("ResourceQuota", typed(quota, "ResourceQuotaConfiguration"), ""),
            ("ResourceQuota", typed(quota, "Configuration"), "test.yaml: kind: \"Configuration\""),
            ("ImagePolicyWebhook", typed("v1", "Any"), ""),
            ("PodSecurity", json!([]), "test.yaml: is no object with apiVersion and kind"),
        ] {
            let read = Configuration::with(plugin, settings).of::<Value>(plugin);
            let said = read.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{plugin}: {said}");
        }
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
