//! How much recording changes a figure: ratios of what was measured with and without it, with an interval by bootstrap.

use crate::report::{Report, percentile};

const RESAMPLES: usize = 2000;
/// By how many percent a figure may be worse with recording.
const WORSE: f64 = 2.0;
/// By how many MiB the memory of an idle program may be larger.
const LARGER: f64 = 3.0;

/// What recording must not do to a figure.
#[derive(Clone, Copy)]
pub enum Limit {
    /// Make it smaller.
    Smaller,
    /// Make it larger.
    Larger,
    /// Nothing: it is only shown.
    None,
}

/// Adds the median of the ratios of pairs that were measured one after the other.
pub fn of_pairs(report: &mut Report, name: &str, pairs: &[(f64, f64)], limit: Limit) {
    let ratios: Vec<f64> = pairs.iter().map(|(with, without)| with / without).collect();
    add(report, (name, limit), median(&ratios), |dice| median(&dice.resample(&ratios)));
}

/// Adds the ratio of the medians of two groups.
pub fn of_groups(report: &mut Report, name: &str, with: &[f64], without: &[f64], limit: Limit) {
    let ratio = |with: &[f64], without: &[f64]| median(with) / median(without);
    let resampled = |dice: &mut Dice| ratio(&dice.resample(with), &dice.resample(without));
    add(report, (name, limit), ratio(with, without), resampled);
}

/// Adds by how many MiB an idle program is larger.
pub fn of_memory(report: &mut Report, name: &str, difference: f64) {
    report.add(&format!("{name}, difference"), difference, "MiB");
    exceeds(report, difference > LARGER, || format!("{name}: {difference:.2} MiB more by recording"));
}

fn add(
    report: &mut Report,
    (name, limit): (&str, Limit),
    ratio: f64,
    mut resampled: impl FnMut(&mut Dice) -> f64,
) {
    let mut dice = Dice(1);
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| resampled(&mut dice)).collect();
    let percent = |ratio: f64| (ratio - 1.0) * 1e2;
    let (from, to) = (percent(percentile(&mut ratios, 0.025)), percent(percentile(&mut ratios, 0.975)));
    report.add(&format!("{name}, change by recording"), percent(ratio), "%");
    report.add(&format!("   {name}, 95 % interval from"), from, "%");
    report.add(&format!("   {name}, 95 % interval to"), to, "%");
    let (is_worse, is_certain) = match limit {
        Limit::Smaller => (percent(ratio) < -WORSE, from >= -WORSE),
        Limit::Larger => (percent(ratio) > WORSE, to <= WORSE),
        Limit::None => return,
    };
    let changed = format!("{:.2} % by recording ({from:.2} to {to:.2})", percent(ratio));
    if !is_worse && !is_certain {
        report.note(&format!("{name}: {changed}: within the limit of {WORSE} %, but the interval is not"));
    }
    exceeds(report, is_worse, || format!("{name}: changed by {changed}"));
}

/// Programs that were not built for speed say nothing about what recording costs.
fn exceeds(report: &mut Report, is_worse: bool, what: impl FnOnce() -> String) {
    if is_worse && !cfg!(debug_assertions) {
        report.exceeds(what());
    }
}

/// The value in the middle.
pub fn median(values: &[f64]) -> f64 {
    percentile(&mut values.to_vec(), 0.5)
}

/// Numbers that look random and are the same in each run (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    /// Below a bound that is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn resample(&mut self, values: &[f64]) -> Vec<f64> {
        (0..values.len()).map(|_| values[self.below(values.len())]).collect()
    }
}
