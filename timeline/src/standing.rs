//! How an object stands now, by its state in the API: spans of a node that is away say nothing.

/// How an object stands, as far as somebody has looked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Standing {
    /// Nobody has looked.
    #[default]
    Unknown,
    /// It does not exist any more.
    Gone,
    /// It is ready, has ended, or is of a kind that is never more than written.
    Ready,
    /// It is not ready.
    Waits(Cause),
    /// It is being deleted.
    Ends(Cause),
}

/// What an object waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Such as `node-3` or `the readiness probe of container web`.
    pub what: String,
    /// Whether it does not go on by itself.
    pub stuck: bool,
}

impl Standing {
    /// Removes the names of what an object waits for: only that it waits is left.
    pub fn forget_what(&mut self) {
        if let Self::Waits(cause) | Self::Ends(cause) = self {
            cause.what.clear();
        }
    }

    /// What is said about an object that waits; nothing about others.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Waits(cause) => format!("waits for {}", cause.what),
            Self::Ends(cause) => format!("being deleted, waits for {}", cause.what),
            _ => String::new(),
        }
    }
}
