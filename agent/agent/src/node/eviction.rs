//! Evicts pods when memory, disk, inodes or pids run short.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

use super::eviction_parts::{EvictionParts, IMMEDIATE, binary};
use super::eviction_signals::{Disks, is_of_disk, is_of_memory, read_signals};
use super::eviction_watch::{EvictionWatch, Met};
use super::local_storage::{self, Amount};
use crate::events::Kind;
use crate::image::gc;
use crate::lifecycle::table::Message;
use crate::pod::node_facts::Pressure;
use crate::pod::observed::label;
use crate::pod::{all_pods, amount, spec};

const STORAGE: &str = "ephemeral-storage";
const INODES: &str = "inodes";
/// Interval between evictions, so that freed resources are measured first.
const EVICTION_INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait for an evicted pod to stop before evicting the next; a grace period comes on top.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait for containers of ended pods to be removed.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(10);

/// Eviction order: pods above their requests, then lower priority, then the largest excess. Pods cannot request inodes:
/// those with a request of storage are then taken last, as kubelets do.
pub fn rank_for_eviction(pods: &[Arc<Pod>], usage: &HashMap<String, i64>, resource: &str) -> Vec<Arc<Pod>> {
    let key = |pod: &Arc<Pod>| {
        let used = usage.get(spec::uid(pod)).copied().unwrap_or(0);
        let requests = spec::totals(&spec::spec(pod), false);
        let of = |resource: &str| requests.get(resource).copied().unwrap_or(0);
        let asked = if resource == INODES { STORAGE } else { resource };
        let priority = spec::spec(pod).priority.unwrap_or(0);
        (used <= of(resource), priority, std::cmp::Reverse(used.saturating_sub(of(asked))))
    };
    let mut ranked: Vec<Arc<Pod>> = pods.iter().filter(|pod| !spec::is_critical(pod)).cloned().collect();
    ranked.sort_by_key(key);
    ranked
}

/// Evicts pods under resource pressure.
#[derive(Default)]
pub struct Evictor {
    watch: EvictionWatch,
    last_eviction: Option<Instant>,
    /// How long the pod evicted last has to end, after a soft threshold.
    grace: Duration,
    /// Evicted, and not gone yet.
    ending: HashSet<String>,
    /// Where disks are measured, once the runtime has said where its images are.
    disks: Option<Disks>,
}

impl Evictor {
    /// Checks all signals once: under disk pressure removes containers of ended pods and unused images, then evicts one pod
    /// if that is not enough.
    pub async fn check(&mut self, parts: &EvictionParts) -> Pressure {
        let disks = self.disks(parts).await;
        let signals = read_signals(&disks, &all_pods::directory(&parts.config));
        let policy = parts.config.eviction.with_containers_on(disks.of_containers());
        let now = Instant::now();
        let short = self.watch.observe(&signals, &policy, now);
        if let Some(met) = short.first()
            && self.may_evict(&parts.pods.admitted())
        {
            let metadata = ObjectMeta { name: Some(parts.config.name.clone()), ..ObjectMeta::default() };
            let text = format!("Attempting to reclaim {}", resource_of(met.signal));
            let node = Node { metadata, ..Node::default() };
            parts.events.node(&node, Kind::Warning, "EvictionThresholdMet", text);
            let pods = parts.pods.admitted();
            if !(is_of_disk(met.signal) && reclaim(parts, &pods).await) {
                self.last_eviction = Some(now);
                let pods: Vec<_> =
                    pods.into_iter().filter(|pod| !self.ending.contains(spec::uid(pod))).collect();
                if let Some((uid, grace)) = evict(parts, &pods, met).await {
                    self.ending.insert(uid);
                    self.grace = grace;
                }
            }
        }
        self.watch.pressure(parts.config.pressure_transition, now)
    }

    /// Where disks are measured: images and layers of another runtime may be elsewhere than the agent's data.
    async fn disks(&mut self, parts: &EvictionParts) -> Disks {
        if let Some(disks) = &self.disks {
            return disks.clone();
        }
        let node = parts.config.root_dir.clone();
        let Ok(info) = parts.runtime.image_fs_info().await else {
            return Disks { images: node.clone(), containers: node.clone(), node };
        };
        let place = |usages: Vec<cri::FilesystemUsage>| {
            let place = usages.into_iter().find_map(|usage| usage.fs_id)?.mountpoint;
            Some(PathBuf::from(place)).filter(|place| place.is_absolute())
        };
        let images = place(info.image_filesystems).unwrap_or_else(|| node.clone());
        let containers = place(info.container_filesystems).unwrap_or_else(|| images.clone());
        let disks = self.disks.insert(Disks { node, images, containers }).clone();
        for signal in parts.config.eviction.given().filter(|signal| signal.starts_with("containerfs.")) {
            let used = disks.of_containers();
            tracing::warn!(signal, used, "eviction threshold has no effect: that of another disk is used");
        }
        disks
    }

    /// Whether the last evicted pod has stopped and the interval is over; `pods` are those still using resources.
    fn may_evict(&mut self, pods: &[Arc<Pod>]) -> bool {
        self.ending.retain(|uid| pods.iter().any(|pod| spec::uid(pod) == uid));
        let pause = if self.ending.is_empty() { EVICTION_INTERVAL } else { EVICTION_TIMEOUT + self.grace };
        self.last_eviction.is_none_or(|at| at.elapsed() >= pause)
    }
}

/// Removes containers of ended pods, then images that nothing uses any more and that are not new; whether anything was removed.
async fn reclaim(parts: &EvictionParts, pods: &[Arc<Pod>]) -> bool {
    let ended = parts.pods.ended_with_containers();
    let mut asked = Vec::new();
    for uid in &ended {
        let (done, removed) = oneshot::channel();
        parts.pods.send(uid, Message::Reclaim(done));
        asked.push(removed);
    }
    let all = async {
        for removed in asked {
            // Dropped, not sent.
            let _ = removed.await;
        }
    };
    // Workers that take longer go on meanwhile.
    let _ = tokio::time::timeout(RECLAIM_TIMEOUT, all).await;
    let is_removed = parts.pods.ended_with_containers().len() < ended.len();
    let policy = &parts.config.image_gc;
    gc::remove_unused(&*parts.runtime, pods, &parts.ages, policy).await || is_removed
}

/// What runs short.
fn resource_of(signal: &str) -> &'static str {
    match signal.split('.').next() {
        _ if is_of_memory(signal) => "memory",
        Some("pid") => "pids",
        _ if signal.ends_with("inodesFree") => INODES,
        _ => STORAGE,
    }
}

/// Evicts the first pod in eviction order; returns its uid, and how long it has to end after a soft threshold.
async fn evict(parts: &EvictionParts, pods: &[Arc<Pod>], met: &Met) -> Option<(String, Duration)> {
    let resource = resource_of(met.signal);
    let usage = usage(parts, pods, resource).await;
    let totals = usage.iter().map(|(uid, parts)| (uid.clone(), parts.values().sum())).collect();
    let pod = rank_for_eviction(pods, &totals, resource).into_iter().next()?;
    let (least, free) = match resource {
        INODES | "pids" => (met.least.to_string(), met.free.to_string()),
        _ => (binary(met.least), binary(met.free)),
    };
    let mut message =
        format!("The node was low on resource: {resource}. Threshold quantity: {least}, available: {free}. ");
    if let Some(used) = usage.get(spec::uid(&pod)) {
        message += &excess(&pod, used, resource);
    }
    let asked = spec::spec(&pod).termination_grace_period_seconds;
    let grace = if met.is_soft { parts.config.eviction.soft_grace(asked) } else { 0 }.max(IMMEDIATE);
    parts.events.pod(&pod, Kind::Warning, "Evicted", message.clone());
    tracing::info!(
        pod = spec::name(&pod),
        namespace = spec::namespace(&pod),
        uid = spec::uid(&pod),
        signal = met.signal,
        free,
        grace,
        "pod evicted"
    );
    parts.evict_under_pressure(&pod, message, grace);
    Some((spec::uid(&pod).to_owned(), Duration::from_secs(u64::try_from(grace).unwrap_or(0))))
}

/// Which containers use more than they asked for.
fn excess(pod: &Pod, used: &BTreeMap<String, i64>, resource: &str) -> String {
    let spec = spec::spec(pod);
    let mut text = String::new();
    if resource == INODES {
        return text;
    }
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let request = requests.and_then(|requests| requests.get(resource));
        let Some(used) = used.get(&container.name).copied() else { continue };
        if used > request.map_or(0, amount::units) {
            let asked = request.map_or("0", |quantity| &quantity.0);
            text += &format!(
                "Container {} was using {}, request is {asked}, has larger consumption of {resource}. ",
                container.name,
                binary(used)
            );
        }
    }
    text
}

/// What each pod uses, by uid and by container; processes are counted for the pod as a whole.
async fn usage(
    parts: &EvictionParts,
    pods: &[Arc<Pod>],
    resource: &str,
) -> HashMap<String, BTreeMap<String, i64>> {
    let mut all: HashMap<String, BTreeMap<String, i64>> = HashMap::new();
    if matches!(resource, STORAGE | INODES) {
        for (pod, usage) in local_storage::measure_pods(parts, pods.to_vec()).await {
            all.insert(spec::uid(&pod).to_owned(), disk_parts(&usage, resource));
        }
        return all;
    }
    let mut add = |uid: String, part: String, amount: u64| {
        *all.entry(uid).or_default().entry(part).or_default() += i64::try_from(amount).unwrap_or(i64::MAX);
    };
    if resource == "pids" {
        for stats in parts.runtime.list_pod_sandbox_stats(None).await.unwrap_or_default() {
            let uid = stats.attributes.and_then(|attributes| attributes.metadata).unwrap_or_default().uid;
            let process = stats.linux.and_then(|linux| linux.process);
            let count = process.and_then(|process| process.process_count).map_or(0, |count| count.value);
            add(uid, String::new(), count);
        }
        return all;
    }
    for stats in parts.runtime.list_container_stats(None).await.unwrap_or_default() {
        let Some(attributes) = &stats.attributes else { continue };
        let Some(uid) = attributes.labels.get(label::POD_UID) else { continue };
        let bytes =
            stats.memory.as_ref().and_then(|memory| memory.working_set_bytes).map(|value| value.value);
        let name = attributes.labels.get(label::CONTAINER_NAME).cloned().unwrap_or_default();
        add(uid.clone(), name, bytes.unwrap_or(0));
    }
    all
}

/// What a pod uses of the disk: by container, volumes together under no name.
fn disk_parts(usage: &local_storage::Usage, resource: &str) -> BTreeMap<String, i64> {
    let of = |amount: &Amount| if resource == INODES { amount.files } else { amount.bytes };
    let volumes = usage.volumes.values().map(of).fold(0, i64::saturating_add);
    let containers = usage.containers.iter().map(|(name, amount)| (name.clone(), of(amount)));
    containers.chain([(String::new(), volumes)]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_message_names_who_used_too_much() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
            {"name": "large", "resources": {"requests": {"memory": "1Mi"}}},
            {"name": "free"},
            {"name": "small", "resources": {"requests": {"memory": "8Mi"}}}]}}))
        .unwrap();
        let used = BTreeMap::from(
            [("large", 3 << 20), ("free", 1025 << 10), ("small", 5 << 20)].map(|(n, b)| (n.to_owned(), b)),
        );
        assert_eq!(
            excess(&pod, &used, "memory"),
            "Container large was using 3Mi, request is 1Mi, has larger consumption of memory. \
             Container free was using 1025Ki, request is 0, has larger consumption of memory. "
        );
        assert_eq!([0, 1, 1024, 100 << 20, 3 << 40].map(binary), ["0", "1", "1Ki", "100Mi", "3Ti"]);
    }

    #[test]
    fn who_goes_first() {
        let pod = |uid: &str, request: &str, priority: i32| -> Arc<Pod> {
            Arc::new(
                serde_json::from_value(
                    json!({"metadata": {"uid": uid, "name": uid}, "spec": {"priority": priority,
                "containers": [{"name": "c", "resources": {"requests": {"memory": request}}}]}}),
                )
                .unwrap(),
            )
        };
        let pods = [
            pod("within", "100", 0),
            pod("over", "10", 0),
            pod("over-more", "0", 0),
            pod("over-important", "0", 10),
            pod("system", "0", 2_000_000_000),
        ];
        let usage = HashMap::from(
            ["within", "over", "over-more", "over-important", "system"].map(|uid| (uid.to_owned(), 50)),
        );
        let order: Vec<String> =
            rank_for_eviction(&pods, &usage, "memory").iter().map(|pod| spec::uid(pod).to_owned()).collect();
        assert_eq!(order, ["over-more", "over", "over-important", "within"]);
    }

    #[test]
    fn eviction_ranks_by_logs_and_volumes_too_and_inodes_by_their_number() {
        let pod = |uid: &str, request: &str| -> Arc<Pod> {
            let requests = json!({"ephemeral-storage": request});
            let spec = json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
            Arc::new(serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap())
        };
        let amount = |bytes, files| Amount { bytes, files };
        let of = |container: Amount, volume: Amount| local_storage::Usage {
            containers: HashMap::from([("c".to_owned(), container)]),
            volumes: HashMap::from([("v".to_owned(), volume)]),
        };
        let pods = [pod("layer", "0"), pod("volume", "0"), pod("asked", "1Mi")];
        let usages = [
            ("layer", of(amount(500, 1), amount(0, 0))),
            ("volume", of(amount(10, 1), amount(900, 2))),
            ("asked", of(amount(2000, 900), amount(0, 0))),
        ];
        let order = |resource: &str| -> Vec<String> {
            let sum = |usage: &local_storage::Usage| disk_parts(usage, resource).values().sum();
            let totals = usages.iter().map(|(uid, usage)| ((*uid).to_owned(), sum(usage))).collect();
            rank_for_eviction(&pods, &totals, resource).iter().map(|pod| spec::uid(pod).to_owned()).collect()
        };
        assert_eq!(order(STORAGE), ["volume", "layer", "asked"]);
        assert_eq!(order(INODES), ["volume", "layer", "asked"]);
        let many = HashMap::from([("layer".to_owned(), 9), ("volume".to_owned(), 3)]);
        assert_eq!(spec::uid(&rank_for_eviction(&pods[..2], &many, INODES)[0]), "layer");
    }

    #[test]
    fn one_pod_goes_at_a_time() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "a"}})).unwrap();
        let (there, gone) = ([Arc::new(pod)], []);
        let mut watcher = Evictor::default();
        assert!(watcher.may_evict(&there));
        watcher.ending.insert("a".to_owned());
        for (since, pods, want) in [
            (EVICTION_INTERVAL, &there[..], false),
            (EVICTION_TIMEOUT, &there[..], true),
            (Duration::ZERO, &gone[..], false),
            (EVICTION_INTERVAL, &gone[..], true),
        ] {
            watcher.last_eviction = Instant::now().checked_sub(since);
            assert_eq!(watcher.may_evict(pods), want, "{since:?} after the last, {} left", pods.len());
        }
        // A pod that has time to end may use it before the next one goes.
        watcher.ending.insert("a".to_owned());
        watcher.grace = Duration::from_secs(60);
        for (since, want) in [(EVICTION_TIMEOUT, false), (EVICTION_TIMEOUT + watcher.grace, true)] {
            watcher.last_eviction = Instant::now().checked_sub(since);
            assert_eq!(watcher.may_evict(&there), want, "{since:?} after the last");
        }
    }
}
