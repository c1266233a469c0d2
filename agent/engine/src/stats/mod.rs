//! Usage of containers and sandboxes, from cgroup files and `/proc`.

// Rates from totals.
mod samples;
// Files of cgroups and processes.
mod read;

use std::sync::Arc;

use coracle_proto::cri;

use self::read::{memory, network, pressure, swap, value};
use self::samples::Samples;
use super::cgroup::{Cgroup, Hierarchy};
use super::layer_usage::{LayerUsage, Mark};
use super::objects::{Container, Objects, Sandbox};
use super::paths::Paths;
use super::record::ContainerPhase;
use super::rootfs::Rootfs;
use super::stamp::now;
use crate::runtime::Result;
use coracle_host_dir::Size;

/// Measures containers and sandboxes. All methods block.
pub(crate) struct Usage {
    objects: Arc<Objects>,
    hierarchy: Arc<Hierarchy>,
    paths: Arc<Paths>,
    samples: Samples,
    layers: LayerUsage,
}

impl Usage {
    pub(crate) fn new(objects: Arc<Objects>, hierarchy: Arc<Hierarchy>, paths: Arc<Paths>) -> Self {
        Self { objects, hierarchy, paths, samples: Samples::default(), layers: LayerUsage::default() }
    }

    fn cpu(&self, id: &str, started: i64, cgroup: &Cgroup) -> Option<cri::CpuUsage> {
        let timestamp = now();
        let total = cgroup.field("cpu.stat", "usage_usec")? * 1000;
        Some(cri::CpuUsage {
            timestamp,
            usage_core_nano_seconds: value(total),
            usage_nano_cores: self.samples.rate(id, started, timestamp, total).and_then(value),
            psi: pressure(cgroup, "cpu.pressure"),
        })
    }

    /// Usage of one container. With `measure_now`, waits for the first measurement of its writable layer.
    pub(crate) fn of_container(
        &self,
        container: &Container,
        measure_now: bool,
    ) -> Result<cri::ContainerStats> {
        let record = container.record.lock().clone();
        let cgroup = self.hierarchy.cgroup(&record.cgroup)?;
        let running = record.phase == ContainerPhase::Running;
        // Read before the measurement, so that later writes trigger the next one.
        let mark = match cgroup.field("cpu.stat", "usage_usec") {
            _ if !running => Mark::Ended,
            Some(used) => Mark::Used(used),
            None => Mark::Unknown,
        };
        let (layers, upper) = (&self.layers, Rootfs::of(&self.paths, &record.id).upper());
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
                mountpoint: self.paths.container_records().display().to_string(),
            }),
            used_bytes: value(size.bytes),
            inodes_used: value(size.files),
        }
    }

    /// Usage of the containers that match.
    pub(crate) fn of_containers(&self, filter: &cri::ContainerFilter) -> Result<Vec<cri::ContainerStats>> {
        let containers = self.objects.containers();
        containers.iter().filter(|c| c.matches(filter)).map(|c| self.of_container(c, true)).collect()
    }

    /// Usage of the sandboxes that match.
    pub(crate) fn of_sandboxes(&self, filter: &cri::PodSandboxFilter) -> Vec<cri::PodSandboxStats> {
        let sandboxes = self.objects.sandboxes();
        // A sandbox that is being removed must not fail the list.
        sandboxes.iter().filter(|s| s.matches(filter)).filter_map(|s| self.of_sandbox(s).ok()).collect()
    }

    /// Drops samples of removed containers and sandboxes.
    pub(crate) fn drop_stale_samples(&self) {
        let live = self.objects.live_ids();
        self.samples.retain(|id| live.contains(id));
        self.layers.retain(|id| live.contains(id));
    }

    /// Size of all writable layers in bytes.
    pub(crate) fn writable_layer_bytes(&self) -> u64 {
        let containers = self.objects.containers();
        let stats = containers.iter().filter_map(|container| self.of_container(container, true).ok());
        stats.filter_map(|stats| stats.writable_layer?.used_bytes).map(|bytes| bytes.value).sum()
    }

    /// Usage of a sandbox and its running containers.
    pub(crate) fn of_sandbox(&self, sandbox: &Sandbox) -> Result<cri::PodSandboxStats> {
        let record = sandbox.record.lock().clone();
        // The pod's own cgroup is the parent of pause's.
        let parent = record.cgroup.rsplit_once('/').map_or("", |(parent, _)| parent);
        let cgroup = self.hierarchy.cgroup(parent).or_else(|_| self.hierarchy.cgroup(&record.cgroup))?;
        let containers = self.objects.containers_of(&sandbox.id);
        let running = containers.iter().filter(|c| c.phase() == ContainerPhase::Running);
        let containers = running.map(|c| self.of_container(c, false)).collect::<Result<Vec<_>>>()?;
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
