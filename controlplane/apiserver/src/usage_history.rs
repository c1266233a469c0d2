//! How much CPU and memory containers used in the past: counts in buckets that grow exponentially, by image, container and
//! namespace. Bounded in time by a window, and in memory by the number of entries.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A bucket is wider than the one before it by this factor: amounts are known to within 5 %.
const GROWTH: f64 = 1.05;
/// The last bucket, with everything beyond it: ten million CPUs, or 14 TiB.
const LAST: u16 = 480;
/// Parts of the window. They are forgotten as a whole.
const SLICES: u64 = 8;
/// Images with a longer name have no history: names of registries allow 255 characters, a tag 128 and a digest 135.
const LONGEST_IMAGE: usize = 1024;
/// The most bytes of JSON that a history takes beside its entries, and an entry beside its texts and slices.
const ENVELOPE: usize = 128;

/// What a container used at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Whose usage.
    pub of: Entry,
    /// Thousandths of a CPU.
    pub milli_cpus: u64,
    /// Memory that cannot be reclaimed, in KiB.
    pub kibibytes: u64,
}

/// A container of an image in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// Image, as pods name it.
    pub image: String,
    /// Name of the container.
    pub container: String,
    /// Namespace of the pod.
    pub namespace: String,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// In thousandths of a CPU.
    Cpu,
    /// In KiB.
    Memory,
}

/// An amount that is seldom exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// In the unit of the resource, rounded up.
    pub amount: u64,
    /// How many samples it is from.
    pub samples: u64,
}

/// Counts by number of the bucket.
type Counts = BTreeMap<u16, u32>;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Slice {
    number: u64,
    cpu: Counts,
    memory: Counts,
}

/// The slices of an entry, the newest last.
type Series = VecDeque<Slice>;

/// The history.
pub struct UsageHistory {
    window: Duration,
    most: usize,
    entries: Mutex<BTreeMap<Entry, Series>>,
}

impl UsageHistory {
    /// An empty history of at most `most` entries.
    pub fn new(window: Duration, most: usize) -> Self {
        Self { window, most, entries: Mutex::default() }
    }

    /// The slice of a time, in seconds since 1970.
    fn slice(&self, now: u64) -> u64 {
        now / (self.window.as_secs() / SLICES).max(1)
    }

    /// Adds samples. Entries that were not seen for the longest time make room for others.
    pub fn record(&self, samples: Vec<Sample>, now: u64) {
        let number = self.slice(now);
        let mut entries = self.entries.lock();
        for sample in samples.into_iter().filter(|sample| sample.of.image.len() <= LONGEST_IMAGE) {
            let series = entries.entry(sample.of).or_default();
            if series.back().is_none_or(|slice| slice.number != number) {
                series.push_back(Slice { number, ..Slice::default() });
            }
            if let Some(slice) = series.back_mut() {
                count(&mut slice.cpu, sample.milli_cpus);
                count(&mut slice.memory, sample.kibibytes);
            }
        }
        self.forget(&mut entries, number);
    }

    /// Drops what is too old or too much.
    fn forget(&self, entries: &mut BTreeMap<Entry, Series>, number: u64) {
        entries.retain(|_, series| {
            series.retain(|slice| is_within(slice, number));
            !series.is_empty()
        });
        let excess = entries.len().saturating_sub(self.most);
        if excess > 0 {
            let mut oldest: Vec<(u64, usize, Entry)> = entries
                .iter()
                .map(|(entry, series)| (last_seen(series), series.len(), entry.clone()))
                .collect();
            oldest.sort();
            oldest.iter().take(excess).for_each(|(.., entry)| drop(entries.remove(entry)));
        }
    }

    /// The amount that `percentile` of a hundred samples do not exceed, for containers of the image in a namespace or in all.
    pub fn estimate(
        &self,
        (image, container): (&str, &str),
        namespace: Option<&str>,
        resource: Resource,
        percentile: u8,
        now: u64,
    ) -> Option<Estimate> {
        let number = self.slice(now);
        let first = Entry {
            image: image.to_owned(),
            container: container.to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
        };
        let entries = self.entries.lock();
        let same = entries.range(first..).take_while(|(entry, _)| {
            let ours = namespace.is_none_or(|namespace| entry.namespace == namespace);
            entry.image == image && entry.container == container && ours
        });
        let mut all = Counts::new();
        for slice in same.flat_map(|(_, series)| series).filter(|slice| is_within(slice, number)) {
            let counts = match resource {
                Resource::Cpu => &slice.cpu,
                Resource::Memory => &slice.memory,
            };
            for (bucket, times) in counts {
                let sum = all.entry(*bucket).or_default();
                *sum = sum.saturating_add(*times);
            }
        }
        drop(entries);
        nearest(&all, percentile)
    }

    /// What is to be kept: of all entries those that were seen last, as many as fit into `most` bytes of JSON.
    pub fn saved(&self, most: usize) -> Saved {
        let slice_seconds = (self.window.as_secs() / SLICES).max(1);
        let mut left = most.saturating_sub(ENVELOPE);
        let entries = self.entries.lock();
        let mut newest: Vec<(&Entry, &Series)> = entries.iter().collect();
        newest.sort_by_key(|(_, series)| Reverse(last_seen(series)));
        let fits = |(entry, series): &(&Entry, &Series)| {
            let rest = left.checked_sub(json_size(entry, series));
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        let kept = newest.into_iter().take_while(fits).map(|(entry, series)| (entry.clone(), series.clone()));
        Saved { slice_seconds, entries: kept.collect() }
    }

    /// Takes over what was kept, unless it was for another window.
    pub fn restore(&self, saved: Saved, now: u64) {
        if saved.slice_seconds != (self.window.as_secs() / SLICES).max(1) {
            return;
        }
        let mut entries = self.entries.lock();
        entries.extend(saved.entries);
        self.forget(&mut entries, self.slice(now));
    }
}

/// A history on disk.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    slice_seconds: u64,
    entries: Vec<(Entry, Series)>,
}

/// The newest slice.
fn last_seen(series: &Series) -> u64 {
    series.back().map_or(0, |slice| slice.number)
}

/// The most bytes that an entry takes in JSON: a byte of a text becomes six at most, a count `"480":4294967295,`.
fn json_size(entry: &Entry, series: &Series) -> usize {
    let texts = entry.image.len() + entry.container.len() + entry.namespace.len();
    let counts: usize = series.iter().map(|slice| slice.cpu.len() + slice.memory.len()).sum();
    ENVELOPE + 6 * texts + 64 * series.len() + 17 * counts
}

fn is_within(slice: &Slice, now: u64) -> bool {
    slice.number <= now && now - slice.number < SLICES
}

fn count(counts: &mut Counts, amount: u64) {
    let exponent = (amount.max(1) as f64).ln() / GROWTH.ln();
    // Rounding must not put the bound of a bucket into the next one.
    let bucket = ((exponent - 1e-9).ceil().max(0.0) as u16).min(LAST);
    let times = counts.entry(bucket).or_default();
    *times = times.saturating_add(1);
}

/// The upper bound of the bucket with the nearest rank.
fn nearest(counts: &Counts, percentile: u8) -> Option<Estimate> {
    let samples: u64 = counts.values().map(|times| u64::from(*times)).sum();
    let rank = (samples * u64::from(percentile.min(100))).div_ceil(100).max(1);
    let mut seen = 0;
    let bucket = counts.iter().find_map(|(bucket, times)| {
        seen += u64::from(*times);
        (seen >= rank).then_some(*bucket)
    })?;
    let bound = GROWTH.powi(i32::from(bucket));
    Some(Estimate { amount: (bound - 1e-9).ceil() as u64, samples })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DAY: u64 = 24 * 3600;

    fn sample(namespace: &str, milli_cpus: u64) -> Sample {
        let of = Entry { image: "i:1".into(), container: "c".into(), namespace: namespace.into() };
        Sample { of, milli_cpus, kibibytes: milli_cpus * 1024 }
    }

    fn history(most: usize) -> UsageHistory {
        UsageHistory::new(Duration::from_secs(8 * DAY), most)
    }

    fn cpu(history: &UsageHistory, namespace: Option<&str>, percentile: u8, now: u64) -> Option<(u64, u64)> {
        let found = history.estimate(("i:1", "c"), namespace, Resource::Cpu, percentile, now);
        found.map(|found| (found.amount, found.samples))
    }

    #[test]
    fn percentiles_of_one_namespace_or_of_all() {
        let history = history(10);
        history.record((1..=100).map(|n| sample("a", n)).collect(), DAY);
        history.record(vec![sample("b", 1000)], DAY);
        let (amount, samples) = cpu(&history, Some("a"), 90, DAY).unwrap();
        assert!((90..=95).contains(&amount) && samples == 100, "{amount} of {samples}");
        assert!((1000..=1050).contains(&cpu(&history, None, 100, DAY).unwrap().0));
        assert_eq!(cpu(&history, Some("c"), 90, DAY), None);
        assert_eq!(history.estimate(("i:2", "c"), None, Resource::Cpu, 90, DAY), None, "another image");
        let memory = history.estimate(("i:1", "c"), Some("b"), Resource::Memory, 90, DAY).unwrap();
        assert!((1_024_000..=1_075_200).contains(&memory.amount), "{memory:?}");
    }

    #[test]
    fn what_is_old_does_not_count() {
        let history = history(10);
        history.record(vec![sample("a", 500)], DAY);
        history.record(vec![sample("a", 10)], 5 * DAY);
        assert_eq!(cpu(&history, Some("a"), 100, 5 * DAY).unwrap().1, 2);
        assert_eq!(cpu(&history, Some("a"), 100, 10 * DAY).unwrap().1, 1);
        assert_eq!(cpu(&history, Some("a"), 100, 20 * DAY), None);
    }

    #[test]
    fn the_number_of_entries_is_limited() {
        let history = history(2);
        history.record(vec![sample("a", 1)], DAY);
        history.record(vec![sample("b", 1)], 2 * DAY);
        history.record(vec![sample("c", 1)], 3 * DAY);
        let known = |namespace| cpu(&history, Some(namespace), 90, 3 * DAY).is_some();
        assert_eq!(["a", "b", "c"].map(known), [false, true, true]);
    }

    #[test]
    fn what_is_kept_is_limited() {
        let history = history(1000);
        for number in 0..500 {
            let namespace = format!("\u{1}{number:03}");
            history.record((0..50).map(|n| sample(&namespace, 1 << n)).collect(), DAY);
        }
        history.record(vec![sample("newest", 1)], 5 * DAY);
        for most in [0, 1000, 10_000, 100_000, 10_000_000] {
            let saved = history.saved(most);
            let size = serde_json::to_string(&saved).unwrap().len();
            assert!(saved.entries.is_empty() || size <= most, "{size} of {most}");
            let is_newest = |(entry, _): &(Entry, Series)| entry.namespace == "newest";
            assert_eq!(saved.entries.first().is_some_and(is_newest), most > 0, "{most}");
        }
        assert_eq!(history.saved(10_000_000).entries.len(), 501);
        let of = Entry { image: "i".repeat(LONGEST_IMAGE + 1), ..sample("a", 1).of };
        history.record(vec![Sample { of, milli_cpus: 1, kibibytes: 1 }], 5 * DAY);
        assert_eq!(history.saved(10_000_000).entries.len(), 501, "the name of an image is too long");
    }

    #[test]
    fn it_is_kept_and_restored() {
        let first = history(10);
        first.record(vec![sample("a", 7)], DAY);
        let text = serde_json::to_string(&first.saved(1 << 20)).unwrap();
        let second = history(10);
        second.restore(serde_json::from_str(&text).unwrap(), DAY);
        assert_eq!(cpu(&second, Some("a"), 90, DAY), cpu(&first, Some("a"), 90, DAY));
        let other = UsageHistory::new(Duration::from_secs(DAY), 10);
        other.restore(serde_json::from_str(&text).unwrap(), DAY);
        assert_eq!(cpu(&other, Some("a"), 90, DAY), None, "slices of another length");
    }
}
