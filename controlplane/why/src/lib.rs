//! `coracle why` and `kubectl why`: the root cause of what is not well in a cluster, with evidence and remedy.
//!
//! Works against any Kubernetes API with the rights of the user. The analysis is pure (`explain`, `survey`, and one file per
//! area): it reads from a `World`, which asks a `Cluster` for what is missing and runs the analysis again. A cause is only
//! named when an object, an event or a log proves it.
//!
//! `trouble/table.rs` lists all kinds of trouble, `explain::inspect` which function looks for them in which kind of object.

#![forbid(unsafe_code)]

// Options.
pub mod args;
// The command.
pub mod run;
// Kubeconfig and client.
pub mod connect;
// Questions to a cluster.
pub mod cluster;
// A cluster behind its API.
pub mod kube_cluster;
// What is known, and what is asked.
pub mod world;
// Names of resources.
pub mod kinds;
// Objects and connections that users name.
pub mod target;
// The last write of an object that does not exist.
pub mod refusal;
// What programs ask.
pub mod question;
// Everything at once.
pub mod survey;
// Dispatch by kind.
pub mod explain;
// References from object to object.
pub mod follow;
// Pods.
pub mod pod;
// Deployments, StatefulSets, DaemonSets, Jobs.
pub mod workloads;
// Services.
pub mod services;
// The Service of the API servers.
pub mod api_servers;
// Ingresses.
pub mod ingress;
// Connections, NetworkPolicies.
pub mod network;
// DNS names of Services.
pub mod dns_names;
// PersistentVolumeClaims.
pub mod claims;
// Volumes that claims name.
pub mod named_volume;
// Volumes that fit a claim.
mod volume_fit;
// Nodes.
pub mod nodes;
// Namespaces.
pub mod namespaces;
// PodDisruptionBudgets.
pub mod budgets;
// HorizontalPodAutoscalers.
pub mod autoscalers;
// Admission webhooks.
pub mod webhooks;
// Aggregated APIs.
pub mod api_services;
// Quotas.
pub mod quotas;
// Certificate signing requests.
pub mod signing;
// Certificates.
pub mod certificates;
// Clocks.
pub mod clock;
// Conditions of other kinds.
pub mod conditions;
// Finalizers.
pub mod deletion;
// Objects that are well.
pub mod well;
// Workloads that are well.
pub mod rollout;
// Events as evidence.
pub mod events;
// Label selectors.
pub mod select;
// Node selectors.
pub mod node_selector;
// Causes.
pub mod finding;
// Kinds of trouble.
pub mod trouble;
// Output.
pub mod report;
#[cfg(test)]
mod tests;
