//! Usage of containers and sandboxes, from cgroup files and `/proc`.

use std::collections::HashMap;
use std::fs;

use coracle_proto::cri;
use parking_lot::Mutex;

use super::cgroup::Cgroup;
use super::layer_usage::Mark;
use super::record::ContainerPhase;
use super::{Container, Engine, Sandbox, now};
use crate::runtime::Result;
use coracle_host_dir::Size;

/// Minimum interval for a rate, in nanoseconds: shorter ones give noise.
const MIN_SPAN: i64 = 100_000_000;

/// For the first sample of a container younger than this, the rate since its start is used.
const YOUNG: i64 = 60_000_000_000;

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
    /// Nanocores since the last reading; at the first one since the start, unless that is long ago.
    fn rate(&self, id: &str, started: i64, at: i64, total: u64) -> Option<u64> {
        let mut samples = self.0.lock();
        let per_second = |used: u64, span: i64| (u128::from(used) * 1_000_000_000 / span as u128) as u64;
        // The clock was set back: the sample cannot be used.
        match samples.get(id).copied().filter(|last| last.at <= at) {
            Some(last) if at - last.at < MIN_SPAN => last.rate,
            Some(last) => {
                let rate = Some(per_second(total.saturating_sub(last.total), at - last.at));
                samples.insert(id.to_owned(), Sample { at, total, rate });
                rate
            }
            None => {
                let rate =
                    (MIN_SPAN..YOUNG).contains(&(at - started)).then(|| per_second(total, at - started));
                samples.insert(id.to_owned(), Sample { at, total, rate });
                rate
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
    fn cpu(&self, id: &str, started: i64, cgroup: &Cgroup) -> Option<cri::CpuUsage> {
        let timestamp = now();
        let total = cgroup.field("cpu.stat", "usage_usec")? * 1000;
        Some(cri::CpuUsage {
            timestamp,
            usage_core_nano_seconds: value(total),
            usage_nano_cores: self.inner.cpu_samples.rate(id, started, timestamp, total).and_then(value),
            psi: pressure(cgroup, "cpu.pressure"),
        })
    }

    /// Usage of one container. With `measure_now`, waits for the first measurement of its writable layer.
    pub(super) fn stats_of(&self, container: &Container, measure_now: bool) -> Result<cri::ContainerStats> {
        let record = container.record.lock().clone();
        let cgroup = self.inner.hierarchy.cgroup(&record.cgroup)?;
        let running = record.phase == ContainerPhase::Running;
        // Read before the measurement, so that later writes trigger the next one.
        let mark = match cgroup.field("cpu.stat", "usage_usec") {
            _ if !running => Mark::Ended,
            Some(used) => Mark::Used(used),
            None => Mark::Unknown,
        };
        let (layers, upper) = (&self.inner.layers, self.rootfs(&record.id).upper());
        let written = match measure_now {
            true => Some(layers.size_now(&record.id, &upper, mark)),
            false => layers.size(&record.id, &upper, mark),
        };
        Ok(cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes {
                id: record.id.clone(),
                metadata: record.config.metadata.clone(),
                labels: record.config.labels.clone(),
                annotations: record.config.annotations.clone(),
            }),
            cpu: if running { self.cpu(&record.id, record.started_at, &cgroup) } else { None },
            memory: if running { Some(memory(&cgroup)) } else { None },
            writable_layer: written.map(|size| self.writable_layer(size)),
            swap: if running { swap(&cgroup) } else { None },
            io: running.then(|| cri::IoUsage { timestamp: now(), psi: pressure(&cgroup, "io.pressure") }),
        })
    }

    fn writable_layer(&self, size: Size) -> cri::FilesystemUsage {
        cri::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(cri::FilesystemIdentifier {
                mountpoint: self.inner.paths.container_records().display().to_string(),
            }),
            used_bytes: value(size.bytes),
            inodes_used: value(size.files),
        }
    }

    /// Drops samples of removed containers and sandboxes.
    pub(super) fn drop_stale_samples(&self) {
        let live = self.live_ids();
        self.inner.cpu_samples.retain(|id| live.contains(id));
        self.inner.layers.retain(|id| live.contains(id));
    }

    /// Size of all writable layers in bytes.
    pub(super) fn writable_layer_bytes(&self) -> u64 {
        let containers: Vec<_> = self.inner.objects.lock().containers.values().cloned().collect();
        let stats = containers.iter().filter_map(|container| self.stats_of(container, true).ok());
        stats.filter_map(|stats| stats.writable_layer?.used_bytes).map(|bytes| bytes.value).sum()
    }

    pub(super) fn sandbox_stats_of(&self, sandbox: &Sandbox) -> Result<cri::PodSandboxStats> {
        let record = sandbox.record.lock().clone();
        // The pod's own cgroup is the parent of pause's.
        let parent = record.cgroup.rsplit_once('/').map_or("", |(parent, _)| parent);
        let cgroup =
            self.inner.hierarchy.cgroup(parent).or_else(|_| self.inner.hierarchy.cgroup(&record.cgroup))?;
        let containers = self.containers_of(&sandbox.id);
        let running = containers.iter().filter(|c| c.phase() == ContainerPhase::Running);
        let containers = running.map(|c| self.stats_of(c, false)).collect::<Result<Vec<_>>>()?;
        Ok(cri::PodSandboxStats {
            attributes: Some(cri::PodSandboxAttributes {
                id: record.id.clone(),
                metadata: record.config.metadata.clone(),
                labels: record.config.labels.clone(),
                annotations: record.config.annotations.clone(),
            }),
            linux: Some(cri::LinuxPodSandboxStats {
                cpu: self.cpu(&record.id, record.created_at, &cgroup),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rates_need_two_readings() {
        let samples = Samples::default();
        const S: i64 = 1_000_000_000;
        assert_eq!(samples.rate("a", 0, 100 * S, 0), None);
        assert_eq!(samples.rate("a", 0, 100 * S + 10_000_000, 500), None, "too soon to tell");
        assert_eq!(samples.rate("a", 0, 101 * S, 500_000_000), Some(500_000_000));
        assert_eq!(samples.rate("a", 0, 90 * S, 600_000_000), None, "the clock was set back");
        assert_eq!(samples.rate("a", 0, 91 * S, 700_000_000), Some(100_000_000));
        samples.retain(|_| false);
        assert_eq!(samples.rate("a", 0, 103 * S, 0), None);
        // One that just began has no history that could mislead.
        assert_eq!(samples.rate("b", 100 * S, 102 * S, 1_000_000_000), Some(500_000_000));
        assert_eq!(samples.rate("c", 100 * S, 100 * S, 5), None);
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
