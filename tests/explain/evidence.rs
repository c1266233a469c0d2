//! Answers beside what others saw: the kernel its processes, clients the first answer of a Service and of a name.

use crate::clients::{Change, connects, resolves, until, within};
use crate::kernel::{Observer, Process};
use crate::scenarios::all_ready;
use crate::world::{NODES, WAIT, World, begin, outline, spans, text, uid_of};
use coracle_tests::skipped;
use coracle_timeline::{TraceView, parse_timestamp};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// How far a span may be from what it measures.
const TOLERANCE: u64 = 1_000_000;

/// The same for what an unoptimized program needs some milliseconds for, such as to read what a plugin said.
const SLOW: u64 = if cfg!(debug_assertions) { 5 * TOLERANCE } else { TOLERANCE };
/// How much longer the namespaces of a sandbox may take than its first process from fork to program: the kernel makes namespaces
/// before the fork counts, and they are pinned afterwards.
const AROUND_PAUSE: u64 = 20 * SLOW;
/// The API has times in whole seconds.
const SECOND: u64 = 1_000_000_000;
/// Pods that are started one after the other, while nothing else wants a core.
const ALONE: usize = 5;

/// How far spans are from what the kernel saw.
#[derive(Default)]
struct Distances {
    /// From the begin of a span to the fork of the plugin.
    before_plugins: Vec<u64>,
    /// From the exit of a plugin to the end of its span.
    after_plugins: Vec<u64>,
    /// Of the program of a container from the span in which it was started.
    of_containers: Vec<u64>,
    /// Of the span of a sandbox's namespaces, what is before the fork of its first process and after that has its program.
    around_pauses: Vec<u64>,
}

/// Plugins, sandboxes and containers ran within their spans, and the spans are no longer than that.
pub fn processes(world: &World) {
    world.namespace("processes");
    let observer = Observer::start(world);
    let is_exact = observer.is_exact();
    world.deploy("processes", 3);
    let alone: Vec<String> = (0..ALONE).map(|number| format!("alone-{number}")).collect();
    for name in &alone {
        world.create("processes", &pod(name));
        world.k.run(&format!("wait --for=condition=Ready pod/{name} -n processes --timeout=120s"));
    }
    // What ended last is in the log by then.
    std::thread::sleep(Duration::from_millis(300));
    let seen = observer.stop();
    let mut pods = world.pods("processes");
    let started = started(world, "processes");
    let last = world.trace("pods", "processes", &alone[ALONE - 1], |view| !spans(view, "ready").is_empty());
    // What was started before it is complete as well.
    let mut views: Vec<TraceView> = alone[..ALONE - 1]
        .iter()
        .map(|name| world.answer(&format!("resource=pods&namespace=processes&name={name}")).unwrap())
        .collect();
    views.push(last);
    let mut distances = Distances::default();
    for view in &views {
        distances.add(view, &seen, 1);
        reported(view, &started);
        pods.retain(|uid, _| !spans(view, "ready").iter().any(|span| uid_of(view, span) == uid));
    }
    let view = world.trace("deployments.apps", "processes", "web", |view| all_ready(view, &pods));
    Distances::default().add(&view, &seen, pods.len());
    reported(&view, &started);
    distances.check(is_exact);
}

/// A pod as those of the Deployment.
fn pod(name: &str) -> String {
    let container = json!({"name": "c", "image": "busybox", "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/httpd", "-f", "-p", "8080", "-h", "/tmp"]});
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}

impl Distances {
    /// Looks for the processes of so many pods, all of which have to be within their spans.
    fn add(&mut self, view: &TraceView, seen: &[Process], pods: usize) {
        self.plugins(view, seen);
        self.sandboxes(view, seen, pods);
        self.containers(view, seen, pods);
    }

    fn plugins(&mut self, view: &TraceView, seen: &[Process]) {
        let since = begin(view);
        let spans = spans(view, "cni-plugin");
        assert!(!spans.is_empty(), "pods have a network\n{}", outline(view));
        for span in spans {
            let (from, to) = (since + span.start, since + span.end.unwrap());
            let file = format!("/{}", span.name.split(' ').next().unwrap());
            let distance = |process: &&Process| {
                let exited = process.exited.map_or(u64::MAX / 2, |exited| exited.abs_diff(to));
                process.forked.abs_diff(from) + exited
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
            self.before_plugins.push(process.forked.saturating_sub(from));
            self.after_plugins.push(to.saturating_sub(exited));
        }
    }

    fn containers(&mut self, view: &TraceView, seen: &[Process], pods: usize) {
        let since = begin(view);
        let starts = spans(view, "oci-start");
        assert_eq!(starts.len(), pods, "{}", outline(view));
        for span in starts {
            let (from, to) = (since + span.start, since + span.end.unwrap());
            let outside = |process: &Process| {
                process.executed.saturating_sub(to) + from.saturating_sub(process.executed)
            };
            let programs = seen.iter().filter(|process| process.file == "/bin/httpd");
            let nearest = programs.min_by_key(|process| outside(process)).expect("containers begin");
            // The runtime tells its first process to go on, and that one executes the program when it gets a core.
            let within = from - TOLERANCE..=to + 20 * TOLERANCE;
            assert!(within.contains(&nearest.executed), "no container began in {within:?}: {seen:#?}");
            self.of_containers.push(outside(nearest));
        }
    }

    /// The pause process of each sandbox was cloned while its namespaces were made, and executes its program before they are done.
    fn sandboxes(&mut self, view: &TraceView, seen: &[Process], pods: usize) {
        let since = begin(view);
        let made = spans(view, "namespaces");
        assert_eq!(made.len(), pods, "{}", outline(view));
        for span in made {
            let (from, to) = (since + span.start, since + span.end.unwrap());
            let within = from - TOLERANCE..=to + TOLERANCE;
            let is_within = |process: &&Process| {
                process.file == "/pause"
                    && within.contains(&process.forked)
                    && within.contains(&process.executed)
            };
            let pause = seen.iter().find(is_within);
            let pause = pause
                .unwrap_or_else(|| panic!("no sandbox began in {within:?}: {seen:#?}\n{}", outline(view)));
            self.around_pauses.push(pause.forked.saturating_sub(from) + to.saturating_sub(pause.executed));
        }
    }

    /// What is there in most cases is the error of the timeline; strace delays what it looks at.
    fn check(self, is_exact: bool) {
        let median = |mut distances: Vec<u64>| {
            distances.sort_unstable();
            distances[distances.len() / 2]
        };
        let (before, after) = (median(self.before_plugins), median(self.after_plugins));
        let (start, around) = (median(self.of_containers), median(self.around_pauses));
        println!(
            "plugins: {} µs before the fork, {} µs after the exit; containers: {} µs from the start; \
             sandboxes: {} µs more than their first process (medians)",
            before / 1000,
            after / 1000,
            start / 1000,
            around / 1000
        );
        if is_exact {
            assert!(before <= TOLERANCE && after <= SLOW, "spans are longer than the plugins ran");
            assert!(start <= SLOW, "containers do not begin when their span says so");
            assert!(around <= AROUND_PAUSE, "sandboxes take longer than their first process");
        } else {
            skipped(
                "explain::spans_are_as_long_as_processes",
                "there is no tracefs, and strace delays what it sees",
            );
        }
    }
}

/// When the container of each pod was started, as its status says it: in nanoseconds of unix time, by uid.
fn started(world: &World, namespace: &str) -> BTreeMap<String, u64> {
    let list = world.json(&format!("get pods -n {namespace}"));
    let pods = list["items"].as_array().unwrap().iter();
    pods.map(|pod| {
        let at = text(&pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]);
        let (at, _) = parse_timestamp(&at).unwrap_or_else(|| panic!("no container runs: {pod:#}"));
        (text(&pod["metadata"]["uid"]), at)
    })
    .collect()
}

/// Containers were started in the second that the status of their pod says.
fn reported(view: &TraceView, started: &BTreeMap<String, u64>) {
    for span in spans(view, "oci-start") {
        let (from, to) = (begin(view) + span.start, begin(view) + span.end.unwrap());
        let at = started[uid_of(view, span)];
        let fits = at + SECOND + TOLERANCE > from && at <= to + TOLERANCE;
        assert!(fits, "started from {from} to {to}, but in the second after {at}\n{}", outline(view));
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
        let fits =
            |change: &&Change| (change.last_failure..=change.first_success + TOLERANCE).contains(&answered);
        let distances = changes.values().filter(fits).map(|change| change.first_success.abs_diff(answered));
        let least = distances.min();
        nearest.push(
            least.unwrap_or_else(|| panic!("answered at {answered} but {changes:?}\n{}", outline(&view))),
        );
    }
    // A client hears of it when it gets a core: what is always there is the error of the timeline.
    let least = nearest.iter().min().unwrap();
    println!("names: answered {} µs before clients had it (the least)", least / 1000);
    assert!(*least <= SLOW, "{nearest:?} ns from the first success\n{}", outline(&view));
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
