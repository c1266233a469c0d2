//! What a driver of the tests was asked, and how it is to misbehave. In files: a driver may be a process that is killed.
#![allow(clippy::unwrap_used, missing_docs, clippy::missing_panics_doc)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{eventually, program};

const CALLS: &str = "calls";
const PATIENCE: Duration = Duration::from_secs(120);

/// What a call does instead of its work, or instead of answering at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Answers with an error.
    Fails,
    /// Does not answer.
    Hangs,
    /// Does its work, and does not answer.
    LosesItsAnswer,
    /// Does its work, and answers so many seconds later.
    Slow(u64),
    /// Does its work, and kills its own process instead of answering; once. Not for drivers in the process of the test.
    Crashes,
    /// Says that it can never do this.
    Refuses,
    /// Says that it cannot do this while the volume is in use.
    InUse,
}

/// The calls and faults of one driver.
#[derive(Clone, Debug)]
pub struct Ledger {
    dir: PathBuf,
}

impl Ledger {
    pub fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        Self { dir }
    }

    /// Notes a call. The directory may be gone when a test ends.
    pub fn note(&self, call: &str) {
        let file = fs::OpenOptions::new().create(true).append(true).open(self.dir.join(CALLS));
        let _ = file.and_then(|mut file| file.write_all(format!("{call}\n").as_bytes()));
    }

    /// Calls so far.
    pub fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.join(CALLS)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Keeps a value, whole or not at all.
    pub fn set(&self, key: &str, value: &str) {
        let new = self.dir.join(format!(".{key}"));
        fs::write(&new, value).unwrap();
        fs::rename(&new, self.dir.join(key)).unwrap();
    }

    pub fn get(&self, key: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(key)).ok()
    }

    /// From now on a call goes wrong.
    pub fn set_fault(&self, call: &str, fault: Fault) {
        self.set(&format!("fault-{call}"), &serde_json::to_string(&fault).unwrap());
    }

    pub fn fault(&self, call: &str) -> Option<Fault> {
        serde_json::from_str(&self.get(&format!("fault-{call}"))?).ok()
    }

    /// All is well again.
    pub fn mend(&self) {
        for entry in fs::read_dir(&self.dir).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("fault-") {
                // A driver that crashes takes its fault back itself.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// What keeps a call from answering once its work is done.
    pub async fn before_answer(&self, call: &str, fault: Option<Fault>) {
        match fault {
            Some(Fault::LosesItsAnswer) => std::future::pending().await,
            Some(Fault::Slow(seconds)) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            Some(Fault::Crashes) => {
                let _ = fs::remove_file(self.dir.join(format!("fault-{call}")));
                let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
            }
            _ => {}
        }
    }
}

/// A driver that runs as a process of its own; killed when dropped.
#[derive(Debug)]
pub struct DriverProcess(Child);

impl DriverProcess {
    /// Starts the driver of this kind, and waits until it listens.
    pub fn start(kind: &str, dirs: [&Path; 2], name: Option<&str>, socket: &Path) -> Self {
        let mut command = Command::new(program("coracle-test-driver"));
        let child = command.arg(kind).args(dirs).args(name).spawn().unwrap();
        let process = Self(child);
        eventually("the driver listens", PATIENCE, || {
            std::os::unix::net::UnixStream::connect(socket).is_ok()
        });
        process
    }

    /// Waits until it has crashed.
    pub fn wait_crashed(&mut self) {
        eventually("the driver crashes", PATIENCE, || self.0.try_wait().unwrap().is_some());
    }
}

impl Drop for DriverProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
