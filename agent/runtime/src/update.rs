//! update: limits of a container that runs.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use libcgroups::common::{CgroupManager, ControllerOpt};
use liboci_cli::Update;
use oci_spec::runtime::{LinuxCpu, LinuxMemory, LinuxPids, LinuxResources};

use super::container::Known;
use super::error::Error;

/// Resources are not longer.
const MAX_RESOURCES: u64 = 1 << 20;

/// `update`.
pub fn update(root: &Path, args: &Update) -> Result<(), Error> {
    let known = Known::load(root, &args.container_id)?;
    let resources = match &args.resources {
        Some(path) => read(path)?,
        None => given(args)?,
    };
    if resources.devices().as_ref().is_some_and(|rules| !rules.is_empty()) {
        return Err(Error::Unsupported("a change of device rules"));
    }
    let manager = known.manager()?;
    let options = ControllerOpt {
        resources: &resources,
        disable_oom_killer: false,
        oom_score_adj: None,
        freezer_state: None,
    };
    manager.apply(&options).map_err(|error| Error::Cgroup(error.into()))
}

fn read(path: &Path) -> Result<LinuxResources, Error> {
    let mut text = String::new();
    let from: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(fs::File::open(path).map_err(Error::file(path))?),
    };
    from.take(MAX_RESOURCES).read_to_string(&mut text).map_err(Error::file(path))?;
    serde_json::from_str(&text).map_err(Error::json(path))
}

/// From the options.
fn given(args: &Update) -> Result<LinuxResources, Error> {
    let unsupported = args.blkio_weight.is_some()
        || args.cpu_rt_period.is_some()
        || args.cpu_rt_runtime.is_some()
        || args.l3_cache_schema.is_some()
        || args.mem_bw_schema.is_some();
    if unsupported {
        return Err(Error::Unsupported("an option of update"));
    }
    let signed = |value: Option<u64>| {
        let invalid = |value: u64| Error::Invalid { what: "limit", value: value.to_string() };
        value.map(|value| i64::try_from(value).map_err(|_| invalid(value))).transpose()
    };
    let mut cpu = LinuxCpu::default();
    cpu.set_shares(args.cpu_share)
        .set_quota(signed(args.cpu_quota)?)
        .set_period(args.cpu_period)
        .set_cpus(args.cpuset_cpus.clone())
        .set_mems(args.cpuset_mems.clone());
    let mut memory = LinuxMemory::default();
    memory
        .set_limit(signed(args.memory)?)
        .set_reservation(signed(args.memory_reservation)?)
        .set_swap(args.memory_swap);
    let mut resources = LinuxResources::default();
    resources.set_devices(None).set_cpu(Some(cpu)).set_memory(Some(memory));
    if let Some(limit) = args.pids_limit {
        let mut pids = LinuxPids::default();
        pids.set_limit(limit);
        resources.set_pids(Some(pids));
    }
    Ok(resources)
}
