//! Options about cpus, memory and NUMA nodes.

use anyhow::Context as _;
use clap::ArgAction;
use std::time::Duration;

use super::values;
use crate::config::cpu_options::CpuOptions;
use crate::config::cpu_quotas::CpuQuotas;
use crate::config::policy_options::PolicyOptionError;
use crate::config::topology_options::TopologyOptions;
use crate::numa;

/// CPU manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CpuPolicy {
    /// Any.
    #[default]
    None,
    /// Whole cpus of their own for Guaranteed pods that ask for whole cpus.
    Static,
}

/// Memory manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MemoryPolicy {
    /// Of all nodes.
    #[default]
    None,
    /// Memory of certain NUMA nodes for Guaranteed pods.
    Static,
}

/// How cpus are limited, and which cpus, memory and devices containers get.
#[derive(Debug, clap::Args)]
pub struct ResourceOptions {
    /// Enforce limits of cpus with quotas of CPU time: true or false.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub cpu_cfs_quota: bool,
    /// Period of these quotas: 1ms to 1s.
    #[arg(long, default_value = "100ms", value_parser = values::cpu_cfs_quota_period)]
    pub cpu_cfs_quota_period: Duration,
    /// CPU manager policy: none or static.
    #[arg(long, value_enum, default_value_t)]
    pub cpu_manager_policy: CpuPolicy,
    /// Options of the static CPU manager policy, such as full-pcpus-only=true: strict-cpu-reservation,
    /// prefer-align-cpus-by-uncorecache, distribute-cpus-across-numa.
    #[arg(long, value_delimiter = ',', value_parser = values::pair)]
    pub cpu_manager_policy_options: Vec<(String, String)>,
    /// Memory manager policy: none, or static for memory of certain NUMA nodes.
    #[arg(long, value_enum, default_value_t)]
    pub memory_manager_policy: MemoryPolicy,
    /// Topology manager policy: whether cpus, memory and devices of a container must come from the same NUMA nodes.
    #[arg(long, value_enum, default_value_t)]
    pub topology_manager_policy: numa::Policy,
    /// Options of the topology manager: prefer-closest-numa-nodes=true, and max-allowable-numa-nodes=12 for machines with more than
    /// eight.
    #[arg(long, value_delimiter = ',', value_parser = values::pair)]
    pub topology_manager_policy_options: Vec<(String, String)>,
    /// Topology manager scope: resources of a container or of a pod come from the same NUMA nodes.
    #[arg(long, value_enum, default_value_t)]
    pub topology_manager_scope: numa::Scope,
}

impl ResourceOptions {
    /// How limits of cpus are enforced.
    pub(super) fn cpu_quotas(&self) -> CpuQuotas {
        CpuQuotas::new(self.cpu_cfs_quota_period, self.cpu_cfs_quota)
    }

    /// The static CPU manager policy, if it is enabled.
    pub(super) fn static_cpus(&self) -> anyhow::Result<Option<CpuOptions>> {
        let options = CpuOptions::new(texts(&self.cpu_manager_policy_options)).and_then(|options| match self
            .cpu_manager_policy
        {
            CpuPolicy::Static => Ok(Some(options)),
            CpuPolicy::None if self.cpu_manager_policy_options.is_empty() => Ok(None),
            CpuPolicy::None => Err(PolicyOptionError::NoPolicy),
        });
        options.context("--cpu-manager-policy-options")
    }

    /// How the topology manager chooses NUMA nodes.
    pub(super) fn topology_options(&self) -> anyhow::Result<TopologyOptions> {
        TopologyOptions::new(texts(&self.topology_manager_policy_options))
            .context("--topology-manager-policy-options")
    }

    /// Whether options contradict each other, or name what there is not.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.static_cpus()?;
        self.topology_options()?;
        Ok(())
    }
}

fn texts(pairs: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}
