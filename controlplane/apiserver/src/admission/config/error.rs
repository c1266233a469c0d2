//! Why the chain of admission plugins cannot be set up.

use crate::https_client::HttpsClientError;
use coracle_cli::causes::chain;
use coracle_cli::yaml::YamlError;
use coracle_proto::status::FieldError;
use std::path::PathBuf;

/// What is wrong with the flags, the file of settings, or a plugin's own settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// No such plugin.
    #[error("{flag}: unknown admission plugin: {name}")]
    Unknown {
        /// Where it is named.
        flag: &'static str,
        /// Its name.
        name: String,
    },
    /// A plugin is disabled whose feature gate is on: without the plugin, everybody could hide objects.
    #[error("--disable-admission-plugins: {0} cannot be disabled with --feature-gates {0}=true")]
    NeededByGate(&'static str),
    /// The file cannot be read.
    #[error("admission configuration {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The file is not what it should be.
    #[error("admission configuration {0} is not valid")]
    Parse(PathBuf, #[source] YamlError),
    /// The file is something else, or has something in it that does not belong there.
    #[error("admission configuration {0}: {1}")]
    Content(PathBuf, SettingsError),
    /// Settings of a plugin without a name.
    #[error("admission configuration {path}: plugins[{index}].name: must not be empty")]
    Unnamed {
        /// The file.
        path: PathBuf,
        /// Which plugin in it.
        index: usize,
    },
    /// Settings of a plugin that does not exist.
    #[error("admission configuration {place}: unknown admission plugin {name:?}")]
    Settings {
        /// The file and field that name it.
        place: String,
        /// Its name.
        name: String,
    },
    /// A plugin does not understand its settings, or cannot do without.
    #[error("couldn't init admission plugin {plugin:?}: {error}")]
    Plugin {
        /// The plugin.
        plugin: &'static str,
        /// What is wrong.
        error: PluginError,
    },
}

/// Why a plugin cannot be on.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// Its settings cannot be read.
    #[error("{place}: {error}")]
    Settings {
        /// The file, and the field in it.
        place: String,
        /// What is wrong with them.
        error: Box<SettingsError>,
    },
    /// It takes no settings.
    #[error("{0}: it has no settings here")]
    NoSettings(String),
    /// Settings that it does not take.
    #[error("{}", listed(.0))]
    Invalid(Vec<FieldError>),
    /// A time of ImagePolicyWebhook that is too long or negative.
    #[error("imagePolicy.{field}: valid value is between 1 and {most}, got {value}")]
    Range {
        /// The field.
        field: &'static str,
        /// The most that it can be.
        most: i64,
        /// What it is.
        value: i64,
    },
    /// The backend of ImagePolicyWebhook cannot be used.
    #[error("imagePolicy.kubeConfigFile: {}", chain(.0))]
    Kubeconfig(HttpsClientError),
    /// It belongs to a feature that is off.
    #[error("it needs --feature-gates {0}=true")]
    NoGate(&'static str),
    /// ImagePolicyWebhook has no backend.
    #[error("no config specified: imagePolicy.kubeConfigFile is needed")]
    NoKubeconfig,
}

fn listed(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Why settings are not of their type.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// They are not an object.
    #[error("is no object with apiVersion and kind")]
    NotAnObject,
    /// They do not say what they are.
    #[error("{field}: must be {}", .expected.join(" or "))]
    Untyped {
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// What it can be.
        expected: Vec<String>,
    },
    /// They say that they are something else.
    #[error("{field}: {found} is not known here, it must be {}", .expected.join(" or "))]
    OtherType {
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// What it is, as JSON.
        found: String,
        /// What it can be.
        expected: Vec<String>,
    },
    /// They are wrong as a whole.
    #[error(transparent)]
    Whole(serde_json::Error),
    /// One field is wrong.
    #[error("{field}: {error}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}
