//! Cluster DNS on every node: names of Services, endpoints and pods straight from the node's own tables, everything
//! else from upstream. It goes on answering while the API server is away.

// At which addresses, for a node that was not told.
pub mod find;
// What names are made from.
pub mod view;
// The node's tables as a view.
mod tables;
// Which records a name has. Pure.
pub mod zone;
// A question's answer. Pure.
pub mod answer;
// Packets to questions, answers to packets.
pub mod wire;
// What upstream said, for a while.
pub mod cache;
// Where other names are asked for.
pub mod route;
// Questions to other servers.
pub mod upstream;
// Sockets.
pub mod serve;

#[cfg(test)]
mod tests;
