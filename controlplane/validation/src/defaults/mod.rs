//! Default values, one file per family of kinds.

// Pods and everything that carries a pod template.
pub mod pods;
mod containers;
mod volumes;
mod volume_sources;
mod quantities;
// Deployments and the like.
pub mod workloads;
// What older versions of them, and of Ingresses, left open.
pub mod extensions_v1beta1;
// Jobs and CronJobs.
pub mod jobs;
// Services, endpoints, policies, ingresses.
pub mod network;
// Volumes, claims, classes, drivers.
pub mod storage;
// Namespaces, nodes, secrets, limits, roles, priorities.
pub mod cluster;
// HorizontalPodAutoscalers.
pub mod autoscalers;
// Webhooks, policies, custom resource definitions, aggregated servers.
pub mod extensions;
// Flow schemas and priority levels.
pub mod flow;
// Device claims.
pub mod devices;

pub use containers::pull_policy;

#[cfg(test)]
mod tests;
