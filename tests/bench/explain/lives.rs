//! The timeline after the lives of many pods: how much disk it takes, and how long questions take then.

use super::ratio::Dice;
use crate::report::{Report, percentile};
use coracle_timeline::{
    Batch, CollectorHandle, IngestError, Keep, Limits, ObjectKey, Question, StoredRecord, Taken, assemble,
    encode, find, start_recording, view,
};
use coracle_trace::{Details, Flags, Moment, Record, Sizes, SpanId, Stage, TraceId, Uid};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const LIVES: u64 = 150_000;
/// Lives that arrive at once.
const CROWD: u64 = 100;
/// From the first life to the last: less than what is deleted for its age.
const SPAN: Duration = Duration::from_secs(6 * 60 * 60);
const QUESTIONS: usize = 200;
/// What may be on disk beside what is kept, such as a segment that is about to be deleted.
const MARGIN: u64 = 4 << 20;

/// What a record of a life hangs below.
#[derive(Clone, Copy)]
enum Under {
    /// Nothing.
    Root,
    /// The n-th write of the pod.
    Write(u64),
    /// The start of the pod.
    Start,
    /// Its end.
    End,
    /// Another line of the table.
    Line(usize),
}

use Under::{End, Line, Root, Start, Write};

/// The life of a pod: stage, parent, revision, microseconds from its begin, how long, text.
const LIFE: &[(Stage, Under, u64, u64, u64, &str)] = &[
    (Stage::Request, Root, 0, 0, 2_100, "POST /api/v1/namespaces/default/pods\nalice\nkubectl/v1.35.0"),
    (Stage::Write, Line(0), 1, 400, 1_500, "create"),
    (Stage::StoreBatch, Root, 1, 600, 1_000, ""),
    (Stage::SchedulerQueue, Write(1), 1, 1_900, 100, ""),
    (Stage::Attempt, Write(1), 1, 2_000, 1_600, ""),
    (Stage::Verdict, Line(4), 1, 2_300, 0, "node1=287 node2=285 node3=280 node4=279 of 212"),
    (Stage::Write, Line(4), 2, 2_400, 1_200, "bind"),
    (Stage::StoreBatch, Root, 2, 2_500, 900, ""),
    (Stage::Bind, Line(4), 1, 2_400, 1_200, "node1"),
    (Stage::Delivered, Write(2), 2, 3_500, 0, "system:node:node1"),
    (Stage::Seen, Write(2), 2, 3_600, 200, ""),
    (Stage::PodStart, Write(2), 2, 3_800, 60_000, ""),
    (Stage::Admit, Start, 2, 3_900, 40, ""),
    (Stage::Volumes, Start, 2, 4_000, 3_000, ""),
    (Stage::Volume, Line(13), 2, 4_000, 2_900, "kube-api-access-x7k2p"),
    (Stage::Image, Start, 2, 4_000, 300, "example.test/busybox:1"),
    (Stage::Sandbox, Start, 2, 7_000, 14_000, ""),
    (Stage::SandboxFiles, Line(16), 2, 7_000, 500, ""),
    (Stage::Cgroup, Line(16), 2, 7_500, 200, ""),
    (Stage::Namespaces, Line(16), 2, 7_700, 2_000, ""),
    (Stage::Network, Line(16), 2, 9_700, 9_000, ""),
    (Stage::CniPlugin, Line(20), 2, 9_800, 5_000, "bridge ADD"),
    (Stage::CniPlugin, Line(20), 2, 14_900, 3_000, "portmap ADD"),
    (Stage::Container, Start, 2, 21_000, 24_000, "c"),
    (Stage::ContainerConfig, Line(23), 2, 21_000, 300, "c"),
    (Stage::OciBundle, Line(23), 2, 21_300, 1_000, "c"),
    (Stage::OciCreate, Line(23), 2, 22_300, 20_000, "c"),
    (Stage::OciStart, Line(23), 2, 42_300, 1_100, "c"),
    (Stage::StatusReport, Start, 2, 45_500, 3_000, ""),
    (
        Stage::Request,
        Line(28),
        0,
        46_000,
        2_000,
        "PATCH /api/v1/namespaces/default/pods/web/status\nsystem:node:node1",
    ),
    (Stage::Write, Line(29), 3, 46_300, 1_500, "patch"),
    (Stage::StoreBatch, Root, 3, 46_500, 900, ""),
    (Stage::Ready, Start, 2, 63_800, 0, ""),
    (
        Stage::Request,
        Root,
        0,
        9_000_000,
        1_800,
        "DELETE /api/v1/namespaces/default/pods/web\nalice\nkubectl/v1.35.0",
    ),
    (Stage::Write, Line(33), 4, 9_000_300, 1_400, "delete"),
    (Stage::StoreBatch, Root, 4, 9_000_500, 900, ""),
    (Stage::Delivered, Write(4), 4, 9_001_500, 0, "system:node:node1"),
    (Stage::Terminate, Write(4), 4, 9_002_000, 90_000, ""),
    (Stage::Stop, End, 4, 9_002_100, 50_000, "c\n1 s"),
    (Stage::SandboxStop, End, 4, 9_053_000, 20_000, ""),
    (Stage::NetworkRemove, Line(39), 4, 9_053_100, 9_000, ""),
    (Stage::CgroupRemove, Line(39), 4, 9_063_000, 4_000, ""),
    (Stage::VolumesRemove, End, 4, 9_074_000, 2_000, ""),
    (Stage::DirectoriesRemove, End, 4, 9_076_000, 1_000, ""),
    (Stage::ObjectDelete, End, 4, 9_078_000, 2_500, ""),
    (
        Stage::Request,
        Line(44),
        0,
        9_078_300,
        1_900,
        "DELETE /api/v1/namespaces/default/pods/web\nsystem:node:node1",
    ),
    (Stage::Write, Line(45), 5, 9_078_500, 1_500, "delete"),
    (Stage::StoreBatch, Root, 5, 9_078_700, 900, ""),
];

/// Measures it in a temporary directory.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let limits = Limits::default();
    let (_, collector) = start_recording(None, Sizes::AGENT, Keep::open(dir.path(), limits)?);
    let begin = unix_now().saturating_sub(nanos(SPAN));
    let most = fill(report, &collector, dir.path(), begin)?;
    let (mib, allowed) = (f64::from(1 << 20), limits.bytes + MARGIN);
    report.add("most disk space at any time", most as f64 / mib, "MiB");
    report.add("   allowed", allowed as f64 / mib, "MiB");
    if most > allowed {
        report.exceeds(format!("the timeline took {most} bytes of disk space, {allowed} are allowed"));
    }
    let counters = collector.counters();
    report.add("records of a life", LIFE.len() as f64, "");
    report.add("records not written", (counters.lost + counters.dropped_blocks) as f64, "");
    let kept = LIVES - LIVES * counters.oldest.saturating_sub(begin) / nanos(SPAN);
    report.add("lives that are kept", kept as f64, "");
    report.add("disk space of a life", counters.bytes as f64 / kept as f64, "B");
    ask(report, &collector, kept)?;
    collector.stop();
    Ok(())
}

/// Writes all lives; the most disk space that was taken.
fn fill(report: &mut Report, collector: &CollectorHandle, dir: &Path, begin: u64) -> anyhow::Result<u64> {
    let begun = Instant::now();
    let mut most = 0;
    for first in (0..LIVES).step_by(CROWD as usize) {
        let records: Vec<StoredRecord> = (first..first + CROWD)
            .flat_map(|number| life(number, begin + number * (nanos(SPAN) / LIVES)))
            .collect();
        let blocks = encode(&records).into_iter().flat_map(|block| block.bytes).collect();
        let (node, taken) = ("node1".into(), Taken { spool: 1, until: first });
        let batch = Batch { node, offset: 0, uncertainty: 0, boot: 1, blocks, taken };
        while let Err(error) = collector.ingest(batch.clone(), drop) {
            anyhow::ensure!(error == IngestError::Full, "a batch is refused: {error}");
            collector.flushed();
        }
        most = most.max(disk_space(dir)?);
    }
    collector.flushed();
    most = most.max(disk_space(dir)?);
    let written = LIVES * LIFE.len() as u64;
    report.add(
        &format!("{LIVES} lives written"),
        written as f64 / begun.elapsed().as_secs_f64(),
        "records/s",
    );
    Ok(most)
}

/// Asks for pods that are kept, that are not any more, and that never were.
fn ask(report: &mut Report, collector: &CollectorHandle, kept: u64) -> anyhow::Result<()> {
    let mut dice = Dice(7);
    let oldest = LIVES - kept;
    // The end of the oldest segment may lack the begin of a life.
    let known = oldest + kept / 50;
    let mut times = Vec::new();
    for _ in 0..QUESTIONS {
        let number = known + dice.below((LIVES - known) as usize) as u64;
        let (took, spans) =
            time(collector, Question { uid: Some(uid(number)), last: 1, ..Question::default() })?;
        anyhow::ensure!(spans > 0, "life {number} is not found, {oldest} is the oldest");
        times.push(took);
    }
    report.add("question by uid, p50", percentile(&mut times, 0.5), "ms");
    report.add("question by uid, p99", percentile(&mut times, 0.99), "ms");
    for (what, number, is_kept) in
        [("newest", LIVES - 1, true), ("oldest", known, true), ("expired", 0, false)]
    {
        let object = ObjectKey { resource: "pods".into(), namespace: "default".into(), name: name(number) };
        let (took, spans) =
            time(collector, Question { object: Some(object), last: 1, ..Question::default() })?;
        anyhow::ensure!((spans > 0) == is_kept || kept == LIVES, "{what}: {spans} spans");
        report.add(&format!("question by name, {what} pod"), took, "ms");
    }
    let never = Question { uid: Some(uid(LIVES)), last: 1, ..Question::default() };
    report.add("question for a pod that never was", time(collector, never)?.0, "ms");
    Ok(())
}

/// Milliseconds from the question to its answer, and the number of spans in it.
fn time(collector: &CollectorHandle, question: Question) -> anyhow::Result<(f64, usize)> {
    let begun = Instant::now();
    let found = find(collector.keep(), &[], &question)?;
    let views: Vec<_> = assemble(found, unix_now()).iter().map(|tree| view(tree, None)).collect();
    let spans = views.iter().map(|view| view.spans.len()).sum();
    Ok((begun.elapsed().as_secs_f64() * 1e3, spans))
}

fn life(number: u64, begin: u64) -> Vec<StoredRecord> {
    let (uid, base) = (uid(number), number * 8);
    let mut spans: Vec<SpanId> = Vec::with_capacity(LIFE.len());
    let line = |&(stage, under, revision, at, took, text): &(Stage, Under, u64, u64, u64, &str)| {
        let is_write = stage == Stage::Write;
        let span = match stage {
            Stage::PodStart | Stage::Terminate => SpanId::of_stage(uid, stage),
            _ => SpanId::fresh(),
        };
        let parent = match under {
            Root => SpanId::NONE,
            Write(revision) => SpanId::of_write(uid, base + revision),
            Start => SpanId::of_stage(uid, Stage::PodStart),
            End => SpanId::of_stage(uid, Stage::Terminate),
            Line(line) => spans[line],
        };
        spans.push(span);
        let has_subject = !matches!(stage, Stage::Request | Stage::StoreBatch);
        let record = Record {
            stage,
            flags: Flags::NONE,
            code: if stage == Stage::Request { 201 } else { 0 },
            span,
            parent,
            trace: if parent.is_none() { TraceId::fresh() } else { TraceId::NONE },
            subject: if has_subject { uid } else { Uid::NONE },
            revision: if revision == 0 { 0 } else { base + revision },
            start: Moment::MAX,
            duration: took * 1000,
        };
        let text =
            if is_write { format!("{text} pods default/{}", self::name(number)) } else { text.to_owned() };
        let details = matches!(stage, Stage::Request | Stage::Write | Stage::StoreBatch).then(|| marks(took));
        StoredRecord { record, start: begin + at * 1000, details, text, node: String::new(), uncertainty: 0 }
    };
    LIFE.iter().map(line).collect()
}

/// Six stages of the same length.
fn marks(took: u64) -> Details {
    let mut details = Details::NONE;
    for (index, mark) in details.marks.iter_mut().take(6).enumerate() {
        *mark = Details::units(took * 1000 * (index as u64 + 1) / 8);
    }
    details
}

fn uid(number: u64) -> Uid {
    Uid(u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn name(number: u64) -> String {
    format!("web-{number:06}")
}

/// Blocks of all files, preallocated ones too.
fn disk_space(dir: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir)? {
        // The oldest may be deleted meanwhile.
        sum += entry?.metadata().map_or(0, |metadata| metadata.blocks() * 512);
    }
    Ok(sum)
}

fn unix_now() -> u64 {
    nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
