//! Probes: is a container started, alive, ready?

// Counting results. Pure.
pub mod count;
// One HTTP request, as probes and hooks make it.
pub mod http;
// One check of any kind.
pub mod check;
// gRPC health checks.
pub mod grpc;
// When checks are due, for the whole node.
pub mod wheel;
