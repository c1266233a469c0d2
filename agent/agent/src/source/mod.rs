//! Where pods come from, and where news of their containers comes from.

// Pods the API server gives to this node.
pub mod api;
// Pods from manifests on this node.
pub mod manifests;
// Their images in the API.
pub mod mirror;
// What earlier lives of the agent left.
pub mod leftovers;
// News from the runtime.
pub mod runtime;
