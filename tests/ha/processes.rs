//! Processes of the trial, found by their command lines: the trial has a pid namespace of its own, so that there are no others.

use nix::sys::signal::{Signal, kill as signal};
use nix::unistd::Pid;
use std::fs;

/// Pids of those whose command line, with a NUL after each word, satisfies this.
pub fn find(wanted: impl Fn(&str) -> bool) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let matching = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        wanted(&String::from_utf8_lossy(&command)).then_some(pid)
    });
    matching.collect()
}

/// Kills them.
pub fn kill(wanted: impl Fn(&str) -> bool) {
    for pid in find(wanted) {
        let _ = signal(Pid::from_raw(pid), Signal::SIGKILL);
    }
}
