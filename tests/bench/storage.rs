//! Volumes of a storage driver: what one adds to the start and the end of a pod, how fast many are attached and detached, and what
//! they cost in memory. The driver is that of the tests; it binds directories, so that its own time is small.

use std::collections::HashSet;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::api::rss;
use crate::pod::{self, ms};
use crate::report::{Report, percentile, scaled};
use coracle_tests::csi_driver::CsiDriver;
use coracle_tests::pods::{Cluster, IMAGE};

/// Pods that are started alone, of each sort.
const SINGLES: usize = 40;
/// Pods that run at once, of each sort.
const CROWD: usize = 50;
/// Volumes that are attached to a node.
const ATTACHED: usize = 500;
/// Time between two pods that are started alone.
const APART: Duration = Duration::from_millis(100);
/// After how long without work a node counts as idle.
const IDLE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(300);
/// Requests at once.
const PARALLEL: usize = 32;
const MOUNTED: &str = "disk.example";
/// A driver whose volumes are attached, to a node without an agent.
const ATTACHING: &str = "attached.example";
const NODE: &str = "far";

/// Measures everything; in namespaces of its own.
pub async fn run() -> anyhow::Result<Report> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = tokio::task::spawn_blocking(Cluster::start).await?;
    let file = kube::config::Kubeconfig::read_from(cluster.server.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
    let client = kube::Client::try_from(config)?;
    for (name, is_attached) in [(MOUNTED, false), (ATTACHING, true)] {
        let driver = json!({"metadata": {"name": name}, "spec": {"attachRequired": is_attached}});
        create_all(&Api::<CSIDriver>::all(client.clone()), vec![driver]).await?;
    }
    let driver = CsiDriver::new(MOUNTED, &cluster.path("kubelet"), &cluster.path("disks"));
    driver.set_limit(1000);
    let driver = tokio::task::spawn_blocking(move || {
        let mut driver = driver;
        driver.start();
        driver
    })
    .await?;
    let mut report = Report::default();
    starts(&mut report, &client).await?;
    memory(&mut report, &client, cluster.agent_pid()).await?;
    attachments(&mut report, &client, cluster.server.pid()).await?;
    tokio::task::spawn_blocking(move || {
        drop(driver);
        drop(cluster);
    })
    .await?;
    Ok(report)
}

/// Creates objects, many at once.
async fn create_all<K>(api: &Api<K>, objects: Vec<Value>) -> anyhow::Result<()>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let created = objects.into_iter().map(|object| async move {
        let object: K = serde_json::from_value(object)?;
        api.create(&PostParams::default(), &object).await?;
        Ok::<_, anyhow::Error>(())
    });
    futures::stream::iter(created).buffer_unordered(PARALLEL).try_collect().await
}

/// Claims that are bound to volumes of a driver.
async fn claims(client: &kube::Client, driver: &str, names: &[String]) -> anyhow::Result<()> {
    let volume = |name: &String| {
        json!({"metadata": {"name": name}, "spec": {"storageClassName": "manual", "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "default", "name": name},
            "csi": {"driver": driver, "volumeHandle": format!("vol-{name}")}}})
    };
    let claim = |name: &String| {
        json!({"metadata": {"name": name}, "spec": {"storageClassName": "manual", "volumeName": name,
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    };
    create_all(&Api::<PersistentVolume>::all(client.clone()), names.iter().map(volume).collect()).await?;
    let api: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    create_all(&api, names.iter().map(claim).collect()).await?;
    let wanted: HashSet<&String> = names.iter().collect();
    until("claims are bound", || async {
        let all = api.list(&ListParams::default()).await?;
        let bound = all.items.iter().filter(|claim| {
            claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
                && claim.metadata.name.as_ref().is_some_and(|name| wanted.contains(name))
        });
        Ok(bound.count() == wanted.len())
    })
    .await
}

/// Waits until something holds.
async fn until<F: Future<Output = anyhow::Result<bool>>>(
    what: &str,
    holds: impl Fn() -> F,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !holds().await? {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// A pod with the volume of the claim of its name, or without.
fn pod(name: &str, has_volume: bool) -> anyhow::Result<Pod> {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [
        {"name": "c", "image": IMAGE, "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"]}]}});
    if has_volume {
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    }
    Ok(serde_json::from_value(pod)?)
}

/// Pods with and without a volume, turn by turn.
async fn starts(report: &mut Report, client: &kube::Client) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let count = scaled(SINGLES);
    let names: Vec<String> = (0..=count).map(|n| format!("single{n}")).collect();
    claims(client, MOUNTED, &names).await?;
    // By whether they have a volume: times until they run, and until they are gone.
    let (mut running, mut gone): ([Vec<f64>; 2], [Vec<f64>; 2]) = Default::default();
    for (round, name) in names.iter().enumerate() {
        for has_volume in [false, true] {
            tokio::time::sleep(APART).await;
            let times = pod::create_all(&pods, vec![pod(name, has_volume)?]).await?;
            let ended = pod::remove(&pods, std::slice::from_ref(name)).await?;
            // The first of each makes the network, and connects to the driver.
            if round > 0 {
                running[usize::from(has_volume)].extend(times.running.into_iter().map(ms));
                gone[usize::from(has_volume)].extend(ended.into_iter().map(ms));
            }
        }
    }
    for (what, times) in [("create to Running", &mut running), ("delete to gone", &mut gone)] {
        for (part, at) in [("p50", 0.5), ("p99", 0.99)] {
            let [without, with] = times.each_mut().map(|times| percentile(times, at));
            report.add(&format!("pod with a CSI volume: {what}, {part}"), with, "ms");
            report.add(&format!("   without a volume, {part}"), without, "ms");
            report.add(&format!("   with, by without, {part}"), with / without, "times");
        }
    }
    Ok(())
}

/// Memory of the agent with many pods, with and without volumes.
async fn memory(report: &mut Report, client: &kube::Client, agent: u32) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let count = scaled(CROWD);
    let names: Vec<String> = (0..count).map(|n| format!("crowd{n}")).collect();
    claims(client, MOUNTED, &names).await?;
    let mut resident = Vec::new();
    for has_volume in [false, true] {
        let all = names.iter().map(|name| pod(name, has_volume)).collect::<anyhow::Result<Vec<_>>>()?;
        let begun = Instant::now();
        pod::create_all(&pods, all).await?;
        let what = if has_volume { "with a CSI volume" } else { "without a volume" };
        report.add(&format!("{count} pods at once {what}: all Running"), begun.elapsed().as_secs_f64(), "s");
        tokio::time::sleep(IDLE).await;
        resident.push(rss(agent));
        report.add(&format!("agent, {count} pods {what}"), rss(agent), "MiB");
        pod::remove(&pods, &names).await?;
    }
    if let [without, with] = resident[..] {
        report.add("   with, by without", with / without, "times");
    }
    Ok(())
}

/// Volumes that are attached to a node without an agent, and detached. This process is the attacher.
async fn attachments(report: &mut Report, client: &kube::Client, server: u32) -> anyhow::Result<()> {
    let count = scaled(ATTACHED);
    let names: Vec<String> = (0..count).map(|n| format!("far{n}")).collect();
    let nodes: Api<Node> = Api::all(client.clone());
    create_all(&nodes, vec![json!({"metadata": {"name": NODE}})]).await?;
    claims(client, ATTACHING, &names).await?;
    tokio::time::sleep(IDLE).await;
    let before = rss(server);
    let attacher = tokio::spawn(attach(client.clone()));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let on_node = |name: &String| -> anyhow::Result<Value> {
        let mut pod = serde_json::to_value(pod(name, true)?)?;
        pod["spec"]["nodeName"] = json!(NODE);
        Ok(pod)
    };
    let begun = Instant::now();
    create_all(&pods, names.iter().map(on_node).collect::<anyhow::Result<_>>()?).await?;
    report.add(&format!("{count} pods with a volume to attach: created"), begun.elapsed().as_secs_f64(), "s");
    until("volumes are attached", || async {
        let status = nodes.get(NODE).await?.status.unwrap_or_default();
        Ok(status.volumes_attached.unwrap_or_default().len() == count)
    })
    .await?;
    let took = begun.elapsed().as_secs_f64();
    report.add(&format!("{count} volumes: create of the pods to all attached"), took, "s");
    report.add("   attached", count as f64 / took, "volumes/s");
    tokio::time::sleep(IDLE).await;
    report.add("server before volumes are attached", before, "MiB");
    report.add(&format!("server with {count} attached volumes"), rss(server), "MiB");
    report.add("   with, by without", rss(server) / before, "times");

    let attached: Api<VolumeAttachment> = Api::all(client.clone());
    let begun = Instant::now();
    let params = DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
    let deleted = names.iter().map(|name| pods.delete(name, &params));
    futures::stream::iter(deleted).buffer_unordered(PARALLEL).try_collect::<Vec<_>>().await?;
    until("volumes are detached", || async {
        Ok(attached.list(&ListParams::default().limit(1)).await?.items.is_empty())
    })
    .await?;
    let took = begun.elapsed().as_secs_f64();
    report.add(&format!("{count} volumes: delete of the pods to all detached"), took, "s");
    report.add("   detached", count as f64 / took, "volumes/s");
    attacher.abort();
    Ok(())
}

/// What an attacher does: says that new attachments are attached.
async fn attach(client: kube::Client) -> anyhow::Result<()> {
    let api: Api<VolumeAttachment> = Api::all(client);
    let version = api.list(&ListParams::default().limit(1)).await?.metadata.resource_version;
    let mut watch = api.watch(&WatchParams::default(), &version.unwrap_or_default()).await?.boxed();
    while let Some(event) = watch.try_next().await? {
        let WatchEvent::Added(new) = event else { continue };
        let name = new.metadata.name.unwrap_or_default();
        let status = Patch::Merge(json!({"status": {"attached": true}}));
        api.patch_status(&name, &PatchParams::default(), &status).await?;
    }
    Ok(())
}
