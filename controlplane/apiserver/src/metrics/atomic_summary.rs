//! Quantiles of the times of the last hours, counted without a lock.

use coracle_proto::exposition::Page;
use std::array;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Two buckets are a factor of 2 apart after so many; a quantile is at most an eighth of its value off.
const FINE: usize = 4;
/// Shorter times count as this power of two nanoseconds, about a microsecond.
const LOWEST: u32 = 10;
/// Up to about two minutes; longer times are in the last one.
const BUCKETS: usize = 27 * FINE;
/// Times are counted for this long, and are shown for as long after that: as upstream, five hours in all.
const WINDOW: Duration = Duration::from_secs(5 * 60 * 60 / 2);
/// The quantiles that are shown, as upstream shows them.
const QUANTILES: [(&str, f64); 3] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99)];

/// How often times were about as long as each of some values.
#[derive(Debug)]
pub(crate) struct AtomicSummary {
    begun: Instant,
    /// The number of the window that is counted in now.
    window: AtomicU64,
    /// Those with even and those with odd numbers.
    counts: [[AtomicU32; BUCKETS]; 2],
}

impl Default for AtomicSummary {
    fn default() -> Self {
        let counts = array::from_fn(|_| array::from_fn(|_| AtomicU32::new(0)));
        Self { begun: Instant::now(), window: AtomicU64::new(0), counts }
    }
}

impl AtomicSummary {
    /// Counts a time that was measured now.
    pub fn observe(&self, now: Instant, time: Duration) {
        let window = self.turn(now);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[window][bucket(nanos)].fetch_add(1, Relaxed);
    }

    /// Writes the quantiles, and how many times there were ever and how long these are together.
    pub fn render(
        &self,
        page: &mut Page,
        now: Instant,
        name: &str,
        labels: &[(&str, &str)],
        (count, sum): (u64, f64),
    ) {
        self.turn(now);
        for (text, quantile) in QUANTILES {
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("quantile", text)]).collect();
            page.value(name, &labels, self.quantile(quantile));
        }
        page.value(&format!("{name}_sum"), labels, sum);
        page.value(&format!("{name}_count"), labels, count);
    }

    /// Begins a window if the one before is over; which of the two is counted in.
    fn turn(&self, now: Instant) -> usize {
        let number = now.saturating_duration_since(self.begun).as_secs() / WINDOW.as_secs();
        let before = self.window.load(Relaxed);
        let is_next =
            number > before && self.window.compare_exchange(before, number, Relaxed, Relaxed).is_ok();
        if is_next {
            // Both are old if nothing was counted for long.
            let old =
                if number - before > 1 { 0..2 } else { (number % 2) as usize..(number % 2) as usize + 1 };
            self.counts[old].iter().flatten().for_each(|count| count.store(0, Relaxed));
        }
        (number % 2) as usize
    }

    /// In seconds; not a number if nothing was counted.
    fn quantile(&self, quantile: f64) -> f64 {
        let count = |at: usize| self.counts.iter().map(|of| u64::from(of[at].load(Relaxed))).sum::<u64>();
        let counts: Vec<u64> = (0..BUCKETS).map(count).collect();
        let wanted = (quantile * counts.iter().sum::<u64>() as f64).ceil() as u64;
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= wanted && wanted > 0
        });
        found.map_or(f64::NAN, middle)
    }
}

fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(1 << LOWEST);
    let power = nanos.ilog2();
    let part = (nanos >> (power - FINE.ilog2())) as usize % FINE;
    ((power - LOWEST) as usize * FINE + part).min(BUCKETS - 1)
}

/// The middle of a bucket in seconds.
fn middle(bucket: usize) -> f64 {
    let power = 2_f64.powi(LOWEST as i32 + (bucket / FINE) as i32);
    let parts = (bucket % FINE) as f64 + 0.5;
    power * (1.0 + parts / FINE as f64) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    #[test]
    fn quantiles_are_within_an_eighth() {
        let summary = AtomicSummary::default();
        for micros in 1..=1000 {
            summary.observe(summary.begun, Duration::from_micros(micros));
        }
        for (_, quantile) in QUANTILES {
            let (found, exact) = (summary.quantile(quantile), quantile / 1e3);
            assert!((found - exact).abs() <= exact / 8.0, "{quantile}: {found}");
        }
        for time in [Duration::ZERO, Duration::MAX] {
            summary.observe(summary.begun, time);
        }
    }

    #[test]
    fn old_times_are_forgotten() {
        let summary = AtomicSummary::default();
        let shown = |after: Duration| {
            let mut page = Page::new(Form::Prometheus);
            summary.render(&mut page, summary.begun + after, "t", &[("a", "b")], (1, 0.5));
            page.finish()
        };
        summary.observe(summary.begun, Duration::from_millis(500));
        let text = shown(WINDOW);
        assert!(text.contains("t{a=\"b\",quantile=\"0.5\"} 0.5"), "{text}");
        assert!(text.ends_with("t_sum{a=\"b\"} 0.5\nt_count{a=\"b\"} 1\n"), "{text}");
        assert!(shown(WINDOW * 2).contains("t{a=\"b\",quantile=\"0.99\"} NaN\n"));
    }
}
