//! The API server through real clients, without root: kubectl (oldest and newest to be had), kube-rs, raw HTTP. Every
//! suite runs on the embedded store and on a real etcd.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

// Commands as people type them.
mod kubectl_suite;
// The Rust client.
mod kube_rs;
// The Python client.
mod python;
// The server as a process.
mod process;
// Where clients go on after a watch that ended.
mod bookmarks;
// Two servers on one etcd.
mod two_servers;
// A server that runs its own etcd.
mod managed_etcd;
// Where the Service of the API servers leads.
mod servers;
// Nodes with tunnels to another server.
mod relay;
// Every command of the recorded traces.
mod traces;
// Manifests in a directory of the server.
mod manifests;
// What clients must not be able to do.
mod bad_input;
// Addresses and ports of Services.
mod services;

// What the cluster accepts.
mod admission;
// Each plugin that is on by default.
mod default_plugins;
// Requests from the usage of the past.
mod initial_resources;
// Older API versions.
mod older_versions;
// Objects that are hidden until others have finished them.
mod initializers;
// What is admitted meanwhile.
mod initializers_admission;
// Kinds that are made at run time.
mod custom;
// Versions of them that a webhook converts.
mod conversion;
// Others have a say.
mod webhooks;
// Expressions ask the authorizers.
mod authorizer;
// Expressions change what is stored.
mod mutating_policies;
// Values have the types of their fields.
mod field_types;
// Server-side apply of `/scale`.
mod scale;
// On deletes, connections and actions, too.
mod webhook_operations;
// API servers of others.
mod aggregation;
// Metrics that they serve to autoscalers.
mod custom_metrics;
// Budgets, approvals and pages as Kubernetes has them.
mod upstream;
// Which of two servers acts.
mod election;
// Rollouts while the server is killed.
mod rollout;
// Bindings while the server is killed.
mod bindings;
// The scheduler as it is configured.
mod scheduling;
// Audit events of controllers and the scheduler.
mod audit;
// Timelines: who sees what, spans of nodes, export.
mod explain;

// Commands of operators.
mod operations;

use coracle_tests::etcd::Etcd;
use coracle_tests::server::Server;

/// Runs a suite on both stores.
pub fn on_both_stores(suite: impl Fn(&Server)) {
    let server = Server::with(&["--api-only"]);
    suite(&server);
    drop(server);
    let etcd = Etcd::start();
    let server = Server::with(&["--api-only", "--datastore", &format!("etcd://{}", etcd.address)]);
    suite(&server);
}
