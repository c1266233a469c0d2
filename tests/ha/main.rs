//! Three servers, three members of etcd and three nodes, which are killed, frozen, cut off from each other and started again while
//! clients write and watch; afterwards checkers decide whether a correct cluster could have shown what was seen. Needs root.
//!
//! `CORACLE_HA_MINUTES` (3) is how long things are broken, `CORACLE_HA_SEED` repeats the faults of another run, `CORACLE_HA_ETCD=external`
//! runs etcd beside the servers instead of leaving it to them, `CORACLE_HA_KEEP` names a directory for the history.
#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

// Machines and links between them.
mod network;
// Processes by their command lines.
mod processes;
// A server, and a node.
mod server;
mod node;
// All of them.
mod world;
// Clients and watchers.
mod load;
// Pods and Services.
mod churn;
// What the cluster did by itself.
mod evidence;
#[allow(dead_code)]
#[path = "../api/explain/receiver.rs"]
mod receiver;
// What is broken.
mod nemesis;
// What was wrong.
mod verdict;
// Whether that would have been noticed.
mod planted;

use coracle_tests::ha::checkers::watches::progress;
use coracle_tests::ha::failover::Failover;
use coracle_tests::ha::history::{Call, Outcome, Version, Watcher};
use coracle_tests::lab::run;
use coracle_tests::namespaces;
use evidence::Evidence;
use load::Load;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;
use verdict::Recorded;
use world::{COUNT, Store, World};

const CLIENTS: u32 = 8;
const WATCHERS: usize = 4;
/// A key that clients do not use, for the write that ends the history.
const FENCE: u32 = 1_000_000;
/// A value that clients do not use.
const LAST: u64 = u64::MAX / 2;

/// Runs the trial again inside fresh namespaces.
#[test]
fn in_namespaces() {
    if namespaces::is_inside() {
        return;
    }
    let status = namespaces::run_again(&["--ignored", "--nocapture", "nothing_is_lost"], &[]);
    assert!(status.success(), "the trial failed: {status}");
}

#[test]
#[ignore = "run by in_namespaces"]
fn nothing_is_lost_whatever_fails() {
    let minutes: f64 = setting("CORACLE_HA_MINUTES").map_or(3.0, |minutes| minutes.parse().unwrap());
    let seed = setting("CORACLE_HA_SEED").map_or_else(fresh_seed, |seed| seed.parse().unwrap());
    println!("seed {seed}: CORACLE_HA_SEED={seed} CORACLE_HA_MINUTES={minutes} breaks the same things");
    let store = match setting("CORACLE_HA_ETCD").as_deref() {
        None | Some("managed") => Store::Managed,
        Some("external") => Store::External,
        Some(other) => panic!("CORACLE_HA_ETCD is {other:?}, not managed or external"),
    };
    // Of the trial's own: libfaketime leaves something in /dev/shm for every process.
    for dir in ["/run", "/dev/shm"] {
        run("mount", &["-t", "tmpfs", "tmpfs", dir]);
    }
    let world = Arc::new(World::start(store));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (load, evidence) = (Load::new(), Arc::new(Evidence::default()));
    let quiet = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        Load::prepare(&world.targets).await;
        churn::deploy(&world.targets).await;
    });
    let clients = start(&runtime, &world, &load, &evidence, &quiet, seed);
    world::wait(&world, "all pods run", || {
        let (ready, wanted) = runtime.block_on(churn::ready(&world.targets));
        ready == wanted as u64
    });
    let lives = runtime.block_on(churn::lives(&world.targets));
    let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let rampage = nemesis::run(&world, &evidence, &load.recorder, seed, until);

    load.stop.store(true, Ordering::Relaxed);
    for client in clients {
        runtime.block_on(client).expect("a client was answered in a way that it does not know");
    }
    runtime.block_on(fence(&world, &load));
    world::wait(&world, "all pods run again", || {
        let (ready, wanted) = runtime.block_on(churn::ready(&world.targets));
        ready == wanted as u64
    });
    // Nodes are not what fails: their pods go on.
    assert_eq!(runtime.block_on(churn::lives(&world.targets)), lives, "pods were started again or replaced");
    quiet.store(true, Ordering::Relaxed);
    load.stop_watching.store(true, Ordering::Relaxed);
    let at_the_end = runtime.block_on(same_everywhere(&world));
    let (unrecovered, unnoticed) = (rampage.unrecovered.clone(), rampage.unnoticed.clone());
    let recorded = Recorded::of(&load, at_the_end, rampage);
    if let Some(dir) = setting("CORACLE_HA_KEEP") {
        recorded.keep(dir.as_ref()).unwrap();
        world.keep_logs(dir.as_ref());
    }
    let violations = recorded.check(&evidence);
    planted::check(&recorded, &evidence);
    let (operations, faults) = (recorded.operations.len(), recorded.rampage.faults.len());
    println!("note: seed {seed}, {faults} faults, {operations} operations");
    assert!(unrecovered.is_empty(), "not recovered: {unrecovered:?}");
    assert!(unnoticed.is_empty(), "nobody noticed: {unnoticed:?}");
    assert!(violations.is_empty(), "{} violations, seed {seed}", violations.len());
}

/// Starts everybody who writes, watches and looks; those who write.
fn start(
    runtime: &tokio::runtime::Runtime,
    world: &Arc<World>,
    load: &Arc<Load>,
    evidence: &Arc<Evidence>,
    quiet: &Arc<AtomicBool>,
    seed: u64,
) -> Vec<JoinHandle<()>> {
    let targets = || world.targets.clone();
    let clients = (0..CLIENTS).map(|client| runtime.spawn(load.clone().write(targets(), client, seed)));
    let clients = clients.collect();
    for number in 0..WATCHERS {
        runtime.spawn(load.clone().watch(targets(), number));
    }
    let (churned, stop) = (targets(), load.clone());
    runtime.spawn(async move { churn::run(churned, &stop.stop).await });
    let (observer, observed, stop) = (evidence.clone(), targets(), quiet.clone());
    runtime.spawn(async move { observer.observe(observed, &stop).await });
    let receivers = Evidence::receivers();
    let (world, evidence, quiet) = (world.clone(), evidence.clone(), quiet.clone());
    std::thread::spawn(move || {
        while !quiet.load(Ordering::Relaxed) {
            evidence.drain(&receivers);
            evidence.look_at_nodes(&world);
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    clients
}

/// Writes once more, and waits until every watcher has seen it: then it has seen everything before it.
async fn fence(world: &World, load: &Load) {
    let mut client = Failover::new(world.targets.clone(), 0);
    let outcome = load.one(&mut client, CLIENTS, FENCE, Call::Create(LAST)).await;
    let Outcome::Written(revision) = outcome else { panic!("the last write: {outcome:?}") };
    let begun = Instant::now();
    loop {
        let behind = |watcher: &Watcher| {
            (progress(watcher) < revision).then(|| format!("{} at {}", watcher.name, progress(watcher)))
        };
        let late: Vec<String> = load.watchers.lock().unwrap().iter().filter_map(behind).collect();
        if late.is_empty() {
            return;
        }
        assert!(begun.elapsed() < world::WAIT, "watchers do not see revision {revision}: {late:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What is there, on which all servers agree.
async fn same_everywhere(world: &World) -> BTreeMap<u32, Version> {
    let mut lists = Vec::new();
    for server in 0..COUNT {
        let list = load::listed(&world.targets, server).await;
        lists.push(list.unwrap_or_else(|| panic!("server-{} does not list", server + 1)));
    }
    assert!(lists.windows(2).all(|pair| pair[0] == pair[1]), "servers list different objects: {lists:?}");
    lists.swap_remove(0)
}

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // Short enough to be typed.
    now.as_nanos() as u64 % 1_000_000
}
