//! How long each stage usually takes on this cluster.

use std::collections::BTreeMap;
use std::fmt::Write;

use coracle_trace::{Details, Flags, Record, Stage};

use crate::marks::each_mark;

const BUCKETS: usize = 32;
/// The first bucket ends here; each following one is twice as long.
const FIRST: u64 = 1 << 10;
/// The weight of what an earlier process found.
const REMEMBERED: u32 = 64;

/// Durations by stage in buckets of powers of two.
#[derive(Debug, Clone)]
pub struct Usual {
    /// By the code of the stage.
    counts: Vec<[u32; BUCKETS]>,
}

impl Default for Usual {
    fn default() -> Self {
        Self { counts: vec![[0; BUCKETS]; 256] }
    }
}

impl Usual {
    /// Counts spans by stage and duration; see [`counted`].
    pub(crate) fn observe(&mut self, spans: impl Iterator<Item = (Stage, u64)>) {
        spans.for_each(|(stage, duration)| self.add(stage, duration, 1));
    }

    fn add(&mut self, stage: Stage, duration: u64, count: u32) {
        let counter = &mut self.counts[usize::from(stage.code())][bucket(duration)];
        *counter = counter.saturating_add(count);
    }

    /// The median of a stage in nanoseconds, exact to a few percent where there are many spans.
    pub fn p50(&self, stage: Stage) -> Option<u64> {
        let counts = &self.counts[usize::from(stage.code())];
        let total: u64 = counts.iter().copied().map(u64::from).sum();
        let mut before = 0;
        for (bucket, count) in counts.iter().enumerate() {
            let count = u64::from(*count);
            if count > 0 && 2 * (before + count) >= total {
                let (low, high) = bounds(bucket);
                // As if the spans of a bucket were spread evenly.
                let share = (total as f64 / 2.0 - before as f64) / count as f64;
                return Some(low + ((high - low) as f64 * share) as u64);
            }
            before += count;
        }
        None
    }

    /// The medians of all stages that were seen.
    pub fn medians(&self) -> BTreeMap<&'static str, u64> {
        Stage::ALL.iter().filter_map(|stage| Some((stage.key(), self.p50(*stage)?))).collect()
    }

    /// What is in the text of a `Usual` record.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for stage in Stage::ALL {
            if let Some(p50) = self.p50(*stage) {
                let _ = write!(text, "{}={p50} ", *stage as u8);
            }
        }
        text
    }

    /// Begins with the medians of an earlier process.
    pub(crate) fn remember(&mut self, text: &str) {
        for (stage, p50) in text.split(' ').filter_map(|item| item.split_once('=')) {
            let stage = stage.parse().ok().and_then(Stage::from_code);
            if let (Some(stage), Ok(p50)) = (stage, p50.parse()) {
                self.add(stage, p50, REMEMBERED);
            }
        }
    }

    /// Halves the weight of what was counted, so that the present counts more than the past.
    pub(crate) fn age(&mut self) {
        self.counts.iter_mut().flatten().for_each(|count| *count -= *count / 2);
    }
}

/// Calls `count` with stage and duration of a span that ended well, and of its marks.
pub(crate) fn counted(record: &Record, details: Option<&Details>, count: &mut dyn FnMut(Stage, u64)) {
    let odd = Flags::FAILED | Flags::CANCELLED | Flags::UNFINISHED;
    if record.flags.without(odd) != record.flags || record.stage.is_point() {
        return;
    }
    count(record.stage, record.duration);
    if let Some(details) = details {
        each_mark(record, details, count);
    }
}

fn bucket(duration: u64) -> usize {
    ((duration / FIRST).checked_ilog2().map_or(0, |power| power as usize + 1)).min(BUCKETS - 1)
}

fn bounds(bucket: usize) -> (u64, u64) {
    if bucket == 0 { (0, FIRST) } else { (FIRST << (bucket - 1), FIRST << bucket) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn medians_are_within_their_bucket() {
        let mut usual = Usual::default();
        for millis in 1..=100u64 {
            usual.add(Stage::CniPlugin, millis * 1_000_000, 1);
        }
        let p50 = usual.p50(Stage::CniPlugin).unwrap();
        assert!((40_000_000..60_000_000).contains(&p50), "{p50}");
        assert_eq!(usual.p50(Stage::Image), None);
        assert_eq!(usual.medians().keys().collect::<Vec<_>>(), [&"cni-plugin"]);
    }

    #[test]
    fn marks_have_medians_unless_the_record_failed() {
        let mut write = crate::testing::write_record(8, 11, "create pods a/web");
        let mut details = Details::NONE;
        details.marks[6] = Details::units(800_000);
        let counts = |record: &Record| {
            let mut usual = Usual::default();
            counted(record, Some(&details), &mut |stage, nanos| usual.add(stage, nanos, 1));
            usual
        };
        assert!(counts(&write.record).p50(Stage::Store).unwrap().abs_diff(800_000) < 400_000);
        assert!(counts(&write.record).p50(Stage::Write).is_some());
        write.record.flags = Flags::FAILED;
        assert!(counts(&write.record).medians().is_empty());
    }

    #[test]
    fn an_earlier_process_is_remembered_until_there_is_more() {
        let mut earlier = Usual::default();
        earlier.add(Stage::Write, 1_000_000, 10);
        let mut usual = Usual::default();
        usual.remember(&earlier.text());
        usual.remember("999=1 x=y 24=z");
        assert!(usual.p50(Stage::Write).unwrap().abs_diff(1_000_000) < 500_000);
        usual.age();
        usual.add(Stage::Write, 100_000_000, 200);
        assert!(usual.p50(Stage::Write).unwrap() > 50_000_000);
    }

    #[test]
    fn every_duration_has_a_bucket() {
        for duration in [0, 1, FIRST - 1, FIRST, FIRST * 2, u64::MAX] {
            let (low, high) = bounds(bucket(duration));
            assert!(low <= duration && (duration < high || bucket(duration) == BUCKETS - 1), "{duration}");
        }
    }
}
