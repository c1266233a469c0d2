//! Backup and restore of a cluster with 50,000 ConfigMaps of 1 KiB, while clients write 1,000 times a second; first on the embedded
//! store, then on etcd. What is restored is compared with the store at the revision of the backup, byte by byte. Beside it what the
//! machine needs for the same bytes: to compress and write them, and to copy the file.

use crate::api::{self, PATH, object, rss, send_all};
use crate::report::{Report, percentile, scaled};
use anyhow::Context as _;
use coracle_backup::format::Part;
use coracle_store::{Datastore, EtcdOptions, open};
use coracle_tests::client::Target;
use coracle_tests::etcd::Etcd;
use coracle_tests::program;
use coracle_tests::server::Server;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WRITERS: u64 = 8;
/// Backups, of which the median counts.
const ROUNDS: usize = 5;
const QUIET: Duration = Duration::from_secs(5);
/// The part of the wanted writes that must be made.
const REACHED: f64 = 0.95;

fn objects() -> usize {
    scaled(50_000)
}

/// Writes per second.
fn writes() -> u64 {
    scaled(1_000) as u64
}

/// The store of the server, and what backups are restored into.
enum Stores {
    Embedded,
    /// Two of them: that of the server, and a new one.
    Etcd(Etcd, Etcd),
}

impl Stores {
    /// What its figures begin with.
    fn prefix(&self) -> &'static str {
        match self {
            Self::Embedded => "",
            Self::Etcd(..) => "etcd: ",
        }
    }

    /// `--datastore` of the server.
    fn of_server(&self) -> String {
        match self {
            Self::Embedded => "embedded".to_owned(),
            Self::Etcd(old, _) => format!("etcd://{}", old.address),
        }
    }

    /// Options of a restore.
    fn restored_into(&self, round: usize) -> Vec<String> {
        match self {
            Self::Embedded => Vec::new(),
            Self::Etcd(_, new) => {
                let datastore = format!("etcd://{}", new.address);
                vec!["--datastore".into(), datastore, "--etcd-prefix".into(), format!("/round-{round}")]
            }
        }
    }

    /// The store of the server, and what the first round has restored.
    fn compared(&self) -> (Datastore, Datastore) {
        let etcd = |etcd: &Etcd, prefix: &str| {
            let (endpoints, prefix) = (vec![format!("http://{}", etcd.address)], prefix.to_owned());
            Datastore::Etcd(EtcdOptions { endpoints, prefix, ..EtcdOptions::default() })
        };
        match self {
            Self::Embedded => (Datastore::Embedded, Datastore::Embedded),
            Self::Etcd(old, new) => (etcd(old, ""), etcd(new, "/round-0")),
        }
    }
}

/// Everything, on either store.
pub async fn run() -> anyhow::Result<Report> {
    let mut report = Report::default();
    report.add("objects", objects() as f64, "");
    report.add("writes wanted", writes() as f64, "/s");
    for stores in [Stores::Embedded, Stores::Etcd(Etcd::start(), Etcd::start())] {
        measured(&mut report, &stores).await?;
    }
    Ok(report)
}

async fn measured(report: &mut Report, stores: &Stores) -> anyhow::Result<()> {
    let mut add =
        |name: &str, value: f64, unit| report.add(&format!("{}{name}", stores.prefix()), value, unit);
    let mut server = Server::with(&["--datastore", &stores.of_server()]);
    let target = Target::new(server.data_dir(), &server.url())?;
    for first in (0..objects()).step_by(api::objects()) {
        let create = move |i: usize| ("POST", PATH.to_owned(), object(&format!("o{}", first + i), "x"));
        send_all(&target, create).await?;
    }
    let dir = tempfile::tempdir()?;
    add("RSS before", rss(server.pid()), "MiB");

    let (mut quiet, rate) = write_during(&target, async {
        tokio::time::sleep(QUIET).await;
        Ok(())
    })
    .await?;
    add("writes without a backup", rate, "/s");
    reached(rate)?;
    add("write p99 without a backup", percentile(&mut quiet, 0.99), "ms");
    let (mut times, mut latencies, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut file, mut revision) = (dir.path().to_owned(), 0);
    for round in 0..ROUNDS {
        file = dir.path().join(format!("backup-{round}"));
        let (path, data_dir) = (file.clone(), server.data_dir().to_owned());
        let mut took = 0.0;
        let saving = async {
            (took, revision) = tokio::task::spawn_blocking(move || save(&path, &data_dir)).await??;
            anyhow::Ok(())
        };
        let (each, rate) = write_during(&target, saving).await?;
        times.push(took);
        latencies.extend(each);
        rates.push(rate);
    }
    let (backup, rate) = (percentile(&mut times, 0.5), percentile(&mut rates, 0.5));
    add("backup under load", backup, "s");
    add("writes during backups", rate, "/s");
    reached(rate)?;
    add("write p99 during backups", percentile(&mut latencies, 0.99), "ms");
    add("write worst during backups", percentile(&mut latencies, 1.0), "ms");
    add("RSS after", rss(server.pid()), "MiB");
    add("size of the backup", file.metadata()?.len() as f64 / f64::from(1 << 20), "MiB");

    let floor = compressed(&file, &dir.path().join("floor"))?;
    add("floor: zstd of the same bytes, write, fsync", floor, "s");
    add("backup / floor", backup / floor, "");
    let begun = Instant::now();
    std::fs::copy(&file, dir.path().join("copy"))?;
    File::open(dir.path().join("copy"))?.sync_all()?;
    add("floor: copy of the backup, fsync", begun.elapsed().as_secs_f64(), "s");

    server.stop();
    let mut restores = Vec::new();
    for round in 0..ROUNDS {
        let (new, into) = (dir.path().join(format!("new-{round}")), stores.restored_into(round));
        let into: Vec<&str> = into.iter().map(String::as_str).collect();
        let begun = Instant::now();
        coracle(&[&["restore", text(&file)?, "--data-dir", text(&new)?], &into[..]].concat())?;
        restores.push(begun.elapsed().as_secs_f64());
        if round == 0 {
            let same = compared(stores, server.data_dir(), &new, revision).await?;
            add("objects that are the same, byte by byte", same as f64, "");
        }
        std::fs::remove_dir_all(&new)?;
    }
    let restore = percentile(&mut restores, 0.5);
    add("restore", restore, "s");
    add("restore / floor of the backup", restore / floor, "");
    Ok(())
}

/// Figures of a load that was not reached say nothing.
fn reached(rate: f64) -> anyhow::Result<()> {
    let least = REACHED * writes() as f64;
    anyhow::ensure!(rate >= least, "{rate:.0} writes/s, at least {least:.0} are due");
    Ok(())
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path is text")
}

fn coracle(args: &[&str]) -> anyhow::Result<Value> {
    let output = Command::new(program("coracle")).args(args).args(["-o", "json"]).output()?;
    anyhow::ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// How long the whole command takes, and the revision of the backup.
fn save(file: &Path, data_dir: &Path) -> anyhow::Result<(f64, u64)> {
    let begun = Instant::now();
    let saved = coracle(&["backup", "save", text(file)?, "--data-dir", text(data_dir)?])?;
    let took = begun.elapsed().as_secs_f64();
    anyhow::ensure!(saved["keys"].as_u64().unwrap_or_default() >= objects() as u64, "{saved}");
    Ok((took, saved["revision"].as_u64().context("the revision of the backup")?))
}

/// Compares what was restored with the old store at the revision of the backup; an embedded store also has the revisions of the
/// objects. Returns how many objects there are.
async fn compared(stores: &Stores, old: &Path, new: &Path, revision: u64) -> anyhow::Result<usize> {
    let (before, after) = stores.compared();
    let (old, new) = (open(&before, old).await?, open(&after, new).await?);
    let (before, _) = old.range("/registry/", Some(revision)).await?;
    let (after, _) = new.range("/registry/", None).await?;
    anyhow::ensure!(before.len() == after.len(), "{} objects of {}", after.len(), before.len());
    for (before, after) in before.iter().zip(&after) {
        let same = match stores {
            Stores::Embedded => before == after,
            Stores::Etcd(..) => (&before.key, &before.value) == (&after.key, &after.value),
        };
        anyhow::ensure!(same, "{} is not what it was", before.key);
    }
    Ok(after.len())
}

/// Updates objects at a steady rate until `meanwhile` is over: the latencies in milliseconds, and the rate that was reached.
async fn write_during(
    target: &Target,
    meanwhile: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<(Vec<f64>, f64)> {
    let stop = Arc::new(AtomicBool::new(false));
    // Before the time is taken: a backup can be as short as some handshakes.
    let mut connections = Vec::new();
    for _ in 0..WRITERS {
        connections.push(target.connect().await?);
    }
    let begun = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .zip(connections)
        .map(|(writer, mut connection)| {
            let stop = stop.clone();
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 * WRITERS / writes()));
                let mut number = writer;
                while !stop.load(Ordering::Acquire) {
                    ticks.tick().await;
                    let name = format!("o{}", number % objects() as u64);
                    number += WRITERS;
                    let begun = Instant::now();
                    connection.call("PUT", &format!("{PATH}/{name}"), object(&name, "y")).await?;
                    latencies.push(begun.elapsed().as_secs_f64() * 1e3);
                }
                anyhow::Ok(latencies)
            })
        })
        .collect();
    let outcome = meanwhile.await;
    stop.store(true, Ordering::Release);
    outcome?;
    let mut latencies = Vec::new();
    for writer in writers {
        latencies.extend(writer.await??);
    }
    let rate = latencies.len() as f64 / begun.elapsed().as_secs_f64();
    Ok((latencies, rate))
}

/// How long it takes to compress what the backup has, to write it and to have it on disk.
fn compressed(backup: &Path, to: &Path) -> anyhow::Result<f64> {
    let (mut reader, _) = coracle_backup::open::open(&File::open(backup)?, &[])?;
    let mut plain = Vec::new();
    while let Some(part) = reader.next_part()? {
        if let Part::Keys(keys) = part {
            let mut chunk = Vec::new();
            for one in keys {
                chunk.extend_from_slice(one.key.as_bytes());
                chunk.extend_from_slice(&one.value);
            }
            plain.push(chunk);
        }
    }
    let begun = Instant::now();
    let mut file = File::create(to)?;
    for chunk in &plain {
        file.write_all(&zstd::bulk::compress(chunk, 3)?)?;
    }
    file.sync_all()?;
    Ok(begun.elapsed().as_secs_f64())
}
