//! Trials of a cluster whose servers, nodes and stores fail: what clients did and saw is recorded as a history, and checkers
//! decide afterwards whether a correct cluster could have produced it. The suite is in `ha/main.rs`; what is here needs no
//! cluster, and its own tests plant every violation that a checker has to find.

// What clients did and saw.
pub mod history;
// What must be true of a history.
pub mod checkers;
// Random numbers of a printed seed.
pub mod dice;
// A client that tries all servers.
pub mod failover;
// Watches that go on at another server.
pub mod following;
// An etcd cluster.
pub mod members;
