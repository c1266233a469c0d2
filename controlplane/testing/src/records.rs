//! What a cluster has recorded.

use coracle_trace::{Clock, Details, Record, Recorder, Sizes};
use std::sync::atomic::AtomicU64;

/// Room for the records of a test that reads them at its end.
const SIZES: Sizes = Sizes { shards: 1, slots: 1024, open: 128, contexts: 1024 };

/// A finished span.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The span.
    pub record: Record,
    /// Its marks and owner, if it has any.
    pub details: Option<Details>,
    /// Its text, such as `create pods default/a`.
    pub text: String,
}

/// A recorder that nobody else writes to. Its memory is never freed.
pub(crate) fn recorder() -> Recorder {
    let words: Vec<AtomicU64> = (0..Recorder::words(SIZES)).map(|_| AtomicU64::new(0)).collect();
    Recorder::on(Vec::leak(words), SIZES, Clock::start())
}

/// Takes what was recorded, oldest first.
pub(crate) fn take(recorder: Recorder) -> Vec<Recorded> {
    let mut all = Vec::new();
    let read = recorder.read(&mut |record, details, text| {
        all.push(Recorded { record: *record, details: details.copied(), text: text.to_owned() });
    });
    recorder.release(read);
    all
}
