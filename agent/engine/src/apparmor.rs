//! The default AppArmor profile: what it says, and how it gets into the kernel.
//!
//! It takes nothing from a container that namespaces, capabilities and the system call filter leave it. It is there for the day
//! one of these fails: no write to the kernel's settings, no mount, no look at processes outside.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use super::spec::labels::DEFAULT_PROFILE;

const LOADED: &str = "/sys/kernel/security/apparmor/profiles";
/// Programs of the administrator may not be in a service's search path.
const PARSERS: [&str; 3] = ["/usr/sbin/apparmor_parser", "/sbin/apparmor_parser", "apparmor_parser"];

/// Why the profile is not in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The parser is not installed.
    #[error("apparmor_parser is not installed")]
    NoParser,
    /// The parser could not be run.
    #[error("apparmor_parser: {source}")]
    Run {
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The parser refused it.
    #[error("apparmor_parser: {message}")]
    Refused {
        /// What it said.
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

/// Loads the profile, or a newer text of it; one that an administrator loaded will do where there is no parser.
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
        // A parser that ends early says why below.
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

/// Names of the profiles in the kernel; `None` when that cannot be read.
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
