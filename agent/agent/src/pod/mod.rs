//! One pod's life on this node, in the order it is lived.

// Amounts of resources as whole numbers.
pub mod amount;
// What the spec says by itself.
pub mod spec;
// What the runtime says.
pub mod observed;
// Delays between retries.
pub mod backoff;
// Spec and observation in, actions out.
pub mod plan;
// Environment variables of a container.
pub mod env;
// Fields of the pod as text.
pub mod downward;
// Services as environment variables.
pub mod service_env;
// Requests and limits as the kernel's numbers.
pub mod resources;
// Security contexts.
pub mod security;
// What the node cannot give.
pub mod support;
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
// Cpus of one's own.
pub mod cpus;
// Ranges of user ids.
pub mod users;
// The pod's own cgroup.
pub mod cgroup;
// The classes the pods' cgroups are in.
pub mod qos;
// Every pod of the node.
pub mod table;
// Asking the runtime.
pub mod observe;
// Carrying out a plan.
pub mod execute;
// A new pod's first container, beside its sandbox.
mod first;
// Lifecycle hooks.
pub mod hooks;
// Stopping a container.
pub mod stop;
// Whether the node takes a pod.
pub mod admit;
// Which probes are due.
pub mod watchlist;
// The task that keeps a pod.
pub mod worker;
