//! What is known of the endpoint in use, and whether one that answers has to be searched.

use super::error::EtcdError;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// While there is no majority, a search begins at most this often.
const AGAIN: Duration = Duration::from_millis(500);

/// What is known of the endpoint in use.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Known {
    /// It answered last time.
    #[default]
    Answers,
    /// Another one was given up, and this one has not been asked yet.
    Unknown,
    /// No majority was reached.
    Lost { at: Instant, reached: usize, of: usize },
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
        if matches!(*known, Known::Answers) {
            *known = Known::Unknown;
        }
    }

    /// Whether a search is needed; an error if the last one failed a moment ago.
    pub(super) fn is_due(&self) -> Result<bool, EtcdError> {
        match *self.known.lock() {
            Known::Answers => Ok(false),
            Known::Lost { at, reached, of } if at.elapsed() < AGAIN => {
                Err(EtcdError::NoMajority { reached, of })
            }
            Known::Unknown | Known::Lost { .. } => Ok(true),
        }
    }
}
