//! Figures against the OCI runtime's own, in the same run; printed, not judged.

use std::fs;
use std::time::{Duration, Instant};

use coracle_agent::runtime::Runtime;

use crate::node::{Node, run};

const ROUNDS: usize = 15;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn resident_kb(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn start_and_stop_against_the_runtime_alone() {
    let node = Node::start().await;
    let (mut sandboxes, mut creates, mut starts, mut stops, mut execs) =
        (vec![], vec![], vec![], vec![], vec![]);
    let timed = |times: &mut Vec<Duration>, begun: Instant| times.push(begun.elapsed());
    let mut bundle = String::new();
    for round in 0..ROUNDS {
        let name = format!("fig{round}");
        let begun = Instant::now();
        let sandbox = node.sandbox(&name).await;
        timed(&mut sandboxes, begun);
        let begun = Instant::now();
        let config = node.container_config("c", &["sleep", "1000"]);
        let id = node.cri.create_container(&sandbox, config, node.sandbox_config(&name)).await.unwrap();
        timed(&mut creates, begun);
        let begun = Instant::now();
        node.cri.start_container(&id).await.unwrap();
        timed(&mut starts, begun);
        let begun = Instant::now();
        node.exec(&id, "true").await;
        timed(&mut execs, begun);
        if round == 0 {
            bundle = fs::read_to_string(node.path("run/containers").join(&id).join("config.json")).unwrap();
        }
        let begun = Instant::now();
        node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
        timed(&mut stops, begun);
    }
    // The same configuration, but for what only the sandbox has, by the runtime alone.
    let sandbox = node.sandbox("alone").await;
    let config = node.container_config("c", &["sleep", "1000"]);
    let id = node.cri.create_container(&sandbox, config, node.sandbox_config("alone")).await.unwrap();
    let spec = fs::read_to_string(node.path("run/containers").join(&id).join("config.json")).unwrap();
    assert_eq!(spec.len() / 100, bundle.len() / 100);
    let dir = node.path("run/containers").join(&id);
    let runtime = std::env::var("CORACLE_OCI_RUNTIME").unwrap_or_else(|_| "runc".into());
    let mut alone = vec![];
    let mut alone_run = vec![];
    for _ in 0..ROUNDS {
        let root = node.path("alone").display().to_string();
        let begun = Instant::now();
        run(&format!(
            "{runtime} --root {root} create --bundle {} x </dev/null >/dev/null 2>&1 && {runtime} --root {root} start x",
            dir.display()
        ));
        timed(&mut alone, begun);
        run(&format!("{runtime} --root {root} delete --force x"));
        let begun = Instant::now();
        run(&format!(
            "{runtime} --root {root} run --detach --bundle {} x </dev/null >/dev/null 2>&1",
            dir.display()
        ));
        timed(&mut alone_run, begun);
        run(&format!("{runtime} --root {root} delete --force x"));
    }
    println!(
        "{runtime} create + start alone: {:?}, run --detach alone: {:?}",
        median(alone),
        median(alone_run)
    );
    println!(
        "sandbox with network {:?}, container create {:?}, start {:?}, exec {:?}, remove pod {:?}",
        median(sandboxes),
        median(creates),
        median(starts),
        median(execs),
        median(stops)
    );
    let idle = resident_kb(node.keeper_pid());
    for round in 0..20 {
        let name = format!("many{round}");
        let sandbox = node.sandbox(&name).await;
        node.run(&sandbox, &name, node.container_config("c", &["sleep", "1000"])).await;
    }
    println!(
        "keeper: {idle} kB with 1 pod, {} kB with 21; engine {} kB",
        resident_kb(node.keeper_pid()),
        resident_kb(node.engine_pid())
    );
}
