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
// Times and durations.
pub mod time;
// Schedules of CronJobs.
pub mod cron;
// Pages of metrics.
pub mod exposition;
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
