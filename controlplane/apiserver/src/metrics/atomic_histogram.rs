//! Histograms of times that are counted without a lock.

use coracle_proto::exposition::{Histogram, Page};
use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How often times were at most as long as each of some bounds, of which there are one less than `N`.
#[derive(Debug)]
pub(crate) struct AtomicHistogram<const N: usize> {
    /// Of each bound, not cumulative; the last is for longer times.
    counts: [AtomicU64; N],
    nanos: AtomicU64,
}

impl<const N: usize> Default for AtomicHistogram<N> {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| AtomicU64::new(0)), nanos: AtomicU64::new(0) }
    }
}

impl<const N: usize> AtomicHistogram<N> {
    /// Counts a time. The bounds, in seconds, ascend and are the same in every call.
    pub fn observe(&self, bounds: &[f64], time: Duration) {
        let seconds = time.as_secs_f64();
        let at = bounds.iter().position(|bound| seconds <= *bound).unwrap_or(N - 1);
        self.counts[at].fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How many times there were, and their sum in seconds.
    pub fn totals(&self) -> (u64, f64) {
        let count = self.counts.iter().map(|count| count.load(Relaxed)).sum();
        (count, self.nanos.load(Relaxed) as f64 / 1e9)
    }

    /// Writes the values, unless there are none.
    pub fn render(&self, page: &mut Page, name: &str, labels: &[(&str, &str)], bounds: &'static [f64]) {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        if counts.iter().any(|count| *count > 0) {
            let sum = self.nanos.load(Relaxed) as f64 / 1e9;
            page.histogram(name, labels, &Histogram::of_counts(bounds, &counts, sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    #[test]
    fn times_are_counted_once_and_shown_cumulative() {
        const BOUNDS: [f64; 2] = [0.01, 1.0];
        let times = AtomicHistogram::<3>::default();
        let mut page = Page::new(Form::Prometheus);
        times.render(&mut page, "t", &[], &BOUNDS);
        for millis in [5, 500, 2000] {
            times.observe(&BOUNDS, Duration::from_millis(millis));
        }
        times.render(&mut page, "t", &[], &BOUNDS);
        let shown = "t_bucket{le=\"0.01\"} 1\nt_bucket{le=\"1\"} 2\nt_bucket{le=\"+Inf\"} 3\nt_sum 2.505\nt_count 3\n";
        assert_eq!(page.finish(), shown);
    }
}
