//! Options of `coracle hollow`.

use crate::output::Output;
use std::path::PathBuf;

/// Options of `coracle hollow`.
#[derive(Debug, Clone, clap::Args)]
pub struct HollowArgs {
    /// Number of nodes.
    #[arg(long, default_value_t = 10)]
    pub(super) nodes: usize,
    /// Kubeconfig used to connect to the API server.
    #[arg(long, env = "KUBECONFIG", default_value = "/var/lib/coracle/admin.kubeconfig")]
    pub(super) kubeconfig: PathBuf,
    /// Prefix of the node names.
    #[arg(long, default_value = "hollow-")]
    pub(super) prefix: String,
    /// CPUs of a node.
    #[arg(long, default_value = "32")]
    pub(super) cpu: String,
    /// Memory of a node.
    #[arg(long, default_value = "256Gi")]
    pub(super) memory: String,
    /// Pod capacity of a node.
    #[arg(long, default_value_t = 110)]
    pub(super) pods: u32,
    /// Number of zones.
    #[arg(long, default_value_t = 3)]
    pub(super) zones: usize,
    /// Interval of Lease renewals, in seconds.
    #[arg(long, default_value_t = 10)]
    pub(super) heartbeat: u64,
    /// Start time of a pod, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub(super) start_delay: u64,
    /// Milliseconds after which pods succeed unless their restartPolicy is Always; never by default.
    #[arg(long)]
    pub(super) complete_after: Option<u64>,
    /// Format of the line that says that the nodes are ready.
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Output,
}
