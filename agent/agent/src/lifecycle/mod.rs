//! The lifecycle of pods on this node: one worker per pod observes, plans, executes and reports.

// Table of all pods.
pub mod table;
// Reads the observed state.
mod observe;
// cgroups, cpus and user ids of pods.
pub mod resources;
// Labels of the node that have just changed.
mod node_labels;
// Resources of the same NUMA nodes.
mod align;
// Network policies and service variables of pods.
pub mod network;
// Waits for a thread.
mod thread_wait;
// Executes a plan.
pub mod execute;
// Creates the first container in parallel with the sandbox.
mod precreate;
// Lifecycle hooks.
mod hooks;
// Stopping a container.
mod stop;
// Files of a container instance.
mod instance_files;
// Links to logs of containers.
pub mod log_links;
// Selects the probes of a pod.
mod probe_targets;
// The task of a pod.
pub mod worker;
