//! What is known of the endpoint in use, and whether one that answers has to be searched.

use super::{error::EtcdError, no_quorum::NoQuorum};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// While there is no quorum, a search begins at most this often.
const AGAIN: Duration = Duration::from_millis(500);

/// What is known of the endpoint in use.
#[derive(Debug, Clone, Default)]
pub(super) enum Known {
    /// It answered last time.
    #[default]
    Answers,
    /// It answered before, and does not at the moment: it may wait for an election.
    Doubtful,
    /// Another one was given up, and this one has not been asked yet.
    Unknown,
    /// None answered.
    Lost { at: Instant, why: NoQuorum },
}

/// The state of the search; one runs at a time.
#[derive(Default)]
pub(super) struct Search {
    pub(super) known: Mutex<Known>,
    pub(super) running: tokio::sync::Mutex<()>,
}

impl Search {
    /// The endpoint in use has changed, without having been asked.
    pub(super) fn begin(&self) {
        let mut known = self.known.lock();
        if matches!(*known, Known::Answers | Known::Doubtful) {
            *known = Known::Unknown;
        }
    }

    /// The endpoint in use may not answer any more.
    pub(super) fn doubt(&self) {
        let mut known = self.known.lock();
        if matches!(*known, Known::Answers) {
            *known = Known::Doubtful;
        }
    }

    pub(super) fn is_doubtful(&self) -> bool {
        matches!(*self.known.lock(), Known::Doubtful)
    }

    /// Why the last search found none, until one does.
    pub(super) fn lost(&self) -> Option<NoQuorum> {
        match &*self.known.lock() {
            Known::Lost { why, .. } => Some(why.clone()),
            _ => None,
        }
    }

    /// Whether a search is needed; an error if the last one failed a moment ago.
    pub(super) fn is_due(&self) -> Result<bool, EtcdError> {
        match &*self.known.lock() {
            Known::Answers => Ok(false),
            Known::Lost { at, why } if at.elapsed() < AGAIN => Err(EtcdError::NoQuorum(why.clone())),
            Known::Doubtful | Known::Unknown | Known::Lost { .. } => Ok(true),
        }
    }
}
