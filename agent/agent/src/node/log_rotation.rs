//! Container log rotation: renames the file, makes the runtime reopen it, compresses or removes older files.
//!
//! A pod that collects logs may write into their directories: links there are not followed.
#![deny(clippy::disallowed_methods)]

use coracle_cli::causes;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::lifecycle::table::PodTable;
use crate::pod::observed::State;
use coracle_engine::runtime::Runtime;
use coracle_host_dir::HostDir;

/// Interval between checks.
const PERIOD: Duration = Duration::from_secs(10);
const COMPRESSED: &str = ".gz";
const UNFINISHED: &str = ".tmp";
/// Mode of rotated files.
const MODE: u32 = 0o640;

/// Log limits of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes of one file.
    pub size: u64,
    /// Files, the current one too.
    pub files: usize,
}

/// Rotates logs until the process ends. Errors are retried at the next check.
pub async fn run(pods: PodTable, runtime: Arc<dyn Runtime>, limits: LogLimits) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for entry in pods.list() {
            for container in entry.view.containers.iter().filter(|c| c.state == State::Running) {
                let log = &container.log_path;
                if size(log).is_some_and(|size| size > limits.size)
                    && let Err(error) = rotate(&*runtime, &container.id, log, limits).await
                {
                    tracing::warn!(container = container.id, log = %log.display(), error = %causes::chain(&error), "log not rotated, will retry");
                }
            }
        }
    }
}

async fn rotate(runtime: &dyn Runtime, id: &str, log: &Path, limits: LogLimits) -> io::Result<()> {
    let (dir, name) = HostDir::of_file(log)?;
    let (inside, older) = (dir.try_clone()?, name.clone());
    tokio::task::spawn_blocking(move || tidy(&inside, &older, limits.files))
        .await
        .map_err(io::Error::other)??;
    let aside = with_suffix(&name, &Timestamp::now().strftime(".%Y%m%d-%H%M%S").to_string());
    dir.rename(&name, &aside)?;
    if let Err(error) = runtime.reopen_container_log(id).await {
        // The runtime keeps writing to the old file: renames it back.
        dir.rename(&aside, &name)?;
        return Err(io::Error::other(error));
    }
    Ok(())
}

/// Bytes of a log; nothing for what is not a regular file.
fn size(log: &Path) -> Option<u64> {
    let (dir, name) = HostDir::of_file(log).ok()?;
    Some(dir.open_file(name).ok()?.metadata().ok()?.len())
}

fn with_suffix(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

fn ends_with(name: &OsStr, suffix: &str) -> bool {
    name.as_encoded_bytes().ends_with(suffix.as_bytes())
}

/// Rotated files, oldest first.
fn rotated(dir: &HostDir, log: &OsStr) -> io::Result<Vec<OsString>> {
    let prefix = with_suffix(log, ".");
    let mut found = Vec::new();
    for name in dir.names()? {
        let name = name?;
        if !name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
            continue;
        }
        if ends_with(&name, UNFINISHED) {
            // Left by an interrupted rotation.
            dir.remove_file(&name)?;
        } else {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// Makes room for one more rotated file, and compresses those there are.
fn tidy(dir: &HostDir, log: &OsStr, files: usize) -> io::Result<()> {
    let mut all = rotated(dir, log)?;
    // The current file and the one it becomes count too.
    let keep = files.saturating_sub(2);
    for old in all.drain(..all.len().saturating_sub(keep)) {
        dir.remove_file(old)?;
    }
    for name in all.iter().filter(|name| !ends_with(name, COMPRESSED)) {
        let (whole, part) =
            (with_suffix(name, COMPRESSED), with_suffix(name, &format!("{COMPRESSED}{UNFINISHED}")));
        let mut packed = GzEncoder::new(dir.new_file(&part, MODE)?, Compression::default());
        io::copy(&mut dir.open_file(name)?, &mut packed)?;
        packed.finish()?.sync_all()?;
        dir.rename(&part, &whole)?;
        dir.remove_file(name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn old_files_are_packed_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let (held, log) = (HostDir::open(dir.path()).unwrap(), OsStr::new("0.log"));
        let names = || {
            let mut names: Vec<String> = fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        for name in ["0.log", "0.log.1.gz", "0.log.2.gz", "0.log.3", "0.log.4.gz.tmp", "1.log"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        tidy(&held, log, 4).unwrap();
        assert_eq!(names(), ["0.log", "0.log.2.gz", "0.log.3.gz", "1.log"]);
        let mut text = String::new();
        let packed = File::open(dir.path().join("0.log.3.gz")).unwrap();
        io::Read::read_to_string(&mut flate2::read::GzDecoder::new(packed), &mut text).unwrap();
        assert_eq!(text, "0.log.3");
        tidy(&held, log, 2).unwrap();
        assert_eq!(names(), ["0.log", "1.log"]);
    }
}
