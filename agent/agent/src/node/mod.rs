//! The node itself: what it is, and telling the API server so.

// What the machine is.
pub mod machine;
// The Node object as this node registers it.
pub mod object;
// Conditions and what pods may use.
pub mod status;
// The heartbeat.
pub mod lease;
// The network configuration of the pod range.
pub mod cni_conf;
// What to do when something runs short.
pub mod pressure;
// Logs that grow are cut.
pub mod log_rotation;
// The task that keeps it all current.
pub mod keep;
// Disk that pods use beyond their limits.
pub mod local_storage;
// The machine goes down.
pub mod shutdown;
