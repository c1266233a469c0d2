//! The file of `--authentication-config`: an AuthenticationConfiguration with the issuers of JSON Web Tokens and with the requests
//! that need no credentials.

// The fields of the file.
mod file;
// What is wrong with a file, by field.
mod problems;
// Issuers: addresses, audiences, authorities.
mod issuer;
// Rules and mappings of claims.
mod claims;
// The file when it changes.
mod reload;

pub use reload::Reloader;

use super::anonymous::Anonymous;
use super::oidc::Settings;
use coracle_cli::yaml::{self, YamlError};
use coracle_proto::status::FieldError;
use file::AuthenticationConfiguration;
use problems::Problems;
use serde_json::json;
use std::collections::HashSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The largest file that is read.
const MAX_FILE: u64 = 1 << 20;
/// The most issuers of a file, as upstream.
const MAX_ISSUERS: usize = 64;

const KIND: &str = "AuthenticationConfiguration";
/// All have the same fields.
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// It cannot be read.
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// It is too large.
    #[error("{0} is larger than {MAX_FILE} bytes")]
    TooLarge(PathBuf),
    /// It is no such file.
    #[error("{0} is no {KIND}")]
    Parse(PathBuf, #[source] YamlError),
    /// Its fields are wrong.
    #[error("{path}:{}", listed(.problems))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, by field.
        problems: Vec<FieldError>,
    },
}

/// What is wrong: in the same line if that is enough, otherwise each in lines of its own.
fn listed(problems: &[FieldError]) -> String {
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] if !one.contains('\n') => format!(" {one}"),
        // Marks below an expression stay where they are: all lines but the first are indented alike.
        several => several.iter().map(|text| format!("\n  {}", text.replace('\n', "\n    "))).collect(),
    }
}

/// The text of a file, or why it is not read.
fn text(path: &Path) -> Result<String, ConfigurationError> {
    let failed = |error| ConfigurationError::Read(path.into(), error);
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(ConfigurationError::TooLarge(path.into()));
    }
    Ok(text)
}

/// A valid file.
pub struct Configuration {
    /// The issuers.
    pub issuers: Vec<Settings>,
    /// Requests without credentials, if the file says something about them.
    pub anonymous: Option<Anonymous>,
    text: String,
}

impl Configuration {
    /// Reads a file. `own_issuers` are the names under which this server makes tokens: nobody else may have them.
    pub fn read(path: &Path, own_issuers: &[String]) -> Result<Self, ConfigurationError> {
        Self::parse(path, text(path)?, own_issuers)
    }

    fn parse(path: &Path, text: String, own_issuers: &[String]) -> Result<Self, ConfigurationError> {
        let file: AuthenticationConfiguration =
            yaml::from_str(&text).map_err(|error| ConfigurationError::Parse(path.into(), error))?;
        match validated(file, own_issuers) {
            Ok((issuers, anonymous)) => Ok(Self { issuers, anonymous, text }),
            Err(problems) => Err(ConfigurationError::Invalid { path: path.into(), problems }),
        }
    }
}

type Parts = (Vec<Settings>, Option<Anonymous>);

fn validated(file: AuthenticationConfiguration, own: &[String]) -> Result<Parts, Vec<FieldError>> {
    let mut problems = Problems::default();
    if !VERSIONS.contains(&file.api_version.as_str()) {
        problems.add(FieldError::unsupported("apiVersion", &json!(file.api_version), &VERSIONS));
    }
    if file.kind != KIND {
        problems.add(FieldError::unsupported("kind", &json!(file.kind), &[KIND]));
    }
    if file.jwt.len() > MAX_ISSUERS {
        let why = format!("Too many: {}: must have at most {MAX_ISSUERS} items", file.jwt.len());
        problems.add(FieldError::new("FieldValueTooMany", "jwt", why));
        return Err(problems.into_all());
    }
    let (mut urls, mut discovery_urls) = (HashSet::new(), HashSet::new());
    let mut issuers = Vec::new();
    for (index, authenticator) in file.jwt.iter().enumerate() {
        let field = format!("jwt[{index}]");
        let issuer = issuer::validated(&authenticator.issuer, own, &format!("{field}.issuer"), &mut problems);
        let mapping = claims::compiled(authenticator, &field, &mut problems);
        if !urls.insert(&authenticator.issuer.url) {
            problems.duplicate(format!("{field}.issuer.url"), &authenticator.issuer.url);
        }
        if let Some(url) = authenticator.issuer.discovery_url.as_ref().filter(|url| !url.is_empty())
            && !discovery_urls.insert(url)
        {
            problems.duplicate(format!("{field}.issuer.discoveryURL"), url);
        }
        issuers.extend(mapping.map(|mapping| Settings { issuer, mapping }));
    }
    let anonymous = file.anonymous.map(|anonymous| {
        if !anonymous.enabled && !anonymous.conditions.is_empty() {
            let paths: Vec<&str> = anonymous.conditions.iter().map(|one| one.path.as_str()).collect();
            let why = "enabled should be set to true when conditions are defined";
            problems.add(FieldError::invalid("anonymous.conditions", &json!(paths), why));
        }
        match (anonymous.enabled, anonymous.conditions.is_empty()) {
            (false, _) => Anonymous::Nobody,
            (true, true) => Anonymous::Everybody,
            (true, false) => Anonymous::Paths(anonymous.conditions.into_iter().map(|one| one.path).collect()),
        }
    });
    if problems.is_empty() { Ok((issuers, anonymous)) } else { Err(problems.into_all()) }
}

#[cfg(test)]
mod tests;
