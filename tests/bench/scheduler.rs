//! The scheduler: 10,000 pods that wait, onto 1,000 and 5,000 nodes, from the server's start to the last binding.

use crate::api::rss;
use crate::hollow;
use crate::report::Report;
use coracle_tests::client::Target;
use coracle_tests::server::Server;
use serde_json::{Value, json};

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
            let took = hollow::all_bound(&mut target.connect().await?, PODS).await?;
            let rate = PODS as f64 / took.as_secs_f64();
            report.add(&format!("{PODS} pods, {nodes} nodes, {name}"), rate, "pods/s");
            if nodes >= 5000 && matches!(wish, Wish::Plain) {
                hollow::create(&target, PATH, PODS..MANY, move |number| pod(wish, number)).await?;
                hollow::all_bound(&mut target.connect().await?, MANY).await?;
                report.add(&format!("RSS at {nodes} nodes and {MANY} pods"), rss(server.pid()), "MiB");
            }
        }
    }
    Ok(report)
}
