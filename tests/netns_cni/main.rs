//! The CNI plugins in real namespaces: against the spec, under load, killed, and beside those of others.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

// One plugin, called as a runtime does.
mod caller;
// The bridge: connectivity, errors, versions.
mod bridge;
// Many at once, killed in the middle, collected.
mod rough;
// Ports of the host.
mod portmap;
// Limits of traffic.
mod bandwidth;
// Our runtime side with Debian's plugins and with ours.
mod chains;
