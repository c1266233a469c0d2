//! The Coracle node agent.

// The one trait between pod life and any container runtime.
pub mod runtime;
