//! What must be true of a history. Every checker is a pure function that returns all violations it finds, each with the
//! operations, events or revisions that contradict each other.

// Single objects are compare-and-swap registers.
pub mod register;
// The search for an order of operations.
pub mod linearizable;
// Revisions count writes in the order in which they happened.
pub mod revisions;
// Acknowledged writes are there at the end.
pub mod durable;
// Watches show every revision once and in order.
pub mod watches;
// Only the leader writes.
pub mod leaders;
// No pod on two nodes.
pub mod bindings;
// No address given twice.
pub mod addresses;
// How long clients waited for an answer.
pub mod availability;
// There was something to check.
pub mod seen;

use std::fmt;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// No order of the operations explains their outcomes.
    NotLinearizable,
    /// The search for such an order took too long.
    Undecided,
    /// Two writes have one revision, or a later one the smaller.
    Revision,
    /// An acknowledged write is not there.
    LostWrite,
    /// Something is there that nobody wrote, or that was refused.
    PhantomWrite,
    /// A watcher saw a revision twice.
    DuplicateEvent,
    /// A watcher saw revisions out of order.
    EventOrder,
    /// A watcher did not see a revision.
    MissedEvent,
    /// An event contradicts what the watcher knew, what was written, or what another watcher saw.
    WrongEvent,
    /// A server wrote as a leader while another one led.
    TwoLeaders,
    /// A pod has had two nodes.
    BoundTwice,
    /// An address had two owners.
    AddressTwice,
    /// Clients waited longer than the fault allows.
    Unavailable,
    /// A watcher was told that its revision is too old, although it was not.
    ListedAgain,
    /// Something that must have happened was not seen.
    NotSeen,
}

/// A contradiction in a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What is wrong.
    pub kind: Kind,
    /// What contradicts what, for people.
    pub message: String,
    /// Operations of the history that take part, by id.
    pub operations: Vec<usize>,
}

impl Violation {
    fn new(kind: Kind, message: String) -> Self {
        Self { kind, message, operations: Vec::new() }
    }

    fn of(kind: Kind, message: String, operations: Vec<usize>) -> Self {
        Self { kind, message, operations }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

/// Histories for the tests of checkers.
#[cfg(test)]
pub mod testing {
    use crate::ha::history::{Call, Operation, Outcome, Time};

    /// An operation of key 0; ids are given by [`history`].
    pub fn op(client: u32, times: (Time, Time), call: Call, outcome: Outcome) -> Operation {
        let (invoked, returned) = times;
        Operation { id: 0, client, server: 0, key: 0, call, invoked, returned, outcome }
    }

    /// Operations with the ids of their places.
    pub fn history(operations: Vec<Operation>) -> Vec<Operation> {
        operations.into_iter().enumerate().map(|(id, operation)| Operation { id, ..operation }).collect()
    }
}
