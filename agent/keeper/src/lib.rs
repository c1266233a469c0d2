//! The keeper (the shim): one small process per node that is the parent of every sandbox and container.
//!
//! It owns what must outlive the agent: children, their standard streams and logs, and the record of their exits.
//! Everything else (state, cgroups, mounts, network) is the agent's. One thread, one epoll, no async runtime.
//!
//! Either process may be killed. Streams are FIFOs on disk that the container itself holds open for reading and
//! writing, so that they survive the death of either process. Descriptors that cannot be opened again (pidfds, terminals,
//! stdin) are also held by the agent and handed to the next keeper by [`wire::Call::Adopt`].
//!
//! May depend on `coracle-host-dir`, no other crate of the workspace: it is linked statically and has to stay small.
// Modules that work on files which a pod can change deny `disallowed_methods`.
#![allow(clippy::disallowed_methods)]

// Errors with their causes.
pub mod causes;
// The protocol between agent and keeper.
pub mod wire;
// The record of exits on disk.
pub mod exits;
// Container output in the CRI log format.
pub mod log;
// pidfds and exit statuses.
pub mod pidfd;
// Starts `pause` in new namespaces and its cgroup.
pub(crate) mod sandbox;
// Runs the OCI runtime and adopts the container process.
pub mod launch;
// Kills OCI runtimes of an earlier keeper.
mod stale_runtimes;
// Sizes of pipes.
mod pipe_size;
// Buffers of all streams.
mod shared;
// Standard streams of one container.
pub mod streams;
// epoll.
mod poll;
// One connected agent.
mod client;
// The event loop.
pub mod server;
// Runs a command in a container without the OCI runtime.
pub mod enter;

pub use sandbox::clone3;
