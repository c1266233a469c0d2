//! What kinds do to their objects before a write: what clients cannot set, and what kinds start with.

// Pods, their ephemeral containers and resizes.
pub mod pods;
// Deployments, sets, Jobs.
pub mod workloads;
// Stop signals of containers.
pub mod stop_signals;
// Fields of features that this server does not have.
pub mod unsupported;
// Services, ingresses and endpoint slices.
pub mod network;
// Namespaces, signing requests, secrets.
pub mod cluster;
// How objects end.
pub mod deletion;
// Warnings for the `Warning` header.
pub mod warnings;
// Warnings about pods and their templates.
mod templates;
// Warnings about certificates and keys of TLS Secrets.
pub mod tls_secrets;
// Warnings about formats in schemas of custom resources.
pub mod formats;
// Warnings about deprecated fields.
pub mod deprecations;
