//! Two servers on the same cores, one of which records nothing: each round creates the same objects on one and on the other.

use super::ratio::{Limit, median, of_memory, of_pairs};
use crate::api::{PATH, cpu, disk, object, objects, rss, send_all};
use crate::report::{Report, percentile};
use anyhow::Context;
use bytes::Bytes;
use coracle_tests::client::Target;
use coracle_tests::server::Server;
use coracle_timeline::{Block, Keep, Limits, Position};
use coracle_trace::Stage;
use std::path::Path;
use std::time::Duration;

/// Single rounds differ by a tenth; fewer would not show a difference of a hundredth.
const ROUNDS: usize = 120;
/// After how long without work a server counts as idle.
const IDLE: Duration = Duration::from_secs(10);
/// After a round its records are written: that belongs to what it costs.
const SETTLED: Duration = Duration::from_millis(600);
/// Blocks that are read at once.
const CHUNK: usize = 1 << 20;

struct Measured {
    server: Server,
    target: Target,
    rounds: Vec<Round>,
}

struct Round {
    per_second: f64,
    cpu: f64,
    written: f64,
}

/// Measures creates, CPU and memory.
pub async fn run(report: &mut Report) -> anyhow::Result<()> {
    let mut with = Measured::start(&[])?;
    let mut without = Measured::start(&["--trace-size", "0"])?;
    tokio::time::sleep(IDLE).await;
    let idle = [rss(with.server.pid()), rss(without.server.pid())];
    report.add("server idle with recording", idle[0], "MiB");
    report.add("server idle without", idle[1], "MiB");
    of_memory(report, "server idle", idle[0] - idle[1]);
    // Neither is always the first.
    for number in 0..ROUNDS {
        let (first, second) =
            if number % 2 == 0 { (&mut with, &mut without) } else { (&mut without, &mut with) };
        first.round(number).await?;
        second.round(number).await?;
    }
    let both = (&with, &without);
    compare(report, ("creates", "/s", Limit::Smaller), both, |round| round.per_second);
    compare(report, ("server CPU per create", "µs", Limit::None), both, |round| round.cpu);
    compare(report, ("server disk writes per create", "B", Limit::None), both, |round| round.written);
    report.add("server after, with recording", rss(with.server.pid()), "MiB");
    report.add("server after, without", rss(without.server.pid()), "MiB");
    let mut connection = with.target.connect().await?;
    let page = connection.call("GET", "/metrics", Bytes::new()).await?;
    let page = String::from_utf8_lossy(&page).into_owned();
    for (name, metric) in
        [("records written", "coracle_trace_records_total"), ("records lost", "coracle_trace_lost_total")]
    {
        let value = page.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse::<f64>().ok());
        report.add(name, value.with_context(|| metric.to_owned())?, "");
    }
    tokio::task::block_in_place(|| with.server.stop());
    store_times(report, with.server.data_dir())
}

fn compare(
    report: &mut Report,
    (name, unit, limit): (&str, &'static str, Limit),
    (with, without): (&Measured, &Measured),
    figure: impl Fn(&Round) -> f64,
) {
    let figures = |measured: &Measured| -> Vec<f64> { measured.rounds.iter().map(&figure).collect() };
    let (with, without) = (figures(with), figures(without));
    report.add(&format!("{name}, with recording"), median(&with), unit);
    report.add(&format!("{name}, without"), median(&without), unit);
    let pairs: Vec<(f64, f64)> = with.into_iter().zip(without).collect();
    of_pairs(report, name, &pairs, limit);
}

impl Measured {
    fn start(flags: &[&str]) -> anyhow::Result<Self> {
        let server = tokio::task::block_in_place(|| Server::with(flags));
        let target = Target::new(server.data_dir(), &server.url())?;
        Ok(Self { server, target, rounds: Vec::new() })
    }

    /// Creates all objects, and deletes them again outside of the measurement.
    async fn round(&mut self, number: usize) -> anyhow::Result<()> {
        let pid = self.server.pid();
        let (used, written) = (cpu(pid), disk(pid));
        let create = move |i: usize| ("POST", PATH.to_owned(), object(&format!("r{number}-{i}"), "x"));
        let (took, _) = send_all(&self.target, create).await?;
        tokio::time::sleep(SETTLED).await;
        let per_create = |sum: f64| sum / objects() as f64;
        self.rounds.push(Round {
            per_second: objects() as f64 / took.as_secs_f64(),
            cpu: per_create(cpu(pid) - used) * 1e6,
            written: per_create(disk(pid) - written),
        });
        self.target.connect().await?.call("DELETE", PATH, Bytes::new()).await?;
        tokio::time::sleep(SETTLED).await;
        Ok(())
    }
}

/// How long the store took to sync a batch, by the timeline of a server that has stopped.
fn store_times(report: &mut Report, data_dir: &Path) -> anyhow::Result<()> {
    let keep = Keep::open(&data_dir.join("trace"), Limits::default())?;
    let (mut syncs, mut sizes) = (Vec::new(), Vec::new());
    let mut position = Position(0);
    loop {
        let spooled = keep.blocks_after(position, CHUNK)?;
        if spooled.bytes.is_empty() {
            break;
        }
        position = spooled.next;
        for block in Block::split(&spooled.bytes)? {
            for stored in
                block.records()?.into_iter().filter(|stored| stored.record.stage == Stage::StoreBatch)
            {
                let marks = stored.details.unwrap_or_default();
                if let (Some(staged), Some(synced)) = (marks.mark(0), marks.mark(1)) {
                    syncs.push(synced.saturating_sub(staged) as f64 / 1e6);
                    sizes.push(f64::from(stored.record.code) + 1.0);
                }
            }
        }
    }
    report.add("store sync p50", percentile(&mut syncs, 0.5), "ms");
    report.add("store sync p99", percentile(&mut syncs, 0.99), "ms");
    report.add("revisions per sync p50", percentile(&mut sizes, 0.5), "");
    Ok(())
}
