//! The contracts that both sides of Coracle speak.

// API errors as metav1.Status.
pub mod status;
// Errors with their causes.
pub mod causes;
// What every API type looks like.
pub mod schema;
// Amounts of resources.
pub mod quantity;
// Label and field selectors.
pub mod selector;
// Rules for names and labels.
pub mod names;
// Kernel parameters that pods may set.
pub mod sysctls;
// Volumes on nodes' own disks.
pub mod local_path;
// What server and nodes agree on about a node's certificates.
pub mod node_identity;
// Times and durations.
pub mod time;
// Schedules of CronJobs.
pub mod cron;
// Pages of metrics.
pub mod exposition;
// Limits on depth, number of values and size.
pub mod shape;
// JSON and YAML bodies to objects.
pub mod decode;
// Protobuf bodies to objects.
pub mod protobuf;

/// CRI v1, generated from `cri/api.proto`.
#[cfg(feature = "cri")]
#[allow(missing_docs, clippy::all)]
pub mod cri {
    tonic::include_proto!("runtime.v1");
}
