//! Finds the program of a command in the container's file system, and the user's home directory.
//!
//! Files here belong to the container: their contents are not trusted, and opening them must not block.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use nix::errno::Errno;

/// Bytes of a passwd file that are read at most.
const PASSWD: u64 = 1 << 20;

/// Why the program of a command was not found. The wording is that of Go's `exec`, as in OCI runtimes.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The path does not exist.
    #[error("exec: {command:?}: stat {command}: {}", errno.desc().to_lowercase())]
    Absent {
        /// The command as given.
        command: String,
        /// The cause.
        errno: Errno,
    },
    /// A directory is at its path.
    #[error("exec: {command:?}: is a directory")]
    Directory {
        /// The command as given.
        command: String,
    },
    /// The file is not executable.
    #[error("exec: {command:?}: permission denied")]
    Forbidden {
        /// The command as given.
        command: String,
    },
    /// No directory of the search path has it.
    #[error("exec: {command:?}: executable file not found in $PATH")]
    NotInPath {
        /// The command as given.
        command: String,
    },
}

/// Path of the file that a command names, searched for in `PATH`.
pub fn find(command: &str, env: &[String]) -> Result<String, ProgramError> {
    if command.contains('/') {
        return executable(command).map(|()| command.to_owned());
    }
    let path = env.iter().rev().find_map(|entry| entry.strip_prefix("PATH=")).unwrap_or_default();
    for dir in path.split(':').filter(|_| !path.is_empty()) {
        // An empty element of PATH means the working directory, as in shells.
        let file = if dir.is_empty() { format!("./{command}") } else { format!("{dir}/{command}") };
        if !command.is_empty() && executable(&file).is_ok() {
            return Ok(file);
        }
    }
    Err(ProgramError::NotInPath { command: command.to_owned() })
}

fn executable(path: &str) -> Result<(), ProgramError> {
    let command = || path.to_owned();
    let errno = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
    let found =
        fs::metadata(path).map_err(|e| ProgramError::Absent { command: command(), errno: errno(e) })?;
    if found.is_dir() {
        return Err(ProgramError::Directory { command: command() });
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Err(ProgramError::Forbidden { command: command() });
    }
    Ok(())
}

/// The home directory of a user, `/` for one that passwd does not know.
pub fn home(uid: u32) -> String {
    home_in(&passwd().unwrap_or_default(), uid).unwrap_or("/").to_owned()
}

fn passwd() -> Option<String> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/etc/passwd").ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(PASSWD).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn home_in(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let own = fields.nth(2)?.parse::<u32>().ok()? == uid;
        own.then(|| fields.nth(2)).flatten().filter(|home| !home.is_empty())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn programs_are_found_as_shells_find_them() {
        let dir = tempfile::tempdir().unwrap();
        let (tool, plain) = (dir.path().join("tool"), dir.path().join("plain"));
        fs::write(&tool, "").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&plain, "").unwrap();
        let at = dir.path().display();
        let env = ["PATH=/nowhere".to_owned(), format!("PATH=/nope:{at}")];
        assert_eq!(find("tool", &env).unwrap(), format!("{at}/tool"));
        assert_eq!(find(&format!("{at}/tool"), &[]).unwrap(), format!("{at}/tool"));
        for (command, error) in [
            ("plain".to_owned(), r#"exec: "plain": executable file not found in $PATH"#.to_owned()),
            (String::new(), r#"exec: "": executable file not found in $PATH"#.to_owned()),
            (format!("{at}/plain"), format!(r#"exec: "{at}/plain": permission denied"#)),
            (format!("{at}"), format!(r#"exec: "{at}": is a directory"#)),
        ] {
            assert_eq!(find(&command, &env).unwrap_err().to_string(), error);
        }
        assert_eq!(
            find("/nope", &env).unwrap_err().to_string(),
            r#"exec: "/nope": stat /nope: no such file or directory"#
        );
    }

    #[test]
    fn homes() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:33::/var/www:/bin/false\nnone:x:7:7:::\n";
        for (uid, home) in [(0, Some("/root")), (33, Some("/var/www")), (7, None), (8, None)] {
            assert_eq!(home_in(passwd, uid), home, "{uid}");
        }
    }
}
