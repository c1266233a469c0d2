//! The container engine: images, sandboxes, containers and their network; also served as CRI.
//!
//! Every side effect is recorded (`record`) before it is made, or can be found again; `recover` continues or cleans up what a
//! killed engine left. Operations on one sandbox or container are serialized, others run in parallel.
//!
//! May depend on `coracle-keeper`, `coracle-host-dir`, `coracle-cni`, `coracle-proto`, `coracle-cli` and `coracle-trace`. It
//! knows no Pod objects and no API server: it speaks CRI ([`runtime::Runtime`]).
// Modules that work on files which a pod can change deny `disallowed_methods`.
#![allow(clippy::disallowed_methods)]

// Options of the engine.
pub mod options;
// Lock file: one engine per run directory.
mod run_lock;
// Directories and files of the engine.
pub mod paths;
// Features of the host, and its cgroup hierarchy.
pub mod host;
// The default AppArmor profile.
mod apparmor;
// SELinux labels of files.
mod relabel;
// Errors as CRI status codes.
mod error;
// Work outside of the calling task.
mod offload;
// Ids and times.
mod stamp;
// Records of sandboxes and containers on disk.
pub mod record;
// Detects reboots.
mod boot;
// The connection to the keeper.
pub mod keeper;
// Sandboxes and containers in memory, with their records.
mod objects;
// Resource limits as cgroup files.
pub mod limits;
// cgroups v2.
pub mod cgroup;
// Hides the latency of moving a process into a cgroup.
mod cgroup_migration;
// Images: pull, verify, unpack, garbage collection.
pub mod image;
// The runtime side of CNI.
pub mod cni;
// Limits of a pod's traffic.
mod bandwidth;
// Sandboxes on the cluster network.
mod pod_network;
// Restores host ports whose rules were removed.
mod host_ports;
// Namespaces that a pod asks for.
mod namespace;
// Signals by name.
mod signal;
// CRI status messages.
mod status;
// Events for subscribers.
mod events;
// OCI runtimes that are known.
mod oci_implementation;
// Command lines of the OCI runtime.
mod oci_runtime;
// Waiters for exits of commands.
mod exec_waiters;
// Hooks that run after the end of a container.
mod poststop;
// Exits of tasks.
mod exit;
// Tasks of the keeper.
mod tasks;
// Devices that spec files of the node describe.
pub mod cdi;
// The configuration for the OCI runtime.
pub mod spec;
// Resolves user and group names of an image.
pub mod user;
// ID-mapped mounts for user namespaces.
mod idmap;
// Files and pinned namespaces of a sandbox.
mod sandbox_files;
// Root filesystems and volumes.
mod rootfs;
// OCI bundles on disk.
mod bundle;
// Checkpoints: the state of a container as an archive.
mod checkpoint;
// Containers: create, start, stop, remove.
mod container;
// Sandboxes: pause, namespaces, network.
mod sandbox;
// Exec, attach and port-forward.
mod exec;
// Disk usage of the writable layers of containers.
mod layer_usage;
// Usage from cgroup files and `/proc`.
mod stats;
// CRI's view of the image store.
mod images;
// Metric families of container usage.
pub mod metric_families;
// Usage as CRI metrics.
mod metrics;
// Recovery after a restart.
mod recover;
// Status of the engine itself.
mod info;
// Opened directories, stores and connections.
mod base;
// The engine, put together from its parts.
mod engine;
// Implements the traits of `runtime` for the engine.
mod runtime_impl;
// `trait Runtime`: the interface between pods and any container runtime.
pub mod runtime;
// WebSocket channels and SPDY: many streams over one connection.
pub mod streams;
// The streaming server for CRI clients.
pub mod streaming;
// CRI on a unix socket.
pub mod serve;
// Watches our nftables tables for changes by other programs.
pub mod nft_monitor;

pub use self::engine::Engine;
pub use self::options::Options;
