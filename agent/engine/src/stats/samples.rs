//! Last CPU readings, to turn totals into rates.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Minimum interval for a rate, in nanoseconds: shorter ones give noise.
const MIN_SPAN: i64 = 100_000_000;

/// For the first sample of a container younger than this, the rate since its start is used.
const YOUNG: i64 = 60_000_000_000;

/// Last CPU readings, to turn totals into rates.
#[derive(Default)]
pub(super) struct Samples(Mutex<HashMap<String, Sample>>);

#[derive(Clone, Copy)]
struct Sample {
    at: i64,
    total: u64,
    rate: Option<u64>,
}

impl Samples {
    /// Nanocores since the last reading; at the first one since the start, unless that is long ago.
    pub(super) fn rate(&self, id: &str, started: i64, at: i64, total: u64) -> Option<u64> {
        let mut samples = self.0.lock();
        let per_second = |used: u64, span: i64| (u128::from(used) * 1_000_000_000 / span as u128) as u64;
        // The clock was set back: the sample cannot be used.
        match samples.get(id).copied().filter(|last| last.at <= at) {
            Some(last) if at - last.at < MIN_SPAN => last.rate,
            Some(last) => {
                let rate = Some(per_second(total.saturating_sub(last.total), at - last.at));
                samples.insert(id.to_owned(), Sample { at, total, rate });
                rate
            }
            None => {
                let rate =
                    (MIN_SPAN..YOUNG).contains(&(at - started)).then(|| per_second(total, at - started));
                samples.insert(id.to_owned(), Sample { at, total, rate });
                rate
            }
        }
    }

    pub(super) fn retain(&self, live: impl Fn(&str) -> bool) {
        self.0.lock().retain(|id, _| live(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_need_two_readings() {
        let samples = Samples::default();
        const S: i64 = 1_000_000_000;
        assert_eq!(samples.rate("a", 0, 100 * S, 0), None);
        assert_eq!(samples.rate("a", 0, 100 * S + 10_000_000, 500), None, "too soon to tell");
        assert_eq!(samples.rate("a", 0, 101 * S, 500_000_000), Some(500_000_000));
        assert_eq!(samples.rate("a", 0, 90 * S, 600_000_000), None, "the clock was set back");
        assert_eq!(samples.rate("a", 0, 91 * S, 700_000_000), Some(100_000_000));
        samples.retain(|_| false);
        assert_eq!(samples.rate("a", 0, 103 * S, 0), None);
        // One that just began has no history that could mislead.
        assert_eq!(samples.rate("b", 100 * S, 102 * S, 1_000_000_000), Some(500_000_000));
        assert_eq!(samples.rate("c", 100 * S, 100 * S, 5), None);
    }
}
