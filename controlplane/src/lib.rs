//! The Coracle control plane, in the order a request travels: the API server's chain, the registry of kinds,
//! the watch cache and the store; then those who live on it, controllers and scheduler.

// Options of the server.
pub mod config;
// Options about who gets in.
pub mod security;
// Keys and certificates.
pub mod pki;
// Who authenticates and who authorizes.
pub mod guard;
// What the server's process may do on its machine.
pub mod privileges;
// The sockets that clients come to, from one program to the next.
pub mod doors;
// The parts put together.
pub mod server;
// A whole cluster on this machine.
pub mod up;
// What this machine lacks for it.
pub mod doctor;
// Nodes without containers.
pub mod hollow;
// Tokens for nodes that join, and the end of nodes.
pub mod token;
// Places outside that speak JSON over HTTPS.
pub mod remote;
// What is served over HTTP: tls, request info, authn, filters, authz, decode, admission, write, read, watch.
pub mod apiserver;
// What some kinds do besides being stored.
pub mod actions;
// Custom resources come and go.
pub mod definitions;
// APIServices of what is served here.
pub mod registrations;
// The API servers of this cluster.
pub mod servers;
// API servers of others.
pub mod aggregation;
// Requests that end at a node.
pub mod connect;
// Counters.
pub mod metrics;
// The table of kinds and what each kind does on its way to the store.
pub mod registry;
// Rules that users write, in CEL.
pub mod expressions;
// Field rules per kind, with upstream's wording.
pub mod validation;
// Objects in memory: per-kind cache and ring of events.
pub mod watch;
// Bytes on disk or in etcd.
pub mod store;
// An API object as it is kept: bytes plus what selectors and owners need.
pub mod object;
// Reading and growing JSON trees.
pub mod tree;
// The in-process client and informers that controllers and the scheduler use.
pub mod client;
// Control loops on the informer interface.
pub mod controllers;
// Pods get nodes.
pub mod scheduler;
// A cluster for tests.
#[cfg(test)]
pub mod testing;
