//! What a kind fills in when the client left it out, one file per family.

// Pods and everything that carries a pod template.
pub mod pods;
mod containers;
mod volumes;
mod quantities;
// Deployments and the like.
pub mod workloads;
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
// Flow schemas, priority levels, device claims.
pub mod shares;

pub use containers::pull_policy;

#[cfg(test)]
mod tests;
