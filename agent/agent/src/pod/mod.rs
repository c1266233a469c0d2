//! The lifecycle of a pod on this node.

// Amounts of resources as whole numbers.
pub mod amount;
// Helpers on the pod spec.
pub mod spec;
// Observed state of the runtime.
pub mod observed;
// Delays between retries.
pub mod backoff;
// Spec and observation in, actions out.
pub mod plan;
// Environment variables of a container.
pub mod env;
// Downward API.
pub mod downward;
// Services as environment variables.
pub mod service_env;
// Converts requests and limits to cgroup values.
pub mod resources;
// Security contexts.
pub mod security;
// Rejects pods with unsupported fields.
pub mod unsupported;
// Resolver, host names and /etc/hosts.
pub mod dns;
// The pod as a sandbox configuration.
pub mod sandbox_config;
// A container as a container configuration.
pub mod container_config;
// Node selectors.
pub mod affinity;
// Registry credentials.
pub mod pull_secret;
// Images of containers.
pub mod image;
// CPU manager.
pub mod cpus;
// Ranges of user ids.
pub mod users;
// The pod's own cgroup.
pub mod cgroup;
// cgroups of QoS classes.
pub mod qos;
// Table of all pods.
pub mod table;
// Reads the observed state.
pub mod observe;
// Executes a plan.
pub mod execute;
// Creates the first container in parallel with the sandbox.
mod precreate;
// Lifecycle hooks.
pub mod hooks;
// Stopping a container.
pub mod stop;
// Admission of pods.
pub mod admit;
// Selects the probes of a pod.
pub mod probe_targets;
// The task of a pod.
pub mod worker;
