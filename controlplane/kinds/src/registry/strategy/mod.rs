//! What kinds do to their objects before a write: what clients cannot set, and what kinds start with.

// Pods, their ephemeral containers and resizes.
pub mod pods;
// Deployments, sets, Jobs.
pub mod workloads;
// Services and their neighbours.
pub mod network;
// Namespaces, signing requests, secrets.
pub mod cluster;
// How objects end.
pub mod deletion;
// Sentences for the `Warning` header.
pub mod warnings;
// Certificates and keys that do not belong together.
pub mod pairs;
// Sentences about what is on its way out.
pub mod deprecations;
