//! Pods as data: spec, observed state, plans, configurations, and what the node gives them.

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
// Files of environment variables.
pub mod env_file;
// Environment variables of a container.
pub mod env;
// Downward API.
pub mod downward;
// Services as environment variables.
pub mod service_env;
// Converts requests and limits to cgroup values.
pub mod resources;
// Huge pages.
pub mod huge_pages;
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
// CPU manager.
pub mod cpus;
// Memory manager.
pub mod memory;
// Ranges of user ids.
pub mod users;
// Limits of the pod's own cgroup, and how a resize writes them.
pub mod pod_limits;
// The pod's own cgroup.
pub mod cgroup;
// Resources that the node has given to a pod.
pub mod allocation;
// cgroups of QoS classes.
pub mod qos;
// The cgroup of all pods.
pub mod all_pods;
// Properties of the node that pods depend on.
pub mod node_facts;
// Pods that make room for critical ones.
pub mod preempt;
// Admission of pods.
pub mod admit;
