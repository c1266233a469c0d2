//! The default AppArmor profile, and loading it into the kernel.
//!
//! The profile is defence in depth: it denies only what namespaces, capabilities and seccomp already deny, such as
//! writing kernel settings, mounting, and reading processes outside of the container.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use super::spec::DEFAULT_PROFILE;

const LOADED: &str = "/sys/kernel/security/apparmor/profiles";
/// Absolute paths, because sbin may not be in the search path of a service.
const PARSERS: [&str; 3] = ["/usr/sbin/apparmor_parser", "/sbin/apparmor_parser", "apparmor_parser"];

/// Why the profile is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The parser is not installed.
    #[error("apparmor_parser is not installed")]
    NoParser,
    /// The parser could not be run.
    #[error("apparmor_parser")]
    Run {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The parser failed.
    #[error("apparmor_parser: {message}")]
    Refused {
        /// Its stderr.
        message: String,
    },
}

fn profile() -> String {
    format!(
        "profile {DEFAULT_PROFILE} flags=(attach_disconnected,mediate_deleted) {{
  file,
  network,
  capability,
  unix,

  # The node ends and traces its containers; they do so only to each other.
  signal (receive) peer=unconfined,
  signal (receive) peer=runc,
  signal (receive) peer=crun,
  signal (send, receive) peer={DEFAULT_PROFILE},
  ptrace (read, trace, readby, tracedby) peer={DEFAULT_PROFILE},
  umount,
  deny mount,

  # Settings and memory of the kernel.
  deny /proc/* w,
  deny /proc/sys/[^k]** w,
  deny /proc/sys/kernel/{{?,??,[^s][^h][^m]**}} w,
  deny /proc/sysrq-trigger rwklx,
  deny /proc/kcore rwklx,
  deny /proc/kmem rwklx,
  deny /proc/mem rwklx,
  deny /sys/[^f]*/** wklx,
  deny /sys/f[^s]*/** wklx,
  deny /sys/fs/[^c]*/** wklx,
  deny /sys/fs/c[^g]*/** wklx,
  deny /sys/fs/cg[^r]*/** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/kernel/security/** rwklx,
}}
"
    )
}

/// Loads the profile or replaces an older version of it. Without a parser, a profile that is loaded already is used.
pub fn load_default() -> Result<(), LoadError> {
    match run_parser() {
        Err(LoadError::NoParser) if loaded().is_some_and(|names| names.contains(DEFAULT_PROFILE)) => Ok(()),
        other => other,
    }
}

fn run_parser() -> Result<(), LoadError> {
    for parser in PARSERS {
        let mut command = Command::new(parser);
        command.args(["--skip-cache", "--replace"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = match command.stderr(Stdio::piped()).spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|source| LoadError::Run { source })?,
        };
        // If the parser exits early, its error is reported below.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(profile().as_bytes()));
        let output = child.wait_with_output().map_err(|source| LoadError::Run { source })?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(LoadError::Refused { message });
    }
    Err(LoadError::NoParser)
}

/// Names of the loaded profiles; `None` if they cannot be read.
pub fn loaded() -> Option<BTreeSet<String>> {
    std::fs::read_to_string(LOADED).ok().map(|text| names(&text))
}

/// Lines are `NAME (MODE)`; a name may have spaces.
fn names(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.rsplit_once(" (")).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_in_the_kernel() {
        let found = names("coracle-default (enforce)\n/usr/sbin/a b (complain)\n\n");
        assert_eq!(found, ["coracle-default", "/usr/sbin/a b"].map(str::to_owned).into());
    }
}
