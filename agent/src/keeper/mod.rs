//! The keeper: one small process per node that is the parent of every sandbox and container.
//!
//! It owns what must outlive the agent: children, their standard streams and logs, and the record of their exits.
//! Everything else (state, cgroups, mounts, network) is the agent's. One thread, one epoll, no async runtime.
//!
//! Either process may be killed. Streams are FIFOs on disk that the container itself holds open for reading and
//! writing, so that nobody's death breaks them; descriptors that cannot be opened again (pidfds, terminals, stdin)
//! are held by the agent too and handed to the next keeper by [`wire::Call::Adopt`].

// What agent and keeper say to each other.
pub mod wire;
// Ends of processes on disk.
pub mod exits;
// Container output in the CRI log format.
pub mod log;
// pidfds and how a process ended.
pub mod pidfd;
// `pause` in fresh namespaces and its cgroup.
pub(crate) mod sandbox;
// Running the OCI runtime and taking over what it leaves.
pub(crate) mod launch;
// Runtimes of a keeper that was killed.
mod stragglers;
// Streams of one container.
pub(crate) mod streams;
// Readiness.
mod poll;
// One connected agent.
mod client;
// The loop.
pub mod server;
