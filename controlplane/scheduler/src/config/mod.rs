//! The files that configure the scheduler: KubeSchedulerConfiguration, and the older Policy. Fields and plugins that are not
//! known are errors, which name the field. What concerns how upstream works inside (parallelism, client limits, leader election)
//! is accepted and means nothing here.

// Typed access to the content of a file, with the path of every field.
mod reader;
// Which plugins there are, and which of them a profile has.
mod plugins;
// Arguments of plugins.
mod args;
// Extenders.
mod extenders;
// The older Policy.
mod policy;
#[cfg(test)]
mod tests;

pub use reader::{FieldError, Problem};

use crate::extender::{Extender, ExtenderSetupError};
use crate::profile::{DEFAULT_NAME, Profile, Profiles};
use crate::queue::Backoff;
use coracle_cli::yaml::YamlError;
use reader::{At, Object};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest file that is read.
const LIMIT: u64 = 1 << 20;
/// Fields that concern how upstream works inside, with the fields of those that are objects.
const WITHOUT_EFFECT: [(&str, &[&str]); 5] = [
    ("enableProfiling", &[]),
    ("enableContentionProfiling", &[]),
    ("delayCacheUntilActive", &[]),
    (
        "leaderElection",
        &[
            "leaderElect",
            "leaseDuration",
            "renewDeadline",
            "retryPeriod",
            "resourceLock",
            "resourceName",
            "resourceNamespace",
        ],
    ),
    ("clientConnection", &["kubeconfig", "acceptContentTypes", "contentType", "qps", "burst"]),
];

/// How the scheduler is configured.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// Profiles by scheduler name.
    pub profiles: Profiles,
    /// Processes that are asked about pods, in order.
    pub extenders: Vec<Arc<Extender>>,
    /// How long pods wait after attempts that failed.
    pub backoff: Backoff,
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
    /// It is larger than any configuration.
    #[error("{path} is larger than {LIMIT} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Its content is wrong.
    #[error("{path}")]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ContentError,
    },
}

/// What is wrong with the content of a file.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// It is no YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// It is of another kind.
    #[error("not a {expected}: {api_version} {kind}")]
    Kind {
        /// What it should be.
        expected: &'static str,
        /// The group and version of the file.
        api_version: String,
        /// The kind of the file.
        kind: String,
    },
    /// A field.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Keys or certificates of an extender.
    #[error("{path}")]
    Extender {
        /// The field.
        path: String,
        /// Why.
        #[source]
        source: ExtenderSetupError,
    },
}

impl Configuration {
    /// Reads a KubeSchedulerConfiguration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&text(path)?).map_err(|source| ConfigError::Content { path: path.to_owned(), source })
    }

    /// Reads a Policy.
    pub fn read_policy(path: &Path) -> Result<Self, ConfigError> {
        policy::parse(&text(path)?).map_err(|source| ConfigError::Content { path: path.to_owned(), source })
    }

    /// From YAML or JSON; without profiles, the default one.
    pub fn parse(text: &str) -> Result<Self, ContentError> {
        const KIND: &str = "KubeSchedulerConfiguration";
        let file: Value = coracle_cli::yaml::from_str(text)?;
        of_type(&file, "kubescheduler.config.k8s.io/v1", KIND)?;
        let file = At::root(&file).object()?;
        let (known, mut fields): (Vec<_>, _) = (WITHOUT_EFFECT.to_vec(), vec!["apiVersion", "kind"]);
        fields.extend(known.iter().map(|(name, _)| *name));
        fields.extend([
            "parallelism",
            "percentageOfNodesToScore",
            "podInitialBackoffSeconds",
            "podMaxBackoffSeconds",
            "profiles",
            "extenders",
        ]);
        file.only(&fields)?;
        for (name, fields) in known.iter().filter(|(_, fields)| !fields.is_empty()) {
            if let Some(object) = file.get(name) {
                object.object()?.only(fields)?;
            }
        }
        if let Some(parallelism) = file.get("parallelism") {
            parallelism.int_in(1, i64::from(i32::MAX))?;
        }
        let extenders = extenders::read(&file)?;
        let mut profiles = profiles(&file)?;
        for profile in profiles.values_mut() {
            profile
                .rules_mut()
                .ignored
                .names
                .extend(extenders.iter().flat_map(|e| e.ignored_resources()).cloned());
        }
        Ok(Self { profiles: Profiles::new(profiles), extenders, backoff: backoff(&file)? })
    }
}

fn text(path: &Path) -> Result<String, ConfigError> {
    let read = |source| ConfigError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(read)?.len() > LIMIT {
        return Err(ConfigError::TooLarge { path: path.to_owned() });
    }
    std::fs::read_to_string(path).map_err(read)
}

fn of_type(file: &Value, version: &str, expected: &'static str) -> Result<(), ContentError> {
    let text = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if kind == expected && api_version == version {
        return Ok(());
    }
    Err(ContentError::Kind { expected, api_version, kind })
}

fn backoff(file: &Object<'_>) -> Result<Backoff, FieldError> {
    let seconds = |name: &str, default: i64, least: i64| match file.get(name) {
        Some(at) => at.int_in(least, 1 << 31),
        None => Ok(default),
    };
    let first = seconds("podInitialBackoffSeconds", 1, 1)?;
    let longest = seconds("podMaxBackoffSeconds", 10.max(first), first)?;
    Ok(Backoff { first: first.unsigned_abs() * 1000, longest: longest.unsigned_abs() * 1000 })
}

fn profiles(file: &Object<'_>) -> Result<BTreeMap<String, Profile>, FieldError> {
    let percentage = percentage(file)?;
    let mut made = BTreeMap::new();
    for at in file.list("profiles")? {
        let object = at.object()?;
        object.only(&["schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"])?;
        let name = object.text("schedulerName")?.unwrap_or(DEFAULT_NAME);
        if name.is_empty() {
            return Err(object.at("schedulerName").required());
        }
        let mut profile = plugins::profile(&object)?;
        args::apply(&object, &mut profile)?;
        profile.percentage = self::percentage(&object)?.or(percentage);
        if made.insert(name.to_owned(), profile).is_some() {
            return Err(object.at("schedulerName").fails(Problem::Duplicate(name.to_owned())));
        }
    }
    if made.is_empty() {
        made.insert(DEFAULT_NAME.to_owned(), Profile { percentage, ..Profile::default() });
    }
    Ok(made)
}

/// Of nodes to score; 0 is the default.
fn percentage(object: &Object<'_>) -> Result<Option<usize>, FieldError> {
    let Some(at) = object.get("percentageOfNodesToScore") else { return Ok(None) };
    let percent = at.int_in(0, 100)?;
    Ok(usize::try_from(percent).ok().filter(|percent| *percent > 0))
}
