//! The program `etcd` and its version.

use super::MemberError;
use crate::executables;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Learners are known since then.
const LEAST: (u32, u32) = (3, 4);
const LEAST_NAME: &str = "3.4";
/// How long it may take to print a text.
const LIMIT: Duration = Duration::from_secs(20);
/// It has its own name since 3.6.
const SKIP_SAN: [&str; 2] =
    ["--peer-skip-client-san-verification", "--experimental-peer-skip-client-san-verification"];

/// A program that can run a member.
#[derive(Debug, Clone)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// Its version.
    pub version: String,
    /// The flag that lets peers connect from other addresses than those of their certificates, if there is one: machines with
    /// several addresses do.
    pub(super) skip_san: Option<&'static str>,
}

impl Program {
    /// Finds it in PATH or `/usr/bin`, and checks its version.
    pub async fn find() -> Result<Self, MemberError> {
        let mut dirs = executables::dirs();
        dirs.push("/usr/bin".into());
        let path = executables::find(&["etcd"], &dirs).ok_or(MemberError::NoProgram)?;
        let version = output(&path, "--version").await?;
        let version = version_of(&version).ok_or_else(|| MemberError::NoVersion(path.clone()))?.to_owned();
        if numbers(&version).is_none_or(|found| found < LEAST) {
            return Err(MemberError::Old { path, found: version, least: LEAST_NAME });
        }
        let help = output(&path, "--help").await?;
        let skip_san = SKIP_SAN.into_iter().find(|flag| help.split_whitespace().any(|word| word == *flag));
        Ok(Self { path, version, skip_san })
    }
}

/// What the program prints when it is called with one word.
async fn output(path: &Path, word: &str) -> Result<String, MemberError> {
    let mut command = tokio::process::Command::new(path);
    command.arg(word).stdin(Stdio::null()).kill_on_drop(true);
    remove_settings(command.as_std_mut());
    let spawn = |source| MemberError::Spawn { program: path.to_owned(), source };
    let ended = tokio::time::timeout(LIMIT, command.output()).await;
    let output = ended.map_err(|_| MemberError::NoVersion(path.to_owned()))?.map_err(spawn)?;
    let both = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&both).into_owned())
}

/// etcd reads options from variables like `ETCD_NAME`: those of another etcd are not for this one. The architectures that etcd
/// does not support need theirs.
pub(super) fn remove_settings(command: &mut std::process::Command) {
    let is_setting = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with("ETCD_"));
    for (name, _) in std::env::vars_os() {
        if is_setting(&name) && name != "ETCD_UNSUPPORTED_ARCH" {
            command.env_remove(name);
        }
    }
}

/// The version in `etcd Version: 3.4.23`.
fn version_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("etcd Version: ")).map(str::trim)
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let old = |text: &str| numbers(version_of(text).unwrap_or_default()).is_none_or(|v| v < LEAST);
        for (text, want) in [
            ("etcd Version: 3.4.23\nGit SHA: x\n", false),
            ("etcd Version: 3.10.0-rc.1\n", false),
            ("etcd Version: 3.6+git\n", false),
            ("etcd Version: 3.3.27\n", true),
            ("etcd Version: 2.9.9\n", true),
            ("something else", true),
            ("", true),
        ] {
            assert_eq!(old(text), want, "{text}");
        }
    }
}
