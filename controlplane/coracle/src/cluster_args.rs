//! Which cluster of this machine a command is about: a data directory, or the name of a cluster of `coracle up`.

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Data directory of the cluster without a name.
const DEFAULT: &str = "/var/lib/coracle";
/// Directory of those that have one. It is not in the other's, which `down --purge` removes.
const NAMED: &str = "/var/lib/coracle-clusters";
/// Environment variable with the data directory.
const VARIABLE: &str = "CORACLE_DATA_DIR";
/// Host names, contexts and directories contain the name.
const LONGEST_NAME: usize = 40;

/// Options that select a cluster of this machine.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterArgs {
    /// Data directory of the cluster [env: CORACLE_DATA_DIR] [default: /var/lib/coracle].
    #[arg(long, value_name = "DIR", value_parser = directory())]
    data_dir: Option<PathBuf>,
    /// Name of one of several clusters of `coracle up`; its data directory is /var/lib/coracle-clusters/NAME.
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
        self.data_dir_in(std::env::var_os(VARIABLE))
    }

    fn data_dir_in(&self, variable: Option<OsString>) -> PathBuf {
        match (&self.name, &self.data_dir) {
            (Some(name), _) => Path::new(NAMED).join(&name.0),
            (None, Some(dir)) => dir.clone(),
            (None, None) => match variable.filter(|dir| !dir.is_empty()).map(std::path::absolute) {
                Some(Ok(dir)) => dir,
                _ => DEFAULT.into(),
            },
        }
    }

    /// Options for a data directory.
    #[cfg(test)]
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self { data_dir: Some(data_dir.to_owned()), name: None }
    }
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
        for (line, variable, expected) in [
            ("", None, "/var/lib/coracle"),
            ("", Some(""), "/var/lib/coracle"),
            ("", Some("/mnt/x"), "/mnt/x"),
            ("--data-dir /mnt/y", Some("/mnt/x"), "/mnt/y"),
            ("--name a", Some("/mnt/x"), "/var/lib/coracle-clusters/a"),
        ] {
            let dir = parsed(line).unwrap().data_dir_in(variable.map(Into::into));
            assert_eq!(dir, Path::new(expected), "{line} {variable:?}");
        }
        assert!(parsed("--name a --data-dir /mnt/y").is_err());
        assert!(parsed("--data-dir y").unwrap().data_dir_in(None).is_absolute());
    }

    #[test]
    fn a_name_is_part_of_paths_and_contexts() {
        for bad in ["", "A", "-a", "a-", "a/b", "..", "a.b", "a b", &"a".repeat(41)] {
            assert!(bad.parse::<ClusterName>().is_err(), "{bad:?}");
        }
        let dir = parsed("--name team-1").unwrap().data_dir_in(None);
        assert_eq!((name_of(&dir), context_of(&dir).as_str()), (Some("team-1"), "coracle-team-1"));
        assert_eq!(selector_of(&dir), " --name team-1");
        for other in ["/var/lib/coracle", "/var/lib/coracle-clusters", "/var/lib/coracle-clusters/a/b"] {
            assert_eq!(name_of(Path::new(other)), None, "{other}");
        }
        assert_eq!(selector_of(Path::new("/mnt/x")), " --data-dir /mnt/x");
        assert_eq!(selector_of(Path::new(DEFAULT)), "");
    }
}
