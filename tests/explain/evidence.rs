//! Answers beside what others saw: the kernel its processes, clients the first answer of a Service and of a name.

use crate::clients::{Change, connects, resolves, until, within};
use crate::kernel::{Observer, Process};
use crate::scenarios::all_ready;
use crate::world::{NODES, WAIT, World, begin, outline, spans, text, uid_of};
use coracle_timeline::TraceView;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// How far a span may be from what it measures.
const TOLERANCE: u64 = 1_000_000;

/// Plugins and containers ran within their spans, and the spans are no longer than that.
pub fn processes(world: &World) {
    world.namespace("processes");
    let observer = Observer::start(world);
    let is_exact = observer.is_exact();
    world.deploy("processes", 3);
    // What ended last is in the log by then.
    std::thread::sleep(Duration::from_millis(300));
    let seen = observer.stop();
    let pods = world.pods("processes");
    let view = world.trace("deployments.apps", "processes", "web", |view| all_ready(view, &pods));
    plugins(&view, &seen, is_exact);
    containers(&view, &seen, pods.len());
}

fn plugins(view: &TraceView, seen: &[Process], is_exact: bool) {
    let since = begin(view);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let spans = spans(view, "cni-plugin");
    assert!(!spans.is_empty(), "pods have a network\n{}", outline(view));
    for span in spans {
        let (from, to) = (since + span.start, since + span.end.unwrap());
        let file = format!("/{}", span.name.split(' ').next().unwrap());
        let distance = |process: &&Process| {
            process.forked.abs_diff(from) + process.exited.map_or(u64::MAX / 2, |exited| exited.abs_diff(to))
        };
        let nearest = seen.iter().filter(|process| process.file.ends_with(&file)).min_by_key(distance);
        let process = nearest.unwrap_or_else(|| panic!("nobody executed {file}: {seen:#?}"));
        let exited = process.exited.expect("plugins end");
        assert!(
            process.executed + TOLERANCE >= from && exited <= to + TOLERANCE,
            "{} from {from} to {to} but {process:?}\n{}",
            span.name,
            outline(view)
        );
        before.push(process.forked.saturating_sub(from));
        after.push(to.saturating_sub(exited));
    }
    // On a busy machine the agent hears of an exit when it gets a core: what is always there is the error of the timeline.
    let least = |differences: Vec<u64>| differences.into_iter().min().unwrap();
    let (before, after) = (least(before), least(after));
    println!("plugins: {} µs before the fork, {} µs after the exit (the least)", before / 1000, after / 1000);
    if is_exact {
        // Unoptimized programs take a few milliseconds from the end of a plugin to having read what it said.
        let slow = if cfg!(debug_assertions) { 5 * TOLERANCE } else { TOLERANCE };
        assert!(before <= TOLERANCE && after <= slow, "spans are longer than the plugins ran");
    }
}

fn containers(view: &TraceView, seen: &[Process], pods: usize) {
    let since = begin(view);
    let starts = spans(view, "oci-start");
    assert_eq!(starts.len(), pods, "{}", outline(view));
    for span in starts {
        // The runtime tells its first process to go on, and that one executes the program when it gets a core.
        let within = since + span.start - TOLERANCE..=since + span.end.unwrap() + 20 * TOLERANCE;
        let is_there =
            seen.iter().any(|process| process.file == "/bin/httpd" && within.contains(&process.executed));
        assert!(is_there, "no container began in {within:?}: {seen:#?}");
    }
}

/// A Service answers on each node from when its rules are programmed.
pub fn services(world: &World) {
    world.namespace("services");
    world.deploy("services", 3);
    let to: SocketAddr = "10.96.77.77:80".parse().unwrap();
    let changes = on_nodes(
        world,
        || connects(to),
        || {
            world.k.run(
                "expose deployment web -n services --port=80 --target-port=8080 --cluster-ip=10.96.77.77",
            );
        },
    );
    let slices = world.json("get endpointslices -n services -l kubernetes.io/service-name=web");
    let uid = text(&slices["items"][0]["metadata"]["uid"]);
    let of_node = |view: &TraceView, node: &str| {
        let of_slice = spans(view, "rules-programmed").into_iter().filter(|span| uid_of(view, span) == uid);
        of_slice.filter(|span| span.node == node).map(|span| (span.start, span.end.unwrap_or(u64::MAX))).min()
    };
    let all = |view: &TraceView| NODES.into_iter().all(|node| of_node(view, node).is_some());
    let view = world.trace("services", "services", "web", all);
    for (node, change) in changes {
        let (from, to) = of_node(&view, node).unwrap();
        let (from, to) = (begin(&view) + from, begin(&view) + to);
        let fits = change.first_success + TOLERANCE >= from && change.last_failure <= to + TOLERANCE;
        assert!(fits, "{node}: programmed from {from} to {to} but {change:?}\n{}", outline(&view));
    }
}

/// A name resolves from when it is visible, and the first answer is the one that a client got.
pub fn names(world: &World) {
    world.namespace("names");
    world.deploy("names", 1);
    let server: SocketAddr = "10.96.0.10:53".parse().unwrap();
    let changes = on_nodes(
        world,
        || resolves(server, "web.names.svc.cluster.local"),
        || {
            world.k.run("expose deployment web -n names --port=80 --target-port=8080");
        },
    );
    let times = |view: &TraceView, stage: &str| -> Vec<u64> {
        spans(view, stage).into_iter().map(|span| begin(view) + span.start).collect()
    };
    let is_told = |view: &TraceView| {
        times(view, "dns-visible").len() >= NODES.len() && !times(view, "dns-answered").is_empty()
    };
    let view = world.trace("services", "names", "web", is_told);
    // A client may ask the server of any node.
    let visible = times(&view, "dns-visible");
    let (first, last) = (visible.iter().min().unwrap(), visible.iter().max().unwrap());
    for (node, change) in &changes {
        let fits = change.first_success + TOLERANCE >= *first && change.last_failure <= last + TOLERANCE;
        assert!(fits, "{node}: visible from {first} to {last} but {change:?}\n{}", outline(&view));
    }
    // Clients ask until they succeed: the first answer of a server is the first success of one of them.
    let mut nearest = Vec::new();
    for answered in times(&view, "dns-answered") {
        let change = changes.values().min_by_key(|change| change.first_success.abs_diff(answered)).unwrap();
        let within = change.last_failure..=change.first_success + TOLERANCE;
        assert!(within.contains(&answered), "answered at {answered} but {changes:?}\n{}", outline(&view));
        nearest.push(change.first_success.abs_diff(answered));
    }
    // A client hears of it when it gets a core: what is always there is the error of the timeline.
    let least = nearest.iter().min().unwrap();
    println!("names: answered {} µs before clients had it (the least)", least / 1000);
    assert!(*least <= TOLERANCE, "{nearest:?} ns from the first success\n{}", outline(&view));
}

/// What clients on every node see while something is done.
fn on_nodes(
    world: &World,
    attempt: impl Fn() -> bool + Sync,
    work: impl FnOnce(),
) -> BTreeMap<&'static str, Change> {
    std::thread::scope(|scope| {
        let clients = NODES.map(|node| {
            let holder = world.cluster.node(node)["holder"]["pid"].as_u64().unwrap() as u32;
            let attempt = &attempt;
            (node, scope.spawn(move || within(holder, || until(WAIT, attempt))))
        });
        // So that each has failed once.
        std::thread::sleep(Duration::from_millis(200));
        work();
        clients.into_iter().map(|(node, client)| (node, client.join().unwrap())).collect()
    })
}
