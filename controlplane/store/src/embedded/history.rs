//! How much history the store keeps: enough for a watcher to resume after a restart, bounded in changes and bytes.

use crate::Revision;
use std::collections::VecDeque;

/// History that stays on disk.
pub(super) const KEEP_CHANGES: u64 = 8192;
pub(super) const KEEP_BYTES: u64 = 16 << 20;

/// Changes are counted in steps, so that trimming is cheap and seldom.
const STEP: u64 = 256;

pub(super) struct History {
    max_changes: u64,
    max_bytes: u64,
    /// Up to which revision a step goes and how many bytes it has; the last one is being filled.
    steps: VecDeque<(Revision, u64)>,
    filled: u64,
    bytes: u64,
}

impl History {
    /// Begins after what is there already, which goes first.
    pub fn new(max_changes: u64, max_bytes: u64, there: Revision) -> Self {
        Self { max_changes, max_bytes, steps: VecDeque::from([(there, 0), (0, 0)]), filled: 0, bytes: 0 }
    }

    /// Counts one change.
    pub fn push(&mut self, revision: Revision, bytes: u64) {
        if self.filled == STEP {
            self.steps.push_back((0, 0));
            self.filled = 0;
        }
        if let Some(step) = self.steps.back_mut() {
            *step = (revision, step.1 + bytes);
        }
        self.filled += 1;
        self.bytes += bytes;
    }

    /// The revision up to which history is to be forgotten now, if it has grown too long.
    pub fn excess(&mut self) -> Option<Revision> {
        let mut upto = None;
        while self.steps.len() > 1
            && (self.steps.len() as u64 * STEP > self.max_changes || self.bytes > self.max_bytes)
        {
            let (revision, bytes) = self.steps.pop_front()?;
            self.bytes -= bytes;
            upto = Some(revision);
        }
        upto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_by_number_and_by_bytes() {
        for (max_changes, max_bytes, size, kept) in
            [(1024, u64::MAX, 10, 768..=1024), (u64::MAX, 10_000, 10, 744..=1000), (1024, 100, 1000, 1..=256)]
        {
            let (mut history, mut floor) = (History::new(max_changes, max_bytes, 0), 0);
            for revision in 1..=10_000 {
                history.push(revision, size);
                if let Some(upto) = history.excess() {
                    assert!(upto >= floor && upto < revision);
                    floor = upto;
                }
            }
            assert!(kept.contains(&(10_000 - floor)), "{max_changes} {max_bytes}: {}", 10_000 - floor);
        }
    }
}
