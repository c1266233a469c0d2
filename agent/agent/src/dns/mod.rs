//! Cluster DNS on every node: names of Services, endpoints and pods straight from the node's own tables, everything
//! else from upstream. It keeps answering while the API server is unavailable.

// Finds the cluster DNS addresses.
pub mod find;
// Interface to Services and endpoints.
pub mod lookup;
// Implements the interface for the watched cluster state.
mod tables;
// Which records a name has. Pure.
pub mod zone;
// Answers a query. Pure.
pub mod answer;
// Decodes and encodes packets.
pub mod wire;
// Cache of upstream responses.
pub mod cache;
// Selects upstream servers.
pub mod route;
// Upstream resolver.
pub mod upstream;
// Sockets.
pub mod serve;

#[cfg(test)]
mod tests;
