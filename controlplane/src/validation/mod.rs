//! Field rules per kind, with upstream's wording. Rules read like prose: a [`spot::Spot`] is a value together with
//! its path and the list that its errors go to.

// A value, its path and where its errors go.
pub mod spot;
// Names, addresses, and short texts that follow a pattern.
pub mod names;
// Metadata of every object.
pub mod meta;
// Pods and pod templates.
pub mod pods;
// Deployments and the like.
pub mod workloads;
// Jobs and CronJobs.
pub mod jobs;
// Services and endpoints.
pub mod services;
pub mod endpoints;
// Ingresses and network policies.
pub mod network;
// Volumes, claims and classes.
pub mod storage;
// ConfigMaps and Secrets.
pub mod data;
// Namespaces, Nodes, quotas, limits, events, leases.
pub mod cluster;
pub mod limits;
// Roles and signing requests.
pub mod access;
// Autoscalers and disruption budgets.
pub mod scaling;
// Webhooks, admission policies, custom resource definitions.
pub mod extensions;
// Versions of custom resources.
pub mod conversion;
// Schemas of custom resources.
pub mod schemas;
// Rules that such schemas carry.
mod rules;
// Flow schemas and priority levels.
pub mod flow;
// Device classes, claims and slices.
pub mod devices;

#[cfg(test)]
mod testing;
