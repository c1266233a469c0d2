//! Reads usage from cgroup files and `/proc`.

use std::collections::HashMap;
use std::fs;

use coracle_proto::cri;

use crate::cgroup::{self, Cgroup};
use crate::stamp::now;

pub(super) fn value(value: u64) -> Option<cri::UInt64Value> {
    Some(cri::UInt64Value { value })
}

/// From the memory controller, or from the processes where there is none.
pub(super) fn memory(cgroup: &Cgroup) -> cri::MemoryUsage {
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
    // Read once: the kernel sums up its counters for every read.
    let stats = cgroup.read("memory.stat").unwrap_or_default();
    let stat = |key: &str| cgroup::field(&stats, key).unwrap_or(0);
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

pub(super) fn swap(cgroup: &Cgroup) -> Option<cri::SwapUsage> {
    let used = cgroup.number("memory.swap.current")?;
    let limit = cgroup.number("memory.swap.max");
    Some(cri::SwapUsage {
        timestamp: now(),
        swap_available_bytes: limit.and_then(|limit| value(limit.saturating_sub(used))),
        swap_usage_bytes: value(used),
    })
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
pub(super) fn pressure(cgroup: &Cgroup, file: &str) -> Option<cri::PsiStats> {
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
pub(super) fn network(pid: i32) -> Option<cri::NetworkUsage> {
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
