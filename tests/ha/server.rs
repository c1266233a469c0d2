//! A server on a machine of its own, with a clock that can be moved.

use crate::network::Machine;
use coracle_tests::program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const PORT: u16 = 6443;

pub struct ServerProcess {
    pub machine: Machine,
    pub dir: PathBuf,
    flags: Vec<String>,
    child: Option<Child>,
}

impl ServerProcess {
    /// One that does not run yet.
    pub fn new(machine: Machine, dir: PathBuf, flags: Vec<String>) -> Self {
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("clock"), "+0").unwrap();
        Self { machine, dir, flags, child: None }
    }

    pub fn url(&self) -> String {
        format!("https://{}:{PORT}", self.machine.address)
    }

    /// Starts it unless it runs.
    pub fn start(&mut self) {
        if self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return;
        }
        let log = fs::OpenOptions::new().create(true).append(true).open(self.dir.join("log")).unwrap();
        // The name is that of the holder of Leases. Monotonic clocks are left alone, as those of real machines are.
        let script =
            r#"hostname "$0"; export LD_PRELOAD="$1" FAKETIME_TIMESTAMP_FILE="$2"; shift 2; exec "$@""#;
        let prefix = self.machine.prefix();
        let child = Command::new(&prefix[0])
            .args(&prefix[1..])
            .args(["unshare", "-m", "-u", "sh", "-c", script, &self.machine.name])
            .arg(faketime())
            .arg(self.dir.join("clock"))
            .arg(program("coracle"))
            .args(["server", "--data-dir"])
            .arg(&self.dir)
            .args(["--bind", &format!("{}:{PORT}", self.machine.address)])
            .args(&self.flags)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it in its tracks, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        if let Some(child) = &self.child {
            let signal = if frozen { Signal::SIGSTOP } else { Signal::SIGCONT };
            let _ = kill(Pid::from_raw(child.id() as i32), signal);
        }
    }

    /// Moves its clock by so many seconds from the true time.
    pub fn move_clock(&self, seconds: i64) {
        // Never an empty file, which would be read as no time at all.
        fs::write(self.dir.join("clock.new"), format!("{seconds:+}")).unwrap();
        fs::rename(self.dir.join("clock.new"), self.dir.join("clock")).unwrap();
    }

    /// The end of its log.
    pub fn told(&self) -> String {
        tail(&self.dir.join("log"), 30)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
        if let Some(spans) = coracle_timeline::shared_memory::path(&self.dir) {
            let _ = fs::remove_file(spans);
        }
    }
}

/// The last lines of a file.
pub fn tail(path: &Path, count: usize) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn faketime() -> PathBuf {
    let dirs = fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
    let mut files = dirs.map(|dir| dir.join("faketime/libfaketimeMT.so.1"));
    files.find(|file| file.exists()).expect("libfaketime: apt-get install faketime")
}
