//! Pods on one node, whose server and agent are started again without and with recording in turns.

use super::ratio::{Limit, median, of_groups, of_memory};
use crate::api::rss;
use crate::pod::{ms, round};
use crate::report::{Report, percentile};
use coracle_tests::pods::Cluster;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use std::time::Duration;

/// Neither is always the first.
const ROUNDS: [bool; 8] = [true, false, false, true, true, false, false, true];
const PODS: usize = 25;
/// Time between two pods.
const APART: Duration = Duration::from_millis(100);
/// After how long without work a node counts as idle.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Group {
    running: Vec<f64>,
    agent: Vec<f64>,
}

/// Measures pod starts and the agent's memory.
pub async fn run(report: &mut Report) -> anyhow::Result<()> {
    let plugins =
        coracle_tests::program("bridge").parent().map(std::path::Path::to_owned).unwrap_or_default();
    let flags = format!("--cni-bin-dir {}", plugins.display());
    let mut cluster = tokio::task::spawn_blocking(move || Cluster::start_with(&flags)).await?;
    let (mut with, mut without) = (Group::default(), Group::default());
    for (number, records) in ROUNDS.into_iter().enumerate() {
        let (server, agent): (&[&str], &str) =
            if records { (&[], "") } else { (&["--trace-size", "0"], "--trace-size 0") };
        tokio::task::block_in_place(|| cluster.restart_with(server, agent));
        let group = if records { &mut with } else { &mut without };
        measure(&cluster, number, group).await?;
    }
    let mut figure = |name: &str, figures: &dyn Fn(&Group) -> f64, unit: &'static str| {
        report.add(&format!("{name}, with recording"), figures(&with), unit);
        report.add(&format!("{name}, without"), figures(&without), unit);
    };
    figure("pod start p50", &|group: &Group| median(&group.running), "ms");
    figure("pod start p99", &|group: &Group| percentile(&mut group.running.clone(), 0.99), "ms");
    figure("agent idle", &|group: &Group| median(&group.agent), "MiB");
    of_memory(report, "agent idle", median(&with.agent) - median(&without.agent));
    of_groups(report, "pod start p50", &with.running, &without.running, Limit::Larger);
    tokio::task::spawn_blocking(move || drop(cluster)).await?;
    Ok(())
}

async fn measure(cluster: &Cluster, number: usize, group: &mut Group) -> anyhow::Result<()> {
    let file = kube::config::Kubeconfig::read_from(cluster.server.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
    let pods: Api<Pod> = Api::namespaced(kube::Client::try_from(config)?, "default");
    // The first pod after a start waits for the node.
    round(&pods, &[format!("warm{number}")], "").await?;
    tokio::time::sleep(IDLE).await;
    group.agent.push(rss(cluster.agent_pid()));
    for pod in 0..PODS {
        tokio::time::sleep(APART).await;
        let times = round(&pods, &[format!("start{number}-{pod}")], "").await?;
        group.running.extend(times.running.into_iter().map(ms));
    }
    Ok(())
}
