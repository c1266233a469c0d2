//! Attaches pods to the cluster network and detaches them.

use std::{
    collections::HashSet,
    io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use coracle_cli::causes;
use coracle_cni::{loopback, netns::Netns};
use serde_json::{Map, Value, json};
use tokio::sync::RwLock;

use super::{
    Attachment, ConfigError, Dns, Error, Result,
    cache::{Cache, Entry},
    config::{self, NetworkList},
    exec::{self, CallArgs, Verb},
};

/// The capability of plugins that map ports.
const PORTS: &str = "portMappings";
/// The capability of plugins that limit traffic.
const BANDWIDTH: &str = "bandwidth";
/// Chained plugins that only pass their input on for pods without arguments of a capability.
const IDLE: [(&str, &str); 2] = [("portmap", PORTS), ("bandwidth", BANDWIDTH)];

/// Where configurations, plugins and cached attachments live.
#[derive(Debug, Clone)]
pub struct NetworkDirs {
    /// Configurations, usually `/etc/cni/net.d`.
    pub conf: PathBuf,
    /// Plugin executables, searched in order, usually `/opt/cni/bin`.
    pub bin: Vec<PathBuf>,
    /// Cached attachments, usually `/var/lib/cni`.
    pub cache: PathBuf,
}

/// A host port mapping of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMapping {
    /// Port on the host.
    pub host_port: u16,
    /// Port in the pod.
    pub container_port: u16,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// Host address to listen on; empty for all.
    pub host_ip: String,
}

/// Limits of the pod's traffic in bits per second; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// Towards the pod.
    pub ingress: u64,
    /// From the pod.
    pub egress: u64,
}

/// Parameters of a pod's attachment.
#[derive(Debug, Clone, Default)]
pub struct PodNet {
    /// Sandbox id: `CNI_CONTAINERID`.
    pub id: String,
    /// Path of its network namespace.
    pub netns: PathBuf,
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod uid.
    pub uid: String,
    /// Name of its interface; `eth0` when empty.
    pub ifname: String,
    /// Host ports.
    pub port_mappings: Vec<PortMapping>,
    /// DNS offered to plugins with the `dns` capability.
    pub dns: Dns,
    /// Addresses asked for.
    pub ips: Vec<IpAddr>,
    /// Hardware address asked for.
    pub mac: Option<String>,
    /// Traffic limits.
    pub bandwidth: Option<Bandwidth>,
    /// Path of its cgroup, for plugins with the `cgroupPath` capability.
    pub cgroup: Option<String>,
    /// Loopback is up already.
    pub has_loopback: bool,
}

/// The cluster network of this node.
#[derive(Debug)]
pub struct Network {
    dirs: NetworkDirs,
    cache: Cache,
    /// Shared by ADD and DEL, exclusive for GC: GC must not remove an attachment that is being made.
    gate: RwLock<()>,
}

impl Network {
    /// Reads nothing yet: configurations are read by each call and may change at any time.
    pub fn new(dirs: NetworkDirs) -> Self {
        let cache = Cache::new(&dirs.cache);
        Network { dirs, cache, gate: RwLock::new(()) }
    }

    /// Whether pods can join now: a usable configuration, its plugins installed, and their STATUS (CNI ≥ 1.1) good.
    pub async fn status(&self) -> Result<()> {
        let list = config::first(&self.dirs.conf)?;
        if !list.at_least("1.1.0") {
            let mut kinds = list.plugins.iter().filter_map(config::plugin_type);
            return kinds.try_for_each(|kind| exec::find(&self.dirs.bin, kind).map(drop));
        }
        for plugin in &list.plugins {
            let stdin = list.stdin_of(plugin, &Map::new(), None);
            exec::run(&self.dirs.bin, &list.name, Verb::Status, &CallArgs::default(), &stdin).await?;
        }
        Ok(())
    }

    /// Joins a pod to the network.
    ///
    /// On failure, runs DEL for what was done; the caller should still call `detach`.
    /// After a crash in the middle, `detach` or `gc` finds the attachment in the cache.
    pub async fn attach(&self, pod: &PodNet) -> Result<Attachment> {
        let list = config::first(&self.dirs.conf)?;
        let _shared = self.gate.read().await;
        let mut entry = Entry::new(&pod.id, pod.ifname(), &list.name, &list.source);
        entry.netns = pod.netns.display().to_string();
        entry.cni_args = pod.cni_args();
        entry.capability_args = pod.capabilities();
        self.cache.put(&entry)?;
        match self.add_chain(&list, &mut entry, pod.has_loopback).await {
            Ok(result) => Ok(Attachment::from_result(result)),
            Err(error) => {
                if let Err(undo) = self.del_entry(&entry).await {
                    tracing::warn!(
                        pod = pod.name,
                        namespace = pod.namespace,
                        error = %causes::chain(&undo),
                        "DEL failed after a failed CNI ADD"
                    );
                }
                Err(error)
            }
        }
    }

    async fn add_chain(&self, list: &NetworkList, entry: &mut Entry, has_loopback: bool) -> Result<Value> {
        if !has_loopback {
            loopback_up(Path::new(&entry.netns)).await?;
        }
        let args = call_args(entry);
        let mut prev = None;
        for plugin in &list.plugins {
            if prev.is_some() && is_idle(plugin, entry) {
                continue;
            }
            let stdin = list.stdin_of(plugin, &entry.capability_args, prev.as_ref());
            prev = Some(exec::run(&self.dirs.bin, &list.name, Verb::Add, &args, &stdin).await?);
        }
        entry.result = prev.unwrap_or_default();
        self.cache.put(entry)?;
        Ok(entry.result.clone())
    }

    /// Detaches a pod from all cached networks. Idempotent; succeeds for an unknown pod.
    ///
    /// All plugins are tried even when one fails; the cache entry stays until all succeeded, so that a retry works.
    pub async fn detach(&self, pod: &PodNet) -> Result<()> {
        let _shared = self.gate.read().await;
        let entries = self.cache.entries(Some(&pod.id))?;
        if !entries.is_empty() {
            let mut errors = Vec::new();
            for entry in entries {
                errors.extend(self.del_entry(&entry).await.err());
            }
            return Error::collect(errors);
        }
        // Not cached: attached before the cache existed, or detached already. Tries the current network.
        let list = match config::first(&self.dirs.conf) {
            Ok(list) => list,
            Err(Error::NoConfig { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut entry = Entry::new(&pod.id, pod.ifname(), &list.name, &list.source);
        entry.netns = pod.netns.display().to_string();
        entry.cni_args = pod.cni_args();
        entry.capability_args = pod.capabilities();
        self.del_entry(&entry).await
    }

    async fn del_entry(&self, entry: &Entry) -> Result<()> {
        let list = entry.list().ok_or(ConfigError::Cache);
        let list = list.and_then(NetworkList::parse).map_err(|reason| Error::BadConfig {
            path: self.dirs.cache.join("results").join(&entry.network_name),
            reason,
        })?;
        let mut args = call_args(entry);
        // A crash between unmounting and removing leaves a plain file, which plugins refuse for ever.
        if Netns::open(&args.netns).is_err() {
            args.netns = PathBuf::new();
        }
        let prev = Some(&entry.result).filter(|r| !r.is_null() && list.at_least("0.4.0"));
        let mut errors = Vec::new();
        let first = list.plugins.first();
        for plugin in list.plugins.iter().rev() {
            if first != Some(plugin) && is_idle(plugin, entry) {
                continue;
            }
            let stdin = list.stdin_of(plugin, &entry.capability_args, prev);
            match exec::run(&self.dirs.bin, &list.name, Verb::Del, &args, &stdin).await {
                // ADD has no result: it stopped at the missing plugin, which did nothing.
                Ok(_) => {}
                Err(Error::PluginMissing { .. }) if entry.result.is_null() => {}
                Err(error) => errors.push(error),
            }
        }
        Error::collect(errors)?;
        self.cache.remove(entry)
    }

    /// Whether the pod's attachment is still as ADD left it. A pod without a cached result is an error.
    pub async fn check(&self, pod: &PodNet) -> Result<Attachment> {
        let entries = self.cache.entries(Some(&pod.id))?;
        let Some(entry) = entries.into_iter().find(|e| !e.result.is_null()) else {
            return Err(Error::Plugin {
                plugin: String::new(),
                network: String::new(),
                verb: "check",
                code: 3,
                message: format!("container {} has no attachment", pod.id),
            });
        };
        let list = entry.list().and_then(|list| NetworkList::parse(list).ok());
        if let Some(list) = list.filter(|l| l.at_least("0.4.0") && !l.disable_check) {
            for plugin in &list.plugins {
                let stdin = list.stdin_of(plugin, &entry.capability_args, Some(&entry.result));
                exec::run(&self.dirs.bin, &list.name, Verb::Check, &call_args(&entry), &stdin).await?;
            }
        }
        Ok(Attachment::from_result(entry.result))
    }

    /// Restores host ports that another program removed from the kernel; returns the number of repaired attachments.
    /// Attachments that pass CHECK are not touched.
    pub async fn restore_ports(&self) -> Result<usize> {
        // Exclusive: ports of an attachment that is being removed must not be restored.
        let _alone = self.gate.write().await;
        let (mut mended, mut errors) = (0, Vec::new());
        for entry in self.cache.entries(None)? {
            if entry.result.is_null() || !entry.capability_args.contains_key(PORTS) {
                continue;
            }
            let list = entry.list().and_then(|list| NetworkList::parse(list).ok());
            let Some(list) = list.filter(|list| list.at_least("0.4.0") && !list.disable_check) else {
                continue;
            };
            for plugin in list.plugins.iter().filter(|plugin| config::has_capability(plugin, PORTS)) {
                let stdin = list.stdin_of(plugin, &entry.capability_args, Some(&entry.result));
                let args = call_args(&entry);
                if exec::run(&self.dirs.bin, &list.name, Verb::Check, &args, &stdin).await.is_ok() {
                    continue;
                }
                match exec::run(&self.dirs.bin, &list.name, Verb::Add, &args, &stdin).await {
                    Ok(_) => mended += 1,
                    Err(error) => errors.push(error),
                }
            }
        }
        Error::collect(errors).map(|()| mended)
    }

    /// The cached result of ADD, without running a plugin.
    pub fn attached(&self, pod_id: &str) -> Result<Option<Attachment>> {
        let entries = self.cache.entries(Some(pod_id))?;
        let result = entries.into_iter().map(|e| e.result).find(|r| !r.is_null());
        Ok(result.map(Attachment::from_result))
    }

    /// Detaches every cached attachment whose container is not in `live()`, then tells the plugins (CNI ≥ 1.1) what is
    /// left, for what they kept on their own.
    ///
    /// `live` is called while no ADD is running: a caller that records sandboxes before `attach` loses none.
    pub async fn gc(&self, live: impl FnOnce() -> HashSet<String>) -> Result<()> {
        let _alone = self.gate.write().await;
        let live = live();
        self.cache.sweep();
        let (mut errors, mut kept) = (Vec::new(), Vec::new());
        for entry in self.cache.entries(None)? {
            match live.contains(&entry.container_id) {
                true => kept.push(entry),
                false => errors.extend(self.del_entry(&entry).await.err()),
            }
        }
        match config::first(&self.dirs.conf) {
            Ok(list) if list.at_least("1.1.0") && !list.disable_gc => {
                errors.extend(self.gc_plugins(&list, &kept).await);
            }
            Ok(_) | Err(Error::NoConfig { .. }) => {}
            Err(error) => errors.push(error),
        }
        Error::collect(errors)
    }

    async fn gc_plugins(&self, list: &NetworkList, kept: &[Entry]) -> Vec<Error> {
        let valid: Vec<Value> = kept
            .iter()
            .filter(|entry| entry.network_name == list.name)
            .map(|entry| json!({ "containerID": entry.container_id, "ifname": entry.if_name }))
            .collect();
        let mut errors = Vec::new();
        for plugin in &list.plugins {
            let mut stdin = list.stdin_of(plugin, &Map::new(), None);
            stdin["cni.dev/valid-attachments"] = Value::Array(valid.clone());
            stdin["cni.dev/attachments"] = Value::Array(valid.clone());
            let args = CallArgs::default();
            errors.extend(exec::run(&self.dirs.bin, &list.name, Verb::Gc, &args, &stdin).await.err());
        }
        errors
    }
}

impl PodNet {
    fn ifname(&self) -> &str {
        if self.ifname.is_empty() { "eth0" } else { &self.ifname }
    }

    fn cni_args(&self) -> Vec<(String, String)> {
        let pairs = [
            ("IgnoreUnknown", "1"),
            ("K8S_POD_NAMESPACE", &self.namespace),
            ("K8S_POD_NAME", &self.name),
            ("K8S_POD_INFRA_CONTAINER_ID", &self.id),
            ("K8S_POD_UID", &self.uid),
        ];
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn capabilities(&self) -> Map<String, Value> {
        let mut offered = Map::new();
        let mut offer = |name: &str, value: Value| offered.insert(name.to_owned(), value);
        if !self.port_mappings.is_empty() {
            let ports = self.port_mappings.iter().map(|port| {
                json!({
                    "hostPort": port.host_port, "containerPort": port.container_port,
                    "protocol": port.protocol.to_lowercase(), "hostIP": port.host_ip,
                })
            });
            offer(PORTS, ports.collect());
        }
        if !self.dns.is_empty() {
            offer("dns", self.dns.as_capability());
        }
        if !self.ips.is_empty() {
            offer("ips", self.ips.iter().map(ToString::to_string).collect());
        }
        if let Some(mac) = &self.mac {
            offer("mac", Value::String(mac.clone()));
        }
        if let Some(cgroup) = &self.cgroup {
            offer("cgroupPath", Value::String(cgroup.clone()));
        }
        if let Some(Bandwidth { ingress, egress }) = self.bandwidth {
            // The plugin requires a burst. The kubelet also uses the maximum.
            let burst = u64::from(u32::MAX);
            let mut limits = Map::new();
            for (rate, name) in [(ingress, "ingress"), (egress, "egress")] {
                if rate > 0 {
                    limits.insert(format!("{name}Rate"), rate.into());
                    limits.insert(format!("{name}Burst"), burst.into());
                }
            }
            offer(BANDWIDTH, Value::Object(limits));
        }
        offered
    }
}

/// True for a plugin that would only pass its input on: that for host ports if the pod has none, that for limits of traffic if
/// neither the pod nor the configuration has one.
fn is_idle(plugin: &Map<String, Value>, entry: &Entry) -> bool {
    let kind = config::plugin_type(plugin);
    let Some((_, capability)) = IDLE.iter().find(|(known, _)| Some(*known) == kind) else { return false };
    let limits = ["ingressRate", "egressRate"].iter().any(|key| plugin.contains_key(*key));
    config::has_capability(plugin, capability)
        && !plugin.contains_key("runtimeConfig")
        && !limits
        && !entry.capability_args.contains_key(*capability)
}

/// Every pod has a loopback, whatever its network is made of.
async fn loopback_up(path: &Path) -> Result<()> {
    let netns = path.to_owned();
    // A dedicated thread: threads of the pool must never be in another namespace.
    let work = move || {
        let thread = std::thread::spawn(move || {
            let netns = Netns::open(&netns)?;
            loopback::bring_up(&netns).map_err(io::Error::other)
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    };
    let outcome = tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(io::Error::other(e)));
    outcome.map_err(|source| Error::Io { action: "bringing up the loopback of", path: path.into(), source })
}

fn call_args(entry: &Entry) -> CallArgs {
    let pairs: Vec<String> = entry.cni_args.iter().map(|(key, value)| format!("{key}={value}")).collect();
    CallArgs {
        container_id: entry.container_id.clone(),
        netns: entry.netns.clone().into(),
        ifname: entry.if_name.clone(),
        args: pairs.join(";"),
    }
}
