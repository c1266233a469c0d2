//! Reads from sysfs where cpus are.

use std::fs;
use std::path::Path;

use super::Set;
use super::topology::{Place, Topology};
use crate::numa::{Machine, parse_list};

/// More indexes than the caches of a cpu have.
const MOST_CACHES: u32 = 16;

/// Reads the cpus below a directory such as `/sys/devices/system/cpu`. `machine` knows their NUMA nodes; what cannot be read is one
/// socket, one node, and a core for each cpu.
pub fn read(dir: &Path, machine: &Machine) -> Topology {
    let online = parse_list(fs::read_to_string(dir.join("online")).unwrap_or_default().trim());
    let place = |cpu: &u32| {
        let dir = dir.join(format!("cpu{cpu}"));
        let siblings = list(&dir.join("topology/thread_siblings_list"), &online);
        let socket: Option<u32> = fs::read_to_string(dir.join("topology/physical_package_id"))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let socket = socket.unwrap_or_default();
        let found = machine.nodes.iter().find(|(_, node)| node.cpus.contains(cpu));
        let node = found.map_or(0, |(number, _)| *number);
        let of_node = found.map_or(online.len(), |(_, node)| node.cpus.intersection(&online).count());
        // A cache of a whole node divides nothing.
        let cache = last_level_cache(&dir.join("cache"), &online).filter(|shared| shared.len() != of_node);
        let place = Place {
            core: siblings.first().copied().unwrap_or(*cpu),
            uncore: cache.and_then(|shared| shared.first().copied()).unwrap_or(socket),
            socket,
            node,
        };
        (*cpu, place)
    };
    Topology { places: online.iter().map(place).collect() }
}

/// The cpus that a file lists and that are online.
fn list(path: &Path, online: &Set) -> Set {
    let listed = parse_list(fs::read_to_string(path).unwrap_or_default().trim());
    listed.intersection(online).copied().collect()
}

/// The cpus that share a cache above the second level.
fn last_level_cache(dir: &Path, online: &Set) -> Option<Set> {
    let level = |index: u32| -> Option<(u32, Set)> {
        let dir = dir.join(format!("index{index}"));
        let level = fs::read_to_string(dir.join("level")).ok()?.trim().parse().ok()?;
        Some((level, list(&dir.join("shared_cpu_list"), online)))
    };
    let all = (0..MOST_CACHES).map_while(level);
    all.filter(|(level, shared)| *level > 2 && !shared.is_empty())
        .max_by_key(|(level, _)| *level)
        .map(|(_, shared)| shared)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::numa::MachineNode;

    #[test]
    fn cores_caches_sockets_and_nodes_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        // Two sockets of four cores with two threads; cores 0-3 are two groups with a cache each, cores 4-7 share one.
        write("online".into(), "0-15\n");
        for cpu in 0..16 {
            let core = cpu % 8;
            let socket = core / 4;
            write(format!("cpu{cpu}/topology/thread_siblings_list"), &format!("{core},{}\n", core + 8));
            write(format!("cpu{cpu}/topology/physical_package_id"), &format!("{socket}\n"));
            write(format!("cpu{cpu}/cache/index0/level"), "1\n");
            write(format!("cpu{cpu}/cache/index0/shared_cpu_list"), &format!("{core},{}\n", core + 8));
            let shared = match core {
                0 | 1 => "0-1,8-9",
                2 | 3 => "2-3,10-11",
                _ => "4-7,12-15",
            };
            write(format!("cpu{cpu}/cache/index1/level"), "3\n");
            write(format!("cpu{cpu}/cache/index1/shared_cpu_list"), &format!("{shared}\n"));
        }
        let node = |first: u32| MachineNode {
            cpus: (first..first + 4).chain(first + 8..first + 12).collect(),
            memory: 0,
        };
        let machine = Machine { nodes: [(0, node(0)), (1, node(4))].into(), ..Machine::default() };
        let found = read(dir.path(), &machine);
        for (cpu, core, uncore, socket) in
            [(0, 0, 0, 0), (8, 0, 0, 0), (11, 3, 2, 0), (4, 4, 1, 1), (15, 7, 1, 1)]
        {
            assert_eq!(found.places[&cpu], Place { core, uncore, socket, node: socket }, "{cpu}");
        }
        assert_eq!((found.places.len(), found.threads()), (16, 2));
    }

    #[test]
    fn what_cannot_be_read_is_one_socket_and_one_node() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("online"), "0-1\n").unwrap();
        let found = read(dir.path(), &Machine::default());
        let place = |core: u32| Place { core, uncore: 0, socket: 0, node: 0 };
        assert_eq!(found.places, [(0, place(0)), (1, place(1))].into());
    }
}
