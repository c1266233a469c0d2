//! Which cluster of this machine a command is about: a data directory, or the name of a cluster of `coracle up`.

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Data directory of the cluster without a name.
const DEFAULT: &str = "/var/lib/coracle";
/// Directory of those that have one. It is not in the other's, which `down --purge` removes.
const NAMED: &str = "/var/lib/coracle-clusters";
/// Environment variable with the data directory.
const VARIABLE: &str = "CORACLE_DATA_DIR";
/// Environment variable with the name, which comes before the directory.
const NAME_VARIABLE: &str = "CORACLE_NAME";
/// Host names, contexts and directories contain the name.
const LONGEST_NAME: usize = 40;

/// Options that select a cluster of this machine.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterArgs {
    /// Data directory of the cluster [env: CORACLE_DATA_DIR] [default: /var/lib/coracle].
    #[arg(long, value_name = "DIR", value_parser = directory())]
    data_dir: Option<PathBuf>,
    /// Name of one of several clusters of `coracle up`; its data directory is /var/lib/coracle-clusters/NAME [env: CORACLE_NAME].
    #[arg(long, value_name = "NAME", conflicts_with = "data_dir")]
    name: Option<ClusterName>,
}

/// Parser of a directory: it is made absolute, because processes of the cluster have another working directory.
pub(crate) fn directory() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute)
}

impl ClusterArgs {
    /// The data directory: what the flags say, else the environment, else the default.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.data_dir_in(std::env::var_os(NAME_VARIABLE), std::env::var_os(VARIABLE))
    }

    fn data_dir_in(&self, name: Option<OsString>, dir: Option<OsString>) -> PathBuf {
        if self.name.is_none()
            && let Some(dir) = &self.data_dir
        {
            return dir.clone();
        }
        let of_environment = || name.as_deref().and_then(|name| parse_variable(name).ok().flatten());
        if let Some(ClusterName(name)) = self.name.clone().or_else(of_environment) {
            return Path::new(NAMED).join(name);
        }
        match dir.filter(|dir| !dir.is_empty()).map(std::path::absolute) {
            Some(Ok(dir)) => dir,
            _ => DEFAULT.into(),
        }
    }

    /// Options for a data directory.
    #[cfg(test)]
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self { data_dir: Some(data_dir.to_owned()), name: None }
    }
}

/// Why the environment does not select a cluster.
#[derive(Debug, thiserror::Error)]
#[error("invalid value {0:?} of {NAME_VARIABLE}: {reason}", reason = NameError)]
pub struct VariableError(OsString);

/// Checks the name in the environment, as the parser checks that of a flag.
pub fn check_environment() -> Result<(), VariableError> {
    match std::env::var_os(NAME_VARIABLE) {
        Some(name) => parse_variable(&name).map(drop),
        None => Ok(()),
    }
}

/// Whether the environment names a cluster.
pub(crate) fn is_named_in_environment() -> bool {
    std::env::var_os(NAME_VARIABLE).is_some_and(|name| !name.is_empty())
}

/// The name in a variable; an empty one is none.
fn parse_variable(value: &OsStr) -> Result<Option<ClusterName>, VariableError> {
    if value.is_empty() {
        return Ok(None);
    }
    let name = value.to_str().and_then(|name| name.parse::<ClusterName>().ok());
    name.map(Some).ok_or_else(|| VariableError(value.to_owned()))
}

/// The name of the cluster in a data directory, if `--name` selects it.
pub(crate) fn name_of(data_dir: &Path) -> Option<&str> {
    data_dir.strip_prefix(NAMED).ok()?.to_str().filter(|name| name.parse::<ClusterName>().is_ok())
}

/// What contexts of kubeconfigs call the cluster.
pub(crate) fn context_of(data_dir: &Path) -> String {
    name_of(data_dir).map_or_else(|| "coracle".to_owned(), |name| format!("coracle-{name}"))
}

/// The words that make a command about this cluster, such as ` --name a`; empty for the default.
pub(crate) fn selector_of(data_dir: &Path) -> String {
    match name_of(data_dir) {
        Some(name) => format!(" --name {name}"),
        None if data_dir == Path::new(DEFAULT) => String::new(),
        None => format!(" --data-dir {}", data_dir.display()),
    }
}

/// A name that can be part of host names, paths and contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClusterName(String);

/// Why a text is not the name of a cluster.
#[derive(Debug, thiserror::Error)]
#[error("want at most {LONGEST_NAME} lower-case letters, digits and '-', and a letter or digit at both ends")]
struct NameError;

impl FromStr for ClusterName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let valid = text.len() <= LONGEST_NAME
            && text.starts_with(fits)
            && text.ends_with(fits)
            && text.chars().all(|c| fits(c) || c == '-');
        if valid { Ok(Self(text.to_owned())) } else { Err(NameError) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        cluster: ClusterArgs,
    }

    fn parsed(line: &str) -> Result<ClusterArgs, clap::Error> {
        Ok(Cli::try_parse_from(format!("x {line}").split_whitespace())?.cluster)
    }

    #[test]
    fn flags_come_before_the_environment_and_that_before_the_default() {
        for (line, name, variable, expected) in [
            ("", None, None, "/var/lib/coracle"),
            ("", Some(""), Some(""), "/var/lib/coracle"),
            ("", None, Some("/mnt/x"), "/mnt/x"),
            ("", Some("b"), Some("/mnt/x"), "/var/lib/coracle-clusters/b"),
            ("--data-dir /mnt/y", Some("b"), Some("/mnt/x"), "/mnt/y"),
            ("--name a", Some("b"), Some("/mnt/x"), "/var/lib/coracle-clusters/a"),
        ] {
            let dir = parsed(line).unwrap().data_dir_in(name.map(Into::into), variable.map(Into::into));
            assert_eq!(dir, Path::new(expected), "{line} {name:?} {variable:?}");
        }
        assert_eq!(parse_variable(OsStr::new("a")).unwrap(), Some(ClusterName("a".into())));
        let error = parse_variable(OsStr::new("../a")).unwrap_err().to_string();
        assert!(error.starts_with("invalid value \"../a\" of CORACLE_NAME: want at most 40"), "{error}");
        assert!(parsed("--name a --data-dir /mnt/y").is_err());
        assert!(parsed("--data-dir y").unwrap().data_dir_in(None, None).is_absolute());
    }

    #[test]
    fn a_name_is_part_of_paths_and_contexts() {
        for bad in ["", "A", "-a", "a-", "a/b", "..", "a.b", "a b", &"a".repeat(41)] {
            assert!(bad.parse::<ClusterName>().is_err(), "{bad:?}");
        }
        let dir = parsed("--name team-1").unwrap().data_dir_in(None, None);
        assert_eq!((name_of(&dir), context_of(&dir).as_str()), (Some("team-1"), "coracle-team-1"));
        assert_eq!(selector_of(&dir), " --name team-1");
        for other in ["/var/lib/coracle", "/var/lib/coracle-clusters", "/var/lib/coracle-clusters/a/b"] {
            assert_eq!(name_of(Path::new(other)), None, "{other}");
        }
        assert_eq!(selector_of(Path::new("/mnt/x")), " --data-dir /mnt/x");
        assert_eq!(selector_of(Path::new(DEFAULT)), "");
    }
}
