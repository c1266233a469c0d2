//! The whole server under `kill -9`: writers of several kinds, watchers that resume, and after every restart the books.

use crate::dice::{Dice, rounds};
use crate::ledger::{Ledger, SORTS, version_of};
use crate::watchers::{Seen, watch};
use crate::writers::{one, write};
use bytes::Bytes;
use coracle_tests::client::Target;
use coracle_tests::server::Server;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const ROUNDS: u64 = 40;
const WRITERS: u64 = 8;

#[test]
fn a_killed_server_forgets_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(rounds_of(rounds(ROUNDS)));
}

async fn rounds_of(rounds: u64) {
    let mut server = Server::with(&["--api-only"]);
    let target = Target::new(server.data_dir(), &server.url()).unwrap();
    let ledger: &'static Mutex<Ledger> = Box::leak(Box::default());
    let seen = start_watchers(&target).await;
    let mut dice = Dice::new(0);
    let begun = Instant::now();
    for round in 0..rounds {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(target.clone(), ledger, writer));
        }
        // In the middle of writes, however fast the machine is.
        let (enough, begun) = (ledger.lock().unwrap().acknowledged + dice.roll(80) as usize, Instant::now());
        while ledger.lock().unwrap().acknowledged < enough && begun.elapsed() < Duration::from_secs(5) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_micros(dice.roll(5_000))).await;
        server.kill();
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
        // Sometimes it dies again before it is up, and at least once.
        if round == rounds / 2 || dice.roll(8) == 0 {
            let after = Duration::from_micros(dice.roll(150_000));
            server.start_and_kill(after);
        }
        server.restart();
        check(&target, ledger, &seen, round).await;
    }
    let events: usize = seen.iter().map(|seen| seen.lock().unwrap().events).sum();
    let ledger = ledger.lock().unwrap();
    println!(
        "{rounds} rounds in {:?}, {} writes acknowledged, {events} events, at revision {}",
        begun.elapsed(),
        ledger.acknowledged,
        ledger.newest
    );
    assert!(ledger.acknowledged > 10 * rounds as usize, "the writers hardly wrote");
}

async fn start_watchers(target: &Target) -> Vec<&'static Mutex<Seen>> {
    let mut all = Vec::new();
    for (sort, of) in SORTS.iter().enumerate() {
        let mut connection = target.connect().await.unwrap();
        let list = connection.call("GET", of.path, Bytes::new()).await.unwrap();
        let list: Value = serde_json::from_slice(&list).unwrap();
        let seen: &'static Mutex<Seen> =
            Box::leak(Box::new(Mutex::new(Seen::starting_at(version_of(&list)))));
        // Leases that a crash took were seen by watchers, which are told to start over: nothing to be checked here.
        if !of.lazy {
            tokio::spawn(watch(target.clone(), sort, seen));
        }
        all.push(seen);
    }
    all
}

/// Everything acknowledged is there; every watcher saw all of it, once and in order, and nothing else.
async fn check(target: &Target, ledger: &Mutex<Ledger>, seen: &[&'static Mutex<Seen>], round: u64) {
    let mut connection = target.connect().await.unwrap();
    for (sort, of) in SORTS.iter().enumerate() {
        let list = connection.call("GET", of.path, Bytes::new()).await.unwrap();
        let list: Value = serde_json::from_slice(&list).unwrap();
        check_addresses(&list);
        let mut expected = ledger.lock().unwrap().check(sort, &list);
        if of.lazy {
            continue;
        }
        // What the watcher has seen when it sees this, it has seen of all before it.
        let (key, mark) = ((sort, "fence".to_owned()), format!("fence-{round}"));
        assert!(one(&mut connection, ledger, &key, &mark, 3).await, "the server is up");
        expected.entry(key.1.clone()).or_default().push(Some(mark.clone()));
        let begun = Instant::now();
        loop {
            let names = {
                let mut seen = seen[sort].lock().unwrap();
                assert!(
                    seen.failure.is_none(),
                    "watch of {} in round {round}: {:?}",
                    of.name(),
                    seen.failure
                );
                seen.has("fence", &Some(mark.clone())).then(|| std::mem::take(&mut seen.names))
            };
            if let Some(names) = names {
                expected.retain(|_, states| !states.is_empty());
                assert_eq!(names, expected, "watch of {} in round {round}", of.name());
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "the watch of {} does not go on", of.name());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        ledger.lock().unwrap().seen(&key);
    }
}

/// No address is given out twice, not by a server that has just come back either.
fn check_addresses(list: &Value) {
    let mut taken = BTreeSet::new();
    for object in list["items"].as_array().unwrap() {
        if let Some(address) = object["spec"]["clusterIP"].as_str().filter(|address| *address != "None") {
            assert!(taken.insert(address.to_owned()), "{address} twice");
        }
    }
}
