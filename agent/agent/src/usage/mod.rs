//! Resource usage of the node and its pods, sampled every few seconds to compute rates.

// The machine as a whole.
pub mod machine;
// As `/stats/summary` shows it.
pub mod summary;
// As Prometheus reads it.
pub mod series;

use coracle_proto::cri;
use jiff::Timestamp;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coracle_engine::runtime::Runtime;
use machine::MachineUsage;

/// Between readings.
pub const PERIOD: Duration = Duration::from_secs(5);
/// Shorter spans than this give noise, not a rate.
const MIN_SPAN: i64 = 1_000_000_000;

/// One look at everything.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// When.
    pub at: Timestamp,
    /// The machine.
    pub machine: MachineUsage,
    /// Pods with their containers; rates are filled in.
    pub pods: Vec<cri::PodSandboxStats>,
    /// The runtime could not be asked.
    pub failed: bool,
}

/// The newest reading.
#[derive(Clone, Default)]
pub struct Usage(Arc<RwLock<Arc<Reading>>>);

impl Usage {
    /// The newest reading; an empty one right after the start.
    pub fn latest(&self) -> Arc<Reading> {
        self.0.read().clone()
    }

    /// Reads for as long as the node runs; `data` is on the node's file system.
    pub async fn run(self, runtime: Arc<dyn Runtime>, data: PathBuf) {
        let mut rates = Rates::default();
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let reading = read(&*runtime, &data, &mut rates).await;
            *self.0.write() = Arc::new(reading);
        }
    }
}

async fn read(runtime: &dyn Runtime, data: &Path, rates: &mut Rates) -> Reading {
    let stats = runtime.list_pod_sandbox_stats(None).await;
    let failed = stats.is_err();
    let mut pods = stats.unwrap_or_default();
    rates.begin();
    for pod in &mut pods {
        let id = pod.attributes.as_ref().map(|a| a.id.clone()).unwrap_or_default();
        let Some(linux) = &mut pod.linux else { continue };
        rates.fill(&id, linux.cpu.as_mut());
        for container in &mut linux.containers {
            let id = container.attributes.as_ref().map(|a| a.id.clone()).unwrap_or_default();
            rates.fill(&id, container.cpu.as_mut());
        }
    }
    let mut machine = machine::read(data);
    machine.cpu_rate = rates.rate("", nanos(), machine.cpu_total);
    rates.end();
    Reading { at: Timestamp::now(), machine, pods, failed }
}

fn nanos() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// Totals of the reading before, to turn totals into rates. What is not seen in a round is forgotten.
#[derive(Default)]
struct Rates {
    before: HashMap<String, (i64, u64, Option<u64>)>,
    now: HashMap<String, (i64, u64, Option<u64>)>,
}

impl Rates {
    fn begin(&mut self) {
        self.now.clear();
    }

    fn end(&mut self) {
        std::mem::swap(&mut self.before, &mut self.now);
    }

    /// Nanocores since the reading before; none at the first.
    fn rate(&mut self, id: &str, at: i64, total: u64) -> Option<u64> {
        // A reading from the future is of no use: the clock was set back.
        let before = self.before.get(id).copied().filter(|(was_at, ..)| *was_at <= at);
        let rate = before.and_then(|(was_at, was, rate)| {
            let span = at - was_at;
            if span < MIN_SPAN {
                return rate;
            }
            let used = u128::from(total.saturating_sub(was)) * 1_000_000_000;
            u64::try_from(used / u128::from(span.unsigned_abs())).ok()
        });
        // A reading that is too young is not a base for the next one.
        let kept = before.filter(|(was_at, ..)| at - was_at < MIN_SPAN).unwrap_or((at, total, rate));
        self.now.insert(id.to_owned(), kept);
        rate
    }

    /// Puts the rate in. What is seen for the first time keeps what the runtime says.
    fn fill(&mut self, id: &str, cpu: Option<&mut cri::CpuUsage>) {
        let Some(cpu) = cpu else { return };
        let Some(total) = cpu.usage_core_nano_seconds.as_ref().map(|total| total.value) else { return };
        if let Some(value) = self.rate(id, cpu.timestamp, total) {
            cpu.usage_nano_cores = Some(cri::UInt64Value { value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_need_two_readings() {
        const S: i64 = 1_000_000_000;
        let mut rates = Rates::default();
        let mut round = |at: i64, total: u64| {
            rates.begin();
            let rate = rates.rate("a", at, total);
            rates.end();
            rate
        };
        assert_eq!(round(10 * S, 0), None);
        assert_eq!(round(20 * S, 5_000_000_000), Some(500_000_000));
        assert_eq!(round(20 * S + 5, 5_000_000_001), Some(500_000_000), "too soon to tell anew");
        assert_eq!(round(30 * S, 5_000_000_000), Some(0));
        assert_eq!(round(3 * S, 6_000_000_000), None, "the clock was set back");
        assert_eq!(round(5 * S, 6_500_000_000), Some(250_000_000));
        rates.begin();
        rates.end();
        assert_eq!(rates.rate("a", 50 * S, 1), None, "forgotten when it was not seen");
    }
}
