//! Processes as the kernel saw them: by an instance of tracefs, which delays nothing, or by strace where that cannot be had.

use crate::strace::Strace;
use crate::world::{NODES, World};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process; times in nanoseconds of unix time.
#[derive(Debug, Clone)]
pub struct Process {
    /// The file that it executed.
    pub file: String,
    pub forked: u64,
    pub executed: u64,
    /// `None` while it runs.
    pub exited: Option<u64>,
}

/// Watches processes until it is stopped.
pub enum Observer {
    Kernel(Tracefs),
    Strace(Strace),
}

impl Observer {
    pub fn start(world: &World) -> Self {
        if let Some(tracefs) = Tracefs::start() {
            return Self::Kernel(tracefs);
        }
        let agents = NODES.map(|node| world.cluster.agent_pid(node));
        let data_dir = world.cluster.data_dir().display().to_string();
        Self::Strace(Strace::start(&[&agents[..], &keepers(&data_dir)].concat()))
    }

    /// Whether it delays nothing.
    pub fn is_exact(&self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    /// The processes that executed something since the start.
    pub fn stop(self) -> Vec<Process> {
        match self {
            Self::Kernel(tracefs) => tracefs.processes(),
            Self::Strace(strace) => strace.processes(),
        }
    }
}

/// The processes that containers of this cluster live under.
fn keepers(data_dir: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        (command.contains("coracle-keeper") && command.contains(data_dir)).then_some(pid)
    });
    processes.collect()
}

/// An instance of the kernel's own tracing, gone when dropped.
pub struct Tracefs {
    instance: PathBuf,
    /// Where tracefs was mounted for this.
    mounted: Option<tempfile::TempDir>,
}

impl Tracefs {
    /// `None` where the kernel has none, or does not let us.
    fn start() -> Option<Self> {
        let known = Path::new("/sys/kernel/tracing");
        let mounted = if known.join("instances").is_dir() {
            None
        } else {
            let dir = tempfile::tempdir().ok()?;
            let none: Option<&str> = None;
            mount(Some("tracefs"), dir.path(), Some("tracefs"), MsFlags::empty(), none).ok()?;
            Some(dir)
        };
        let root = mounted.as_ref().map_or(known, |dir| dir.path());
        let instance = root.join(format!("instances/coracle-test-{}", std::process::id()));
        let tracefs = Self { instance, mounted };
        fs::create_dir(&tracefs.instance).ok()?;
        let write = |file: &str, text: &str| fs::write(tracefs.instance.join(file), text).ok();
        write("trace_clock", "mono")?;
        write("buffer_size_kb", "8192")?;
        for event in ["fork", "exec", "exit"] {
            write(&format!("events/sched/sched_process_{event}/enable"), "1")?;
        }
        Some(tracefs)
    }

    fn processes(self) -> Vec<Process> {
        let _ = fs::write(self.instance.join("tracing_on"), "0");
        let trace = fs::read_to_string(self.instance.join("trace")).unwrap();
        let now = |clock: ClockId| Duration::from(clock_gettime(clock).unwrap());
        let epoch = now(ClockId::CLOCK_REALTIME) - now(ClockId::CLOCK_MONOTONIC);
        processes(&trace, epoch.as_nanos() as u64)
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
        if let Some(dir) = &self.mounted {
            let _ = umount2(dir.path(), MntFlags::MNT_DETACH);
        }
    }
}

/// Reads lines such as `sh-1767 [000] ..... 71861.846957: sched_process_exec: filename=/bin/true pid=1771 old_pid=1771`.
fn processes(trace: &str, epoch: u64) -> Vec<Process> {
    let mut forked: HashMap<u32, u64> = HashMap::new();
    let mut running: HashMap<u32, Process> = HashMap::new();
    let mut ended = Vec::new();
    for line in trace.lines() {
        let Some((head, event)) = line.split_once(": sched_process_") else { continue };
        let Some(at) = head.split_whitespace().last().and_then(nanos) else { continue };
        let at = epoch + at;
        let field = |name: &str| event.split_whitespace().find_map(|word| word.strip_prefix(name));
        let number = |name: &str| field(name).and_then(|text| text.parse::<u32>().ok());
        if event.starts_with("fork:") {
            forked.extend(number("child_pid=").map(|child| (child, at)));
        } else if event.starts_with("exec:") {
            let (Some(pid), Some(file)) = (number("pid="), field("filename=")) else { continue };
            let forked = forked.get(&pid).copied().unwrap_or(at);
            let process = Process { file: file.to_owned(), forked, executed: at, exited: None };
            // One that executes something else goes on as that.
            ended.extend(running.insert(pid, process));
        } else if event.starts_with("exit:")
            && let Some(mut process) = number("pid=").and_then(|pid| running.remove(&pid))
        {
            process.exited = Some(at);
            ended.push(process);
        }
    }
    ended.extend(running.into_values());
    ended
}

/// `71861.846957` in nanoseconds.
fn nanos(text: &str) -> Option<u64> {
    let (seconds, micros) = text.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1_000)
}
