//! Defaults and field rules per kind, with the error messages of upstream. A [`field_ref::Field`] is a value of a type of the
//! schema table, with its path and the list that collects its errors.
//!
//! May depend on `coracle-expressions`, no other crate of the control plane.

#![forbid(unsafe_code)]

// A field of an object: value, path and list of errors.
pub mod field_ref;
// The path of a field.
mod path;
// Errors of fields.
pub mod field_errors;
// Rules that many fields have.
pub mod field_rules;
// Changes of objects that an earlier version stored.
pub mod ratchet;
// Names, addresses, and short strings that follow a pattern.
pub mod names;
// Metadata of every object.
pub mod meta;
// Names and quantities of resources.
mod quantities;
// What the containers of a pod have altogether.
mod pod_sums;
// The spec of a PersistentVolumeClaim.
mod claim_spec;
// Sources of volumes that pods and PersistentVolumes have in common.
mod volume_sources;
// Pods and pod templates.
pub mod pods;
// Deployments, ReplicaSets, StatefulSets, DaemonSets.
pub mod workloads;
// Jobs and CronJobs.
pub mod jobs;
// Changes of the status of Jobs.
pub mod job_status;
// Changes of the pod templates of Jobs.
mod job_template;
// Services.
pub mod services;
// Endpoints and EndpointSlices.
pub mod endpoints;
// Ingresses and network policies.
pub mod network;
// Sources of PersistentVolumes.
mod persistent_sources;
// Node affinity of PersistentVolumes.
mod volume_affinity;
// Volumes, claims and classes.
pub mod storage;
// ConfigMaps and Secrets.
pub mod data;
// Namespaces, Nodes, events, leases, priority classes, runtime classes.
pub mod cluster;
// Quotas and limit ranges.
pub mod limits;
// Roles and certificate signing requests.
pub mod access;
// Reviews of access.
pub mod reviews;
// Autoscalers and disruption budgets.
pub mod scaling;
// Client configurations of webhooks.
mod webhook_client;
// Webhooks, admission policies, custom resource definitions.
pub mod extensions;
// Custom resource definitions.
pub mod definitions;
// Types of expressions in webhooks, admission policies and device selectors.
pub mod compiled;
// Mutating admission policies.
pub mod mutating_policies;
// Initializers: configurations, and those of objects.
pub mod initializers;
// Approval of definitions of the Kubernetes community.
pub mod api_approval;
// Conversion between versions of custom resources.
pub mod conversion;
// Schemas of custom resources.
pub mod schemas;
// What makes such a schema structural.
mod structural;
// CEL rules in those schemas (`x-kubernetes-validations`).
mod schema_rules;
// Flow schemas and priority levels.
pub mod flow;
// Device classes, claims and slices.
pub mod devices;
// Taints, binding conditions and shared capacity of devices.
mod device_rules;
// Attributes, capacities and counters of devices.
mod device_facts;
// Reading and changing JSON trees.
pub mod tree;
// Default values of fields, per kind.
pub mod defaults;

#[cfg(test)]
mod testing;
