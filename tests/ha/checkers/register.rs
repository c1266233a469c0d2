//! The model that operations are compared with: one object that is created, replaced at a revision, deleted and read.

use crate::ha::history::{Call, Operation, Outcome, Revision, Value, Version};
use std::collections::HashMap;
use std::fmt;

/// What an object holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Content {
    /// There is no object.
    Nothing,
    /// Something that was acknowledged or seen.
    Version(Version),
    /// What a write without an answer wrote, which nobody saw.
    Unseen,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Nothing => write!(f, "nothing"),
            Content::Version(version) => write!(f, "{version}"),
            Content::Unseen => write!(f, "the value of a write without an answer"),
        }
    }
}

/// The state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Register {
    /// What is there.
    pub content: Content,
    /// The greatest revision that the object has had, as far as it is known.
    floor: Revision,
}

impl Register {
    /// An object that has never been there.
    pub const EMPTY: Self = Self { content: Content::Nothing, floor: 0 };

    /// The state after an operation that had this outcome, `None` if it cannot have had it in this state; for an unknown
    /// outcome, if it cannot have taken effect. `seen` are the revisions of values that somebody saw.
    pub fn after(self, operation: &Operation, seen: &HashMap<Value, Revision>) -> Option<Self> {
        match (operation.call, operation.outcome) {
            (Call::Read, Outcome::Found(found)) => {
                (self.content == found.map_or(Content::Nothing, Content::Version)).then_some(self)
            }
            (Call::Create(value), Outcome::Written(revision)) if !self.is_there() => {
                self.write(Version { value, revision })
            }
            (Call::Replace(expected, value), Outcome::Written(revision)) if self.is_at(expected) => {
                self.write(Version { value, revision })
            }
            (Call::Delete(expected), Outcome::Deleted) if self.fits(expected) => {
                Some(self.with(Content::Nothing))
            }
            (Call::Create(_), Outcome::Conflict) => self.is_there().then_some(self),
            (Call::Replace(expected, _) | Call::Delete(Some(expected)), Outcome::Conflict) => {
                (!self.is_at(expected)).then_some(self)
            }
            (Call::Replace(..) | Call::Delete(_), Outcome::Missing) => (!self.is_there()).then_some(self),
            (call, Outcome::Unknown) => self.perhaps(call, seen),
            _ => None,
        }
    }

    fn perhaps(self, call: Call, seen: &HashMap<Value, Revision>) -> Option<Self> {
        let applies = match call {
            Call::Read => false,
            Call::Create(_) => !self.is_there(),
            Call::Replace(expected, _) => self.is_at(expected),
            Call::Delete(expected) => self.fits(expected),
        };
        match call.value() {
            _ if !applies => None,
            None => Some(self.with(Content::Nothing)),
            Some(value) => match seen.get(&value) {
                Some(revision) => self.write(Version { value, revision: *revision }),
                None => Some(self.with(Content::Unseen)),
            },
        }
    }

    fn is_there(&self) -> bool {
        self.content != Content::Nothing
    }

    /// Clients name only revisions that somebody saw: what nobody saw is at none of them.
    fn is_at(&self, expected: Revision) -> bool {
        matches!(self.content, Content::Version(version) if version.revision == expected)
    }

    fn fits(&self, expected: Option<Revision>) -> bool {
        expected.map_or(self.is_there(), |expected| self.is_at(expected))
    }

    fn with(self, content: Content) -> Self {
        Self { content, ..self }
    }

    fn write(self, version: Version) -> Option<Self> {
        let grows = version.revision > self.floor;
        grows.then_some(Self { content: Content::Version(version), floor: version.revision })
    }
}

/// The revisions of values, from everything that was read and acknowledged: the writer of a value may not have been answered,
/// and a reader saw it all the same.
pub fn revisions<'a>(operations: impl IntoIterator<Item = &'a Operation>) -> HashMap<Value, Revision> {
    let seen = operations.into_iter().filter_map(|operation| match operation.outcome {
        Outcome::Found(found) => found,
        _ => operation.wrote(),
    });
    seen.map(|version| (version.value, version.revision)).collect()
}
