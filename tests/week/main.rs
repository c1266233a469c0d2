//! A week of a busy node in minutes: images come and go, logs rotate, the disk fills and empties, pods crash, restart and are
//! evicted, and the agent is killed. Afterwards neither the node nor the server and its datastore have grown, and only the right pods
//! were evicted. Needs root.
//!
//! `CORACLE_WEEK_MINUTES` (30) is how long it takes. Times are compressed by options: logs rotate at 64 KiB, images may be removed
//! at once, a shortage of disk is forgotten after seconds, and Events after five minutes.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

// What is measured between two rounds.
mod sample;
// What pods do in a round.
mod round;

use coracle_tests::namespaces;
use coracle_tests::pods::Cluster;
use round::Round;
use sample::Sample;
use std::time::{Duration, Instant};

/// MiB of the node's disk.
const DISK: u32 = 768;
const FLAGS: &str = "--container-log-max-size 64Ki --container-log-max-files 3 --image-gc-high-threshold 70 --image-gc-low-threshold 50 \
    --image-minimum-gc-age 0s --eviction-pressure-transition-period 5s --eviction-hard memory.available<1Mi,nodefs.available<20%";

/// Runs the week inside fresh namespaces.
#[test]
fn in_namespaces() {
    if namespaces::is_inside() {
        return;
    }
    let status = namespaces::run_again(
        &["--ignored", "--nocapture", "nothing_grows"],
        &[("CORACLE_SERVER_EVENT_TTL", "5m".as_ref())],
    );
    assert!(status.success(), "the week failed: {status}");
}

#[test]
#[ignore = "run by in_namespaces"]
fn nothing_grows_and_the_right_pods_are_evicted() {
    let minutes: f64 = std::env::var("CORACLE_WEEK_MINUTES").map_or(30.0, |minutes| minutes.parse().unwrap());
    let end = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let mut cluster = Cluster::start_on(Some(DISK), FLAGS);
    // Directories that the first pod makes, and memory that is kept for the next.
    Round::new(&cluster, 0).play();
    let before = cluster.picture();
    let (mut samples, mut count) = (Vec::new(), 0);
    while Instant::now() < end || samples.len() < 4 {
        count += 1;
        Round::new(&cluster, count).play();
        if count == 1 {
            cluster.kill_agent();
            cluster.start_agent();
        }
        let mut left = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            left = cluster.picture().difference(&before).cloned().collect();
            if left.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(left.is_empty(), "round {count} left behind: {left:#?}");
        // What was measured before the agent was killed says nothing about the one that runs now.
        if count > 1 {
            let sample = Sample::take(&cluster);
            println!("round {count}: {sample}");
            samples.push((count, sample));
        }
    }
    sample::print_ends(&samples);
    sample::verdict(&samples);
    println!("{count} rounds in {minutes} minutes");
}
