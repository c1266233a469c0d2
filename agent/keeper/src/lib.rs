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
// Where a pod can change files meanwhile, modules deny them again.
#![allow(clippy::disallowed_methods)]

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
// Runs the OCI runtime and adopts the process that it leaves.
pub mod launch;
// Kills OCI runtimes that a killed keeper left running.
mod stragglers;
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
