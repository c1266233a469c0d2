//! The Coracle node agent.
// Where a pod can change files meanwhile, modules deny them again.
#![allow(clippy::disallowed_methods)]

// What the node was told.
pub mod config;
// Who the node is to the cluster.
pub mod identity;
// Watches that never get stuck.
pub mod watching;
// Events people read.
pub mod events;
// ConfigMaps and Secrets in use.
pub mod objects;
// What this node knows of the cluster.
pub mod cluster;
// Addresses of services, as containers are told.
pub mod services;
// Who else changes our tables.
pub mod others;
// The network between nodes.
pub mod network;
// Services: connections led to endpoints.
pub mod proxy;
// Directories of the host that pods can change meanwhile.
pub mod host_dir;
// Volumes of pods.
pub mod volume;
// Probes of containers.
pub mod probe;
// What pod workers work with.
pub mod context;
// The node itself.
pub mod node;
// Where pods come from.
pub mod source;
// One pod's life: plan, configuration, worker.
pub mod pod;
// What the API server is told about pods.
pub mod status;
// Network policies.
pub mod policy;
// Cluster DNS.
pub mod dns;
// The one trait between pod life and any container runtime.
pub mod runtime;
// The container engine: images, sandboxes, containers and their network.
pub mod engine;
// One more process in a container, without the OCI runtime.
pub mod enter;
// The parent of every container: streams, logs and exits that outlive the agent.
pub mod keeper;
// What the node and its pods use.
pub mod usage;
// Many streams over one connection: WebSocket channels and SPDY.
pub mod streams;
// The node's own HTTPS API.
pub mod api;
// The commands.
pub mod cli;
