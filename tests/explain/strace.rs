//! Processes as strace saw them, which stops them at each call that it looks at.

use crate::kernel::Process;
use coracle_tests::eventually;
use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running strace.
pub struct Strace {
    child: Child,
    dir: tempfile::TempDir,
}

impl Strace {
    /// Follows these processes and what they start.
    pub fn start(pids: &[u32]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let child = Command::new("strace")
            .args(["-f", "-ttt", "-e", "trace=execve", "-p", &pids.join(","), "-o"])
            .arg(dir.path().join("log"))
            .stderr(std::fs::File::create(dir.path().join("told")).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .expect("neither tracefs nor strace is here");
        let strace = Self { child, dir };
        eventually("strace is attached", Duration::from_secs(20), || {
            let told = std::fs::read_to_string(strace.dir.path().join("told")).unwrap_or_default();
            told.matches("attached").count() >= pids.len()
        });
        strace
    }

    pub fn processes(mut self) -> Vec<Process> {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        let _ = self.child.wait();
        processes(&std::fs::read_to_string(self.dir.path().join("log")).unwrap())
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines such as `1771  1700000000.123456 execve("/bin/true", ["true"], 0x7ffc) = 0`.
fn processes(log: &str) -> Vec<Process> {
    let mut running: HashMap<&str, Process> = HashMap::new();
    let mut ended = Vec::new();
    for line in log.lines() {
        let mut words = line.split_whitespace();
        let (Some(pid), Some(time)) = (words.next(), words.next()) else { continue };
        let Ok(seconds) = time.parse::<f64>() else { continue };
        // Microseconds are exact in a double.
        let at = (seconds * 1e6).round() as u64 * 1_000;
        if let Some((_, rest)) = line.split_once("execve(\"") {
            let file = rest.split('"').next().unwrap_or_default().to_owned();
            ended.extend(running.insert(pid, Process { file, forked: at, executed: at, exited: None }));
        } else if line.contains("+++ exited") || line.contains("+++ killed") {
            ended.extend(running.remove(pid).map(|process| Process { exited: Some(at), ..process }));
        }
    }
    ended.extend(running.into_values());
    ended
}
