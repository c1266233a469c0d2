//! The node agent: pods, volumes, probes, status, service proxy, network policies, DNS and the node API.
//!
//! May depend on `coracle-engine`, `coracle-keeper`, `coracle-host-dir`, `coracle-csi`, `coracle-devices`, `coracle-cni`, `coracle-proto`, `coracle-cli`,
//! `coracle-trace` and `coracle-timeline`.
//! It depends on no crate of the control plane: it talks to any API server over HTTPS.
//!
//! Modules import each other in one direction: `config`, then `pod`, then volumes, probes, images, status and policies, then
//! `lifecycle`, then `node`, `source` and `api`. Only [`cli::assemble`] knows all parts; each part gets what it needs.

#![forbid(unsafe_code)]
// Modules that work on files which a pod can change deny `disallowed_methods`.
#![allow(clippy::disallowed_methods)]

// Topology manager: NUMA nodes that resources of a container come from.
pub mod numa;
// Options of the node.
pub mod config;
// What the node records of its own work, and its delivery.
pub mod trace;
// The API servers: which there are, and which one the agent talks to.
pub mod servers;
// Certificates of the node: joining and rotation.
pub mod identity;
// Watches of the API that recover from errors.
pub mod api_watch;
// Events for `kubectl describe`.
pub mod events;
// Locks by name, held across calls to drivers.
mod locks;
// ConfigMaps and Secrets that pods of this node use.
pub mod objects;
// Watched state of the cluster: Services, EndpointSlices, Nodes, Namespaces.
pub mod cluster;
// Environment variables of Services.
pub mod services;
// The network between nodes.
pub mod network;
// The service proxy.
pub mod proxy;
// Volumes of pods.
pub mod volume;
// Probes of containers.
pub mod probe;
// The Node object, its status and its lease.
pub mod node;
// Sources of pods: API server, static manifests.
pub mod source;
// Pods as data: spec, observed state, plan, configuration.
pub mod pod;
// Device plugins, and the devices that containers are given.
pub mod devices;
// ResourceClaims of pods.
pub mod claims;
// Images of containers.
pub mod image;
// The lifecycle of pods: table, jobs, workers.
pub mod lifecycle;
// Pod status: generation and reports.
pub mod status;
// Network policies.
pub mod policy;
// Cluster DNS.
pub mod dns;
// Resource usage of the node and its pods.
pub mod usage;
// The node API on :10250.
pub mod api;
// The commands of `coracle-agent`.
pub mod cli;
