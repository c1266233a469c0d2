//! Sources of pods and of container events.

// Pods bound to this node.
pub mod api;
// Pods of manifests.
pub mod static_pods;
// References of manifests to objects of the API.
mod references;
// Manifests on this node.
pub mod manifests;
// Manifests at a URL.
pub mod manifest_url;
// Mirror pods.
pub mod mirror;
// Orphaned pods.
pub mod orphans;
// Events of the runtime.
pub mod runtime;
