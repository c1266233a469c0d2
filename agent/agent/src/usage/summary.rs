//! `/stats/summary`: everything as one document, in the kubelet's form.

use coracle_proto::cri;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Reading;
use super::machine::Space;
use crate::volume;

/// When a pod and its containers started.
pub type Started<'a> = &'a dyn Fn(&str, Option<&str>) -> Option<String>;

/// What was read of a pod's volumes.
pub type Volumes<'a> = &'a dyn Fn(&str) -> Vec<volume::usage::Reading>;

/// The document. `started` tells the start of a pod by its uid, or of one of its containers.
pub fn summary(node: &str, reading: &Reading, started: Started<'_>, volumes: Volumes<'_>) -> Value {
    let now = stamp(reading.at);
    let machine = &reading.machine;
    let fs = space(&machine.disk, &now);
    json!({
        "node": {
            "nodeName": node,
            "startTime": Timestamp::from_second(machine.boot).map(stamp).unwrap_or_default(),
            "cpu": drop_nulls(json!({
                "time": now, "usageNanoCores": machine.cpu_rate, "usageCoreNanoSeconds": machine.cpu_total,
            })),
            "memory": {
                "time": now, "availableBytes": machine.memory_available, "usageBytes": machine.memory_used,
                "workingSetBytes": machine.working_set, "rssBytes": machine.rss,
            },
            "swap": {
                "time": now, "swapUsageBytes": machine.swap_used, "swapAvailableBytes": machine.swap_free,
            },
            "fs": fs,
            "runtime": {"imageFs": fs, "containerFs": fs},
            "rlimit": {"time": now, "maxpid": machine.processes_most, "curproc": machine.processes},
        },
        "pods": reading.pods.iter().filter_map(|stats| pod(stats, machine, started, volumes)).collect::<Vec<_>>(),
    })
}

fn stamp(at: Timestamp) -> String {
    format!("{at:.0}")
}

fn nanos(at: i64) -> String {
    Timestamp::from_nanosecond(i128::from(at)).map(stamp).unwrap_or_default()
}

fn drop_nulls(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.retain(|_, value| !value.is_null());
    }
    value
}

fn space(space: &Space, now: &str) -> Value {
    json!({
        "time": now, "availableBytes": space.available, "capacityBytes": space.capacity,
        "usedBytes": space.capacity.saturating_sub(space.available),
        "inodesFree": space.inodes_free, "inodes": space.inodes,
        "inodesUsed": space.inodes.saturating_sub(space.inodes_free),
    })
}

fn number(value: &Option<cri::UInt64Value>) -> Value {
    value.as_ref().map_or(Value::Null, |value| value.value.into())
}

fn pressure(psi: &Option<cri::PsiStats>) -> Value {
    let data = |data: &Option<cri::PsiData>| {
        let data = data.unwrap_or_default();
        json!({"total": data.total, "avg10": data.avg10, "avg60": data.avg60, "avg300": data.avg300})
    };
    psi.as_ref().map_or(Value::Null, |psi| json!({"full": data(&psi.full), "some": data(&psi.some)}))
}

fn cpu(cpu: &Option<cri::CpuUsage>) -> Value {
    cpu.as_ref().map_or(Value::Null, |cpu| {
        drop_nulls(json!({
            "time": nanos(cpu.timestamp), "usageNanoCores": number(&cpu.usage_nano_cores),
            "usageCoreNanoSeconds": number(&cpu.usage_core_nano_seconds), "psi": pressure(&cpu.psi),
        }))
    })
}

fn memory(memory: &Option<cri::MemoryUsage>) -> Value {
    memory.as_ref().map_or(Value::Null, |memory| {
        drop_nulls(json!({
            "time": nanos(memory.timestamp), "availableBytes": number(&memory.available_bytes),
            "usageBytes": number(&memory.usage_bytes), "workingSetBytes": number(&memory.working_set_bytes),
            "rssBytes": number(&memory.rss_bytes), "pageFaults": number(&memory.page_faults),
            "majorPageFaults": number(&memory.major_page_faults), "psi": pressure(&memory.psi),
        }))
    })
}

fn io(io: &Option<cri::IoUsage>) -> Value {
    io.as_ref()
        .map_or(Value::Null, |io| drop_nulls(json!({"time": nanos(io.timestamp), "psi": pressure(&io.psi)})))
}

/// The first interface, and all of them.
#[derive(Serialize)]
struct Network<'a> {
    #[serde(flatten)]
    default: Interface<'a>,
    time: String,
    interfaces: Vec<Interface<'a>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Interface<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rx_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_errors: Option<u64>,
}

impl<'a> Interface<'a> {
    fn of(usage: &'a cri::NetworkInterfaceUsage) -> Self {
        let number = |value: &Option<cri::UInt64Value>| value.as_ref().map(|value| value.value);
        Self {
            name: &usage.name,
            rx_bytes: number(&usage.rx_bytes),
            rx_errors: number(&usage.rx_errors),
            tx_bytes: number(&usage.tx_bytes),
            tx_errors: number(&usage.tx_errors),
        }
    }
}

fn network(usage: &Option<cri::NetworkUsage>) -> Value {
    usage.as_ref().map_or(Value::Null, |usage| {
        let default = usage.default_interface.as_ref();
        json!(Network {
            default: default.map(Interface::of).unwrap_or_default(),
            time: nanos(usage.timestamp),
            interfaces: default.into_iter().chain(&usage.interfaces).map(Interface::of).collect(),
        })
    })
}

/// A writable layer, on the disk it is on.
fn layer(usage: &Option<cri::FilesystemUsage>, disk: &Space) -> Value {
    usage.as_ref().map_or(Value::Null, |usage| {
        drop_nulls(json!({
            "time": nanos(usage.timestamp), "availableBytes": disk.available, "capacityBytes": disk.capacity,
            "usedBytes": number(&usage.used_bytes), "inodesFree": disk.inodes_free, "inodes": disk.inodes,
            "inodesUsed": number(&usage.inodes_used),
        }))
    })
}

fn volume(namespace: &str, reading: &volume::usage::Reading) -> Value {
    let stats = &reading.stats;
    let claim = reading.claim.as_ref().map(|name| json!({"name": name, "namespace": namespace}));
    let health = reading.health.as_ref().map(|health| json!({"abnormal": health.is_abnormal}));
    drop_nulls(json!({
        "time": stamp(reading.at), "name": reading.volume, "pvcRef": claim, "volumeHealthStats": health,
        "availableBytes": stats.available, "capacityBytes": stats.capacity, "usedBytes": stats.used,
        "inodesFree": stats.inodes_free, "inodes": stats.inodes, "inodesUsed": stats.inodes_used,
    }))
}

fn pod(
    stats: &cri::PodSandboxStats,
    machine: &super::MachineUsage,
    started: Started<'_>,
    volumes: Volumes<'_>,
) -> Option<Value> {
    let meta = stats.attributes.as_ref()?.metadata.as_ref()?;
    let linux = stats.linux.as_ref()?;
    let begun = |container: Option<&str>| started(&meta.uid, container).map_or(Value::Null, Value::from);
    let containers: Vec<Value> = linux
        .containers
        .iter()
        .filter_map(|stats| {
            let name = &stats.attributes.as_ref()?.metadata.as_ref()?.name;
            Some(drop_nulls(json!({
                "name": name, "startTime": begun(Some(name)), "cpu": cpu(&stats.cpu),
                "memory": memory(&stats.memory), "io": io(&stats.io),
                "rootfs": layer(&stats.writable_layer, &machine.disk),
            })))
        })
        .collect();
    let used: u64 = linux
        .containers
        .iter()
        .filter_map(|stats| Some(stats.writable_layer.as_ref()?.used_bytes.as_ref()?.value))
        .sum();
    let mut shown = Map::new();
    shown.insert("podRef".into(), json!({"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}));
    shown.insert("startTime".into(), begun(None));
    shown.insert("containers".into(), containers.into());
    shown.insert("cpu".into(), cpu(&linux.cpu));
    shown.insert("memory".into(), memory(&linux.memory));
    shown.insert("io".into(), io(&linux.io));
    shown.insert("network".into(), network(&linux.network));
    let processes = linux.process.as_ref().map(|p| number(&p.process_count));
    shown.insert("process_stats".into(), json!({"process_count": processes}));
    let volumes: Vec<Value> = volumes(&meta.uid).iter().map(|one| volume(&meta.namespace, one)).collect();
    if !volumes.is_empty() {
        shown.insert("volume".into(), volumes.into());
    }
    let disk = &machine.disk;
    shown.insert(
        "ephemeral-storage".into(),
        json!({"availableBytes": disk.available, "capacityBytes": disk.capacity, "usedBytes": used,
            "inodes": disk.inodes, "inodesFree": disk.inodes_free}),
    );
    Some(drop_nulls(Value::Object(shown)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::volume::csi::VolumeStats;

    #[test]
    fn a_pod_is_shown_as_the_kubelet_shows_it() {
        let value = |value| Some(cri::UInt64Value { value });
        let container = cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes {
                metadata: Some(cri::ContainerMetadata { name: "c".into(), attempt: 0 }),
                ..Default::default()
            }),
            cpu: Some(cri::CpuUsage {
                timestamp: 1_767_225_600_000_000_000,
                usage_core_nano_seconds: value(7),
                usage_nano_cores: value(3),
                psi: None,
            }),
            ..Default::default()
        };
        let stats = cri::PodSandboxStats {
            attributes: Some(cri::PodSandboxAttributes {
                metadata: Some(cri::PodSandboxMetadata {
                    name: "p".into(),
                    namespace: "n".into(),
                    uid: "u".into(),
                    attempt: 0,
                }),
                ..Default::default()
            }),
            linux: Some(cri::LinuxPodSandboxStats { containers: vec![container], ..Default::default() }),
            ..Default::default()
        };
        let reading = Reading { pods: vec![stats], ..Reading::default() };
        let started =
            |uid: &str, container: Option<&str>| Some(format!("{uid} {}", container.unwrap_or("pod")));
        let volumes = |uid: &str| {
            vec![volume::usage::Reading {
                volume: format!("v-{uid}"),
                claim: Some("data".into()),
                at: Timestamp::UNIX_EPOCH,
                stats: VolumeStats { capacity: Some(9), ..VolumeStats::default() },
                health: None,
            }]
        };
        let shown = summary("node1", &reading, &started, &volumes);
        assert_eq!(shown["node"]["nodeName"], "node1");
        let pod = &shown["pods"][0];
        assert_eq!(pod["podRef"], json!({"name": "p", "namespace": "n", "uid": "u"}));
        let want = json!([{"name": "v-u", "pvcRef": {"name": "data", "namespace": "n"}, "capacityBytes": 9,
            "time": "1970-01-01T00:00:00Z"}]);
        assert_eq!(pod["volume"], want);
        assert_eq!((pod["startTime"].as_str(), pod.get("cpu")), (Some("u pod"), None));
        assert_eq!(
            pod["containers"][0]["cpu"],
            json!({"time": "2026-01-01T00:00:00Z", "usageNanoCores": 3, "usageCoreNanoSeconds": 7})
        );
    }
}
