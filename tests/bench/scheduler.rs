//! The scheduler: 10,000 pods onto 1,000 and 5,000 nodes, twice.
//!
//! *Backlog*: the pods are there before the scheduler is; the time is from the first scheduled pod that its metrics show to the
//! last pod that the API shows with a node. *Live*: a scheduler at rest; the time is from the first create, over HTTPS by a
//! client on the same machine, to the last binding. The `Scheduled` events of all of them are waited for, and how much
//! later than the last binding the last one came is shown.

use crate::api::rss;
use crate::hollow;
use crate::report::Report;
use bytes::Bytes;
use coracle_tests::client::{Connection, Target};
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PODS: usize = 10_000;
const MANY: usize = 50_000;
const PATH: &str = "/api/v1/namespaces/default/pods";

/// What pods ask of their nodes.
#[derive(Clone, Copy)]
enum Wish {
    Plain,
    AntiAffinity,
    Spread,
}

fn pod(wish: Wish, number: usize) -> Value {
    // A hundred applications of a hundred pods each.
    let app = format!("app-{}", number % 100);
    let labels = json!({"app": app});
    let mut spec = json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}}]});
    let selector = json!({"matchLabels": labels});
    match wish {
        Wish::Plain => {}
        Wish::AntiAffinity => {
            spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}]}});
        }
        Wish::Spread => {
            spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{number}"), "labels": labels}, "spec": spec})
}

/// How many pods the scheduler says it has bound.
async fn scheduled(connection: &mut Connection) -> anyhow::Result<usize> {
    let page = connection.call("GET", "/metrics", Bytes::new()).await?;
    let page = String::from_utf8_lossy(&page).into_owned();
    let wanted = |line: &&str| {
        line.starts_with("scheduler_schedule_attempts_total{") && line.contains("result=\"scheduled\"")
    };
    let count = page.lines().find(wanted).and_then(|line| line.rsplit(' ').next()?.parse().ok());
    Ok(count.unwrap_or(0))
}

/// Pods bound per second, from the first of a backlog on.
async fn backlog(connection: &mut Connection) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let (first, since) = loop {
        let count = scheduled(connection).await?;
        if count > 0 {
            break (count, Instant::now());
        }
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(60), "nothing is scheduled");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    hollow::all_bound(connection, PODS).await?;
    Ok((PODS - first) as f64 / since.elapsed().as_secs_f64())
}

/// Waits until so many pods have the event of their binding.
async fn events(connection: &mut Connection, wanted: usize) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    loop {
        let path = "/api/v1/namespaces/default/events?fieldSelector=reason%3DScheduled";
        let list: Value = serde_json::from_slice(&connection.call("GET", path, Bytes::new()).await?)?;
        let count = list["items"].as_array().map_or(0, Vec::len);
        if count >= wanted {
            return Ok(begun.elapsed());
        }
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(120), "{count} of {wanted} events are written");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Everything.
pub async fn run() -> anyhow::Result<Report> {
    let mut report = Report::default();
    let sizes = match std::env::var("CORACLE_BENCH_NODES") {
        Ok(sizes) => sizes.split(',').filter_map(|size| size.parse().ok()).collect(),
        Err(_) => vec![1000, 5000],
    };
    for nodes in sizes {
        for (name, wish) in
            [("plain", Wish::Plain), ("anti-affinity", Wish::AntiAffinity), ("zone spread", Wish::Spread)]
        {
            measure(&mut report, nodes, name, wish).await?;
        }
    }
    Ok(report)
}

async fn measure(report: &mut Report, nodes: usize, name: &str, wish: Wish) -> anyhow::Result<()> {
    let mut server = Server::with(&hollow::RANGE);
    let target = Target::new(server.data_dir(), &server.url())?;
    let agents = hollow::nodes(&server, &mut target.connect().await?, nodes).await?;
    // Agents would take time from the scheduler; the nodes stay ready long enough without them.
    drop(agents);
    server.kill();
    server.restart_with(&["--api-only"]);
    hollow::create(&target, PATH, 0..PODS, move |number| pod(wish, number)).await?;
    server.kill();
    server.restart();
    let mut connection = target.connect().await?;
    let what = format!("{PODS} pods, {nodes} nodes, {name}");
    report.add(&format!("{what}: backlog, first to last binding"), backlog(&mut connection).await?, "pods/s");
    let late = events(&mut connection, PODS).await?;
    report.add(&format!("{what}: backlog, last binding to last event"), late.as_secs_f64(), "s");

    let begun = Instant::now();
    hollow::create(&target, PATH, PODS..2 * PODS, move |number| pod(wish, number)).await?;
    hollow::all_bound(&mut connection, 2 * PODS).await?;
    let rate = PODS as f64 / begun.elapsed().as_secs_f64();
    report.add(&format!("{what}: live, first create to last binding"), rate, "pods/s");
    if nodes >= 5000 && matches!(wish, Wish::Plain) {
        hollow::create(&target, PATH, 2 * PODS..MANY, move |number| pod(wish, number)).await?;
        hollow::all_bound(&mut connection, MANY).await?;
        report.add(&format!("RSS at {nodes} nodes and {MANY} pods"), rss(server.pid()), "MiB");
    }
    Ok(())
}
