//! Logs that grow are cut: the file is moved aside, the runtime begins a new one, older ones are compressed or removed.

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::pod::observed::State;

/// Between looks at the logs.
const PERIOD: Duration = Duration::from_secs(10);
const COMPRESSED: &str = ".gz";
const UNFINISHED: &str = ".tmp";

/// How much log a container may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes of one file.
    pub size: u64,
    /// Files, the current one too.
    pub files: usize,
}

/// Cuts logs for as long as the node runs. What fails is tried again at the next look.
pub async fn run(context: Arc<Context>, limits: LogLimits) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for entry in context.pods.list() {
            for container in entry.view.containers.iter().filter(|c| c.state == State::Running) {
                let log = &container.log_path;
                if fs::metadata(log).is_ok_and(|meta| meta.len() > limits.size)
                    && let Err(error) = rotate(&context, &container.id, log, limits).await
                {
                    tracing::warn!(container = container.id, log = %log.display(), %error, "log is not cut, will retry");
                }
            }
        }
    }
}

async fn rotate(context: &Context, id: &str, log: &Path, limits: LogLimits) -> io::Result<()> {
    let older = log.to_owned();
    tokio::task::spawn_blocking(move || tidy(&older, limits.files)).await.map_err(io::Error::other)??;
    let aside = with_suffix(log, &Timestamp::now().strftime(".%Y%m%d-%H%M%S").to_string());
    fs::rename(log, &aside)?;
    if let Err(error) = context.runtime.reopen_container_log(id).await {
        // The runtime goes on with the file it has: it gets its name back.
        fs::rename(&aside, log)?;
        return Err(io::Error::other(error));
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Rotated files, oldest first.
fn rotated(log: &Path) -> io::Result<Vec<PathBuf>> {
    let (dir, name) = (log.parent().unwrap_or(log), log.file_name().unwrap_or_default().to_string_lossy());
    let prefix = format!("{name}.");
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with(&prefix) {
            continue;
        }
        if name.ends_with(UNFINISHED) {
            // Left by an agent that ended in the middle.
            fs::remove_file(&path)?;
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Makes room for one more rotated file, and compresses those there are.
fn tidy(log: &Path, files: usize) -> io::Result<()> {
    let mut all = rotated(log)?;
    // The current file and the one it becomes count too.
    let keep = files.saturating_sub(2);
    for old in all.drain(..all.len().saturating_sub(keep)) {
        fs::remove_file(old)?;
    }
    for path in all.iter().filter(|path| !path.to_string_lossy().ends_with(COMPRESSED)) {
        let (whole, part) =
            (with_suffix(path, COMPRESSED), with_suffix(path, &format!("{COMPRESSED}{UNFINISHED}")));
        let mut packed = GzEncoder::new(File::create(&part)?, Compression::default());
        io::copy(&mut File::open(path)?, &mut packed)?;
        packed.finish()?.sync_all()?;
        fs::rename(&part, &whole)?;
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn old_files_are_packed_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
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
        tidy(&log, 4).unwrap();
        assert_eq!(names(), ["0.log", "0.log.2.gz", "0.log.3.gz", "1.log"]);
        let mut text = String::new();
        let packed = File::open(dir.path().join("0.log.3.gz")).unwrap();
        io::Read::read_to_string(&mut flate2::read::GzDecoder::new(packed), &mut text).unwrap();
        assert_eq!(text, "0.log.3");
        tidy(&log, 2).unwrap();
        assert_eq!(names(), ["0.log", "1.log"]);
    }
}
