//! How figures are shown: a table for people, one JSON object for programs.

use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Named figures with units.
#[derive(Default)]
pub struct Report {
    rows: Vec<(String, f64, &'static str)>,
    /// Figures that are worse than they may be.
    exceeded: Vec<String>,
}

impl Report {
    /// Adds a figure, and tells whoever waits for the table.
    pub fn add(&mut self, name: &str, value: f64, unit: &'static str) {
        eprintln!("{name}: {value:.2} {unit}");
        self.rows.push((name.to_owned(), value, unit));
    }

    /// Says what else is to be known about a figure.
    pub fn note(&self, what: &str) {
        eprintln!("note: {what}");
    }

    /// Notes that a figure is worse than it may be.
    pub fn exceeds(&mut self, what: String) {
        self.exceeded.push(what);
    }

    /// Fails if a figure is worse than it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.exceeded.is_empty(), "{}", self.exceeded.join("; "));
        Ok(())
    }

    /// Prints it.
    pub fn print(&self, as_json: bool) {
        if as_json {
            let figures: Map<String, Value> =
                self.rows.iter().map(|(n, v, u)| (format!("{} [{u}]", n), json!(v))).collect();
            println!("{}", Value::Object(figures));
            return;
        }
        let width = self.rows.iter().map(|(n, ..)| n.len()).max().unwrap_or(0);
        for (name, value, unit) in &self.rows {
            println!("{name:width$}  {value:>12.2} {unit}");
        }
    }
}

/// A number of things to measure with. `CORACLE_BENCH_SCALE`, a fraction such as `0.05`, makes it smaller, for programs that were not
/// built for speed.
pub fn scaled(usual: usize) -> usize {
    static SCALE: LazyLock<f64> = LazyLock::new(|| {
        let given = std::env::var("CORACLE_BENCH_SCALE").ok();
        let scale = given.map(|text| text.parse().expect("CORACLE_BENCH_SCALE is a fraction such as 0.05"));
        scale.unwrap_or(1.0)
    });
    ((usual as f64 * *SCALE) as usize).max(1)
}

/// The value below which `part` of the samples lie.
pub fn percentile(samples: &mut [f64], part: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let at = ((samples.len() as f64 * part) as usize).min(samples.len().saturating_sub(1));
    samples.get(at).copied().unwrap_or(f64::NAN)
}
