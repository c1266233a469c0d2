//! What clients did and saw, with the times of one monotonic clock. Keys are objects that carry a value: every write of a trial
//! writes a value of its own, so that what is read tells which write it came from.

use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

/// Nanoseconds since the trial began.
pub type Time = u64;
/// The resourceVersion of an object or event.
pub type Revision = u64;
/// What a write wrote; no two writes of a trial write the same.
pub type Value = u64;

/// An object as a client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// What it carries.
    pub value: Value,
    /// Where it was written.
    pub revision: Revision,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "value {} at revision {}", self.value, self.revision)
    }
}

/// What a client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// GET.
    Read,
    /// POST: only if there is no object.
    Create(Value),
    /// PUT with a resourceVersion: only if the object is at that revision.
    Replace(Revision, Value),
    /// DELETE, with a precondition on the revision or without.
    Delete(Option<Revision>),
}

impl Call {
    /// What it writes.
    pub fn value(&self) -> Option<Value> {
        match self {
            Call::Create(value) | Call::Replace(_, value) => Some(*value),
            Call::Read | Call::Delete(_) => None,
        }
    }
}

/// What a client was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A read: the object, or that there is none.
    Found(Option<Version>),
    /// A create or replacement that was acknowledged.
    Written(Revision),
    /// A deletion that was acknowledged.
    Deleted,
    /// 409: the precondition did not hold, or the object was there already. Nothing was written.
    Conflict,
    /// 404: there was no object. Nothing was written.
    Missing,
    /// No answer, or one that does not tell: it may take effect at any time after it was sent, or never.
    Unknown,
    /// It did not take effect: no server accepted it.
    NotSent,
}

/// One request of a client, over all the servers that it tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its place in the history.
    pub id: usize,
    /// Who asked.
    pub client: u32,
    /// The server that was asked last.
    pub server: u32,
    /// The object.
    pub key: u32,
    /// What was asked.
    pub call: Call,
    /// When it was sent.
    pub invoked: Time,
    /// When it was answered or given up.
    pub returned: Time,
    /// The answer.
    pub outcome: Outcome,
}

impl Operation {
    /// The version that it wrote, if that is known.
    pub fn wrote(&self) -> Option<Version> {
        match (self.call.value(), self.outcome) {
            (Some(value), Outcome::Written(revision)) => Some(Version { value, revision }),
            _ => None,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Time| time as f64 / 1e6;
        write!(f, "#{} client {} key {} ", self.id, self.client, self.key)?;
        match self.call {
            Call::Read => write!(f, "read"),
            Call::Create(value) => write!(f, "create {value}"),
            Call::Replace(revision, value) => write!(f, "replace revision {revision} by {value}"),
            Call::Delete(None) => write!(f, "delete"),
            Call::Delete(Some(revision)) => write!(f, "delete revision {revision}"),
        }?;
        match self.outcome {
            Outcome::Found(Some(version)) => write!(f, " -> {version}"),
            Outcome::Found(None) => write!(f, " -> nothing"),
            Outcome::Written(revision) => write!(f, " -> revision {revision}"),
            Outcome::Deleted => write!(f, " -> deleted"),
            Outcome::Conflict => write!(f, " -> conflict"),
            Outcome::Missing => write!(f, " -> not found"),
            Outcome::Unknown => write!(f, " -> unknown"),
            Outcome::NotSent => write!(f, " -> not sent"),
        }?;
        write!(f, " [{:.3}-{:.3} ms, server {}]", ms(self.invoked), ms(self.returned), self.server)
    }
}

/// What a watch said about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It was there.
    Modified,
    /// It is gone.
    Deleted,
}

/// What a watcher saw, in the order in which it saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// It listed: at the beginning, or because the server no longer knew the revision to go on from (410).
    Listed {
        /// The revision of the list.
        revision: Revision,
        /// Every object.
        objects: Vec<(u32, Version)>,
    },
    /// A watch began from what it saw last.
    Connected {
        /// The server.
        server: u32,
        /// `resourceVersion` of the request.
        from: Revision,
    },
    /// An event.
    Event {
        /// What happened.
        change: Change,
        /// The object.
        key: u32,
        /// What it carries, and the revision of the event.
        version: Version,
    },
    /// A bookmark: everything up to this revision was sent.
    Bookmark(Revision),
}

/// One watcher over all its connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watcher {
    /// Who.
    pub name: String,
    /// What it saw.
    pub sights: Vec<Sight>,
}

/// Collects what clients do; they share it.
#[derive(Debug)]
pub struct Recorder {
    begun: Instant,
    operations: Mutex<Vec<Operation>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { begun: Instant::now(), operations: Mutex::default() }
    }
}

impl Recorder {
    /// The time now.
    pub fn now(&self) -> Time {
        self.at(Instant::now())
    }

    /// The time of an instant, which is not before the trial began.
    pub fn at(&self, instant: Instant) -> Time {
        u64::try_from(instant.saturating_duration_since(self.begun).as_nanos()).unwrap_or(Time::MAX)
    }

    /// Notes an operation that is about to be sent; its outcome is unknown until [`Self::returned`].
    ///
    /// # Panics
    /// When another recording thread panicked.
    pub fn invoked(&self, client: u32, key: u32, call: Call) -> usize {
        let mut operations = self.operations.lock().expect("no recorder panics");
        let (id, invoked) = (operations.len(), self.now());
        let outcome = Outcome::Unknown;
        operations.push(Operation {
            id,
            client,
            server: 0,
            key,
            call,
            invoked,
            returned: Time::MAX,
            outcome,
        });
        id
    }

    /// Notes its outcome.
    ///
    /// # Panics
    /// When another recording thread panicked.
    pub fn returned(&self, id: usize, server: u32, outcome: Outcome) {
        let now = self.now();
        let mut operations = self.operations.lock().expect("no recorder panics");
        let operation = &mut operations[id];
        (operation.server, operation.returned, operation.outcome) = (server, now, outcome);
    }

    /// How many were noted.
    ///
    /// # Panics
    /// When another recording thread panicked.
    pub fn len(&self) -> usize {
        self.operations.lock().expect("no recorder panics").len()
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything so far.
    ///
    /// # Panics
    /// When another recording thread panicked.
    pub fn operations(&self) -> Vec<Operation> {
        self.operations.lock().expect("no recorder panics").clone()
    }
}
