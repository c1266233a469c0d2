//! Usage of containers and sandboxes, from cgroup files and `/proc`.

use std::collections::HashMap;
use std::fs;

use coracle_proto::cri;
use parking_lot::Mutex;

use super::cgroup::Cgroup;
use super::record::ContainerPhase;
use super::{Container, Engine, Sandbox, now};
use crate::runtime::Result;

/// Shorter spans than this give noise, not a rate.
const MIN_SPAN: i64 = 100_000_000;

/// Last CPU readings, to turn totals into rates.
#[derive(Default)]
pub(super) struct Samples(Mutex<HashMap<String, Sample>>);

#[derive(Clone, Copy)]
struct Sample {
    at: i64,
    total: u64,
    rate: Option<u64>,
}

impl Samples {
    /// Nanocores since the last reading; none at the first.
    fn rate(&self, id: &str, at: i64, total: u64) -> Option<u64> {
        let mut samples = self.0.lock();
        match samples.get(id).copied() {
            Some(last) if at - last.at < MIN_SPAN => last.rate,
            Some(last) => {
                let span = (at - last.at) as u128;
                let rate = Some((u128::from(total.saturating_sub(last.total)) * 1_000_000_000 / span) as u64);
                samples.insert(id.to_owned(), Sample { at, total, rate });
                rate
            }
            None => {
                samples.insert(id.to_owned(), Sample { at, total, rate: None });
                None
            }
        }
    }

    fn retain(&self, live: impl Fn(&str) -> bool) {
        self.0.lock().retain(|id, _| live(id));
    }
}

fn value(value: u64) -> Option<cri::UInt64Value> {
    Some(cri::UInt64Value { value })
}

impl Engine {
    fn cpu(&self, id: &str, cgroup: &Cgroup) -> Option<cri::CpuUsage> {
        let timestamp = now();
        let total = cgroup.field("cpu.stat", "usage_usec")? * 1000;
        Some(cri::CpuUsage {
            timestamp,
            usage_core_nano_seconds: value(total),
            usage_nano_cores: self.inner.cpu_samples.rate(id, timestamp, total).and_then(value),
            psi: pressure(cgroup, "cpu.pressure"),
        })
    }

    pub(super) fn stats_of(&self, container: &Container) -> Result<cri::ContainerStats> {
        let record = container.record.lock().clone();
        let cgroup = self.inner.hierarchy.cgroup(&record.cgroup)?;
        let running = record.phase == ContainerPhase::Running;
        Ok(cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes {
                id: record.id.clone(),
                metadata: record.config.metadata.clone(),
                labels: record.config.labels.clone(),
                annotations: record.config.annotations.clone(),
            }),
            cpu: if running { self.cpu(&record.id, &cgroup) } else { None },
            memory: if running { Some(memory(&cgroup)) } else { None },
            writable_layer: self.writable_layer(&record.id),
            swap: if running { swap(&cgroup) } else { None },
            io: running.then(|| cri::IoUsage { timestamp: now(), psi: pressure(&cgroup, "io.pressure") }),
        })
    }

    fn writable_layer(&self, id: &str) -> Option<cri::FilesystemUsage> {
        let (bytes, files) = disk_usage(&self.rootfs(id).upper());
        Some(cri::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(cri::FilesystemIdentifier {
                mountpoint: self.inner.paths.container_records().display().to_string(),
            }),
            used_bytes: value(bytes),
            inodes_used: value(files),
        })
    }

    pub(super) fn sandbox_stats_of(&self, sandbox: &Sandbox) -> Result<cri::PodSandboxStats> {
        let record = sandbox.record.lock().clone();
        // The pod's own cgroup is the parent of pause's.
        let parent = record.cgroup.rsplit_once('/').map_or("", |(parent, _)| parent);
        let cgroup =
            self.inner.hierarchy.cgroup(parent).or_else(|_| self.inner.hierarchy.cgroup(&record.cgroup))?;
        let containers = self.containers_of(&sandbox.id);
        let running = containers.iter().filter(|c| c.phase() == ContainerPhase::Running);
        let containers = running.map(|c| self.stats_of(c)).collect::<Result<Vec<_>>>()?;
        let live = self.live_ids();
        self.inner.cpu_samples.retain(|id| live.contains(id));
        Ok(cri::PodSandboxStats {
            attributes: Some(cri::PodSandboxAttributes {
                id: record.id.clone(),
                metadata: record.config.metadata.clone(),
                labels: record.config.labels.clone(),
                annotations: record.config.annotations.clone(),
            }),
            linux: Some(cri::LinuxPodSandboxStats {
                cpu: self.cpu(&record.id, &cgroup),
                memory: Some(memory(&cgroup)),
                network: network(record.pid),
                process: Some(cri::ProcessUsage {
                    timestamp: now(),
                    process_count: value(cgroup.pids().len() as u64),
                }),
                containers,
                io: Some(cri::IoUsage { timestamp: now(), psi: pressure(&cgroup, "io.pressure") }),
            }),
            windows: None,
        })
    }
}

/// From the memory controller, or from the processes where there is none.
fn memory(cgroup: &Cgroup) -> cri::MemoryUsage {
    let timestamp = now();
    let Some(usage) = cgroup.number("memory.current") else {
        let resident = cgroup.pids().into_iter().filter_map(resident).sum();
        return cri::MemoryUsage {
            timestamp,
            working_set_bytes: value(resident),
            usage_bytes: value(resident),
            rss_bytes: value(resident),
            ..Default::default()
        };
    };
    let stat = |key: &str| cgroup.field("memory.stat", key).unwrap_or(0);
    let working_set = usage.saturating_sub(stat("inactive_file"));
    let limit = cgroup.number("memory.max");
    cri::MemoryUsage {
        timestamp,
        working_set_bytes: value(working_set),
        available_bytes: limit.and_then(|limit| value(limit.saturating_sub(working_set))),
        usage_bytes: value(usage),
        rss_bytes: value(stat("anon")),
        page_faults: value(stat("pgfault")),
        major_page_faults: value(stat("pgmajfault")),
        psi: pressure(cgroup, "memory.pressure"),
    }
}

fn resident(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

fn swap(cgroup: &Cgroup) -> Option<cri::SwapUsage> {
    let used = cgroup.number("memory.swap.current")?;
    let limit = cgroup.number("memory.swap.max");
    Some(cri::SwapUsage {
        timestamp: now(),
        swap_available_bytes: limit.and_then(|limit| value(limit.saturating_sub(used))),
        swap_usage_bytes: value(used),
    })
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn pressure(cgroup: &Cgroup, file: &str) -> Option<cri::PsiStats> {
    let text = cgroup.read(file)?;
    let line = |name: &str| {
        let fields = text.lines().find_map(|line| line.strip_prefix(name))?;
        let fields: HashMap<&str, &str> =
            fields.split_whitespace().filter_map(|f| f.split_once('=')).collect();
        let average = |key: &str| fields.get(key).and_then(|v| v.parse().ok()).unwrap_or(0.0);
        Some(cri::PsiData {
            total: fields.get("total").and_then(|v| v.parse::<u64>().ok()).unwrap_or(0) * 1000,
            avg10: average("avg10"),
            avg60: average("avg60"),
            avg300: average("avg300"),
        })
    };
    Some(cri::PsiStats { some: line("some "), full: line("full ") })
}

/// Interfaces of the process's network namespace.
fn network(pid: i32) -> Option<cri::NetworkUsage> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
    let mut interfaces: Vec<cri::NetworkInterfaceUsage> = text.lines().filter_map(interface).collect();
    let default = interfaces.iter().position(|i| i.name == "eth0").or((!interfaces.is_empty()).then_some(0));
    let default_interface = default.map(|at| interfaces.remove(at));
    Some(cri::NetworkUsage { timestamp: now(), default_interface, interfaces })
}

fn interface(line: &str) -> Option<cri::NetworkInterfaceUsage> {
    let (name, numbers) = line.split_once(':')?;
    let name = name.trim().to_owned();
    let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let at = |index: usize| numbers.get(index).copied().and_then(value);
    (name != "lo" && numbers.len() >= 16).then(|| cri::NetworkInterfaceUsage {
        name,
        rx_bytes: at(0),
        rx_errors: at(2),
        tx_bytes: at(8),
        tx_errors: at(10),
    })
}

/// Bytes and files below a directory.
pub(super) fn disk_usage(dir: &std::path::Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut files) = (0, 0);
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            bytes += meta.blocks() * 512;
            files += 1;
            if meta.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    (bytes, files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rates_need_two_readings() {
        let samples = Samples::default();
        assert_eq!(samples.rate("a", 1_000_000_000, 0), None);
        assert_eq!(samples.rate("a", 1_010_000_000, 500), None, "too soon to tell");
        assert_eq!(samples.rate("a", 2_000_000_000, 500_000_000), Some(500_000_000));
        samples.retain(|_| false);
        assert_eq!(samples.rate("a", 3_000_000_000, 0), None);
    }

    #[test]
    fn reads_an_interface() {
        let line = "  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
        let found = interface(line).unwrap();
        assert_eq!(
            (found.name.as_str(), found.rx_bytes.unwrap().value, found.tx_bytes.unwrap().value),
            ("eth0", 1, 9)
        );
        assert!(interface("    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16").is_none());
        assert!(interface("Inter-|   Receive").is_none());
    }
}
