//! Files on the node of one container instance: its log, with what was rotated, and its termination message.
#![deny(clippy::disallowed_methods)]

use coracle_cli::causes;
use std::io;
use std::path::Path;

use coracle_host_dir::HostDir;

/// Removes the log of an instance and its rotated files. What is not removed goes with the pod.
pub fn remove_log(log: &Path) {
    let remove = || -> io::Result<()> {
        let (dir, name) = HostDir::of_file(log)?;
        let mut rotated = name.clone();
        rotated.push(".");
        for found in dir.names()? {
            let found = found?;
            let is_rotated = found.as_encoded_bytes().starts_with(rotated.as_encoded_bytes());
            if found == name || is_rotated {
                dir.remove_file(&found)?;
            }
        }
        Ok(())
    };
    report(log, remove());
}

/// Removes one file.
pub fn remove_file(path: &Path) {
    report(path, HostDir::of_file(path).and_then(|(dir, name)| dir.remove_file(name)));
}

fn report(path: &Path, removed: io::Result<()>) {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), error = %causes::chain(&error), "file of a removed container not removed");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::*;
    use std::fs;

    #[test]
    fn logs_of_dead_containers_are_removed_with_what_was_rotated() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["1.log", "1.log.20260101-000000.gz", "11.log", "2.log", "1.logs"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        remove_log(&dir.path().join("1.log"));
        remove_log(&dir.path().join("3.log"));
        remove_file(&dir.path().join("2.log"));
        remove_file(&dir.path().join("none/2.log"));
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["1.logs", "11.log"]);
    }
}
