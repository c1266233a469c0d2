//! Probes: is a container started, alive, ready?

// Success and failure thresholds. Pure.
pub mod threshold;
// TCP connections.
pub mod dial;
// Paths of HTTP requests.
mod url_path;
// One HTTP request, as probes and hooks make it.
pub mod http;
// One check of any kind.
pub mod check;
// gRPC health checks.
pub mod grpc;
// Schedules the checks of the whole node.
pub mod schedule;
