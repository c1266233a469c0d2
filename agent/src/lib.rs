//! The Coracle node agent.

// The one trait between pod life and any container runtime.
pub mod runtime;
// The container engine: images, sandboxes, containers and their network.
pub mod engine;
