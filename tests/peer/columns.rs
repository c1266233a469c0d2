//! Columns of `kubectl get` and `-o wide` and the contents of their cells, for every kind, as Table objects.

use crate::both::{PATIENCE, Place, alone, on_both};
use coracle_tests::eventually;
use serde_json::{Value, json};
use std::path::Path;

const OBJECTS: &str = include_str!("columns.yaml");
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Kinds without a namespace whose objects in OBJECTS are deleted in the end.
const CLUSTER: [&str; 28] = [
    "nodes",
    "persistentvolumes",
    "storageclasses",
    "volumeattributesclasses",
    "csidrivers",
    "csinodes",
    "volumeattachments",
    "ingressclasses",
    "servicecidrs",
    "ipaddresses",
    "priorityclasses",
    "clusterroles",
    "clusterrolebindings",
    "runtimeclasses",
    "flowschemas",
    "prioritylevelconfigurations",
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "customresourcedefinitions",
    "apiservices",
    "deviceclasses",
    "resourceslices",
    "certificatesigningrequests",
    "namespaces",
];

/// A Table as the server gives it.
fn table(kubeconfig: &Path, path: &str) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let request = http::Request::get(path).header("accept", TABLE).body(Vec::new()).unwrap();
        client.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    })
}

/// Cells that say when or where, and not what: they differ between any two clusters.
fn cell(column: &str, value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let is_age = text.ends_with(['s', 'm', 'h', 'd', 'y']) && text.starts_with(|c: char| c.is_ascii_digit());
    match column {
        "Age" | "Last Seen" | "First Seen" | "Duration" | "Last Schedule" | "Created At" if is_age => {
            "AGE".into()
        }
        "Created At" if text.ends_with('Z') => "TIME".into(),
        "Born" if is_age => "AGE".into(),
        // Of a node that never reported: the former until somebody notices.
        "Status" if ["Unknown", "NotReady"].contains(&text) => "NOT READY".into(),
        "Cluster-IP" if text.starts_with("10.") => "IP".into(),
        "Name" if text.starts_with("d-") || text.starts_with("r-") || text.starts_with("j-") => {
            "GENERATED".into()
        }
        "Name" if text.starts_with("queue-") || text.starts_with("single-") => "GENERATED".into(),
        // Of a revision, which has a hash, and of an EndpointSlice.
        "Name" if ["all-", "s-", "plain-"].iter().any(|name| text.starts_with(name)) && text.len() > 6 => {
            "GENERATED".into()
        }
        "Holder" if text.len() > 20 => "HOLDER".into(),
        "Restarts" if text.contains(" (") => text.split(" (").next().unwrap_or_default().into(),
        "Selector" if text.contains("controller-uid=") => "UID".into(),
        "Selector" if text.contains("pod-template-hash=") => {
            format!("{}HASH", &text[..text.find("hash=").unwrap_or_default()])
        }
        // Administrators have other names.
        "Requestor" => "USER".into(),
        _ => value.to_string(),
    }
}

fn kinds(place: &Place) -> Vec<(String, String, bool)> {
    let listed = place.run("api-resources --verbs=list --no-headers -o wide --sort-by=name");
    let mut all: Vec<(String, String, bool)> = listed
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "true" || *word == "false")?;
            let group = words[at - 1];
            let path = if group.contains('/') { format!("/apis/{group}") } else { format!("/api/{group}") };
            Some((path, words[0].to_owned(), words[at] == "true"))
        })
        .collect();
    all.sort();
    all
}

fn statuses(place: &Place) {
    let time = "2020-01-01T00:00:00Z";
    let name = &place.name;
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let ended = |reason: &str, code: i32, signal: i32| {
        let mut state = json!({"terminated": {"exitCode": code, "startedAt": time, "finishedAt": time}});
        if !reason.is_empty() {
            state["terminated"]["reason"] = json!(reason);
        }
        if signal != 0 {
            state["terminated"]["signal"] = json!(signal);
        }
        state
    };
    let status = |name: &str, state: Value, restarts: i32, ready: bool, started: bool| json!({"name": name, "state": state, "restartCount": restarts, "ready": ready, "started": started, "image": "i", "imageID": ""});
    let on = json!({"running": {"startedAt": time}});
    let mut crashed = status("c", waiting("CrashLoopBackOff"), 3, false, false);
    crashed["lastState"] = ended("Error", 1, 0);
    let condition = |kind: &str, is: &str| json!({"type": kind, "status": is, "lastTransitionTime": time});
    for (pod, status) in [
        (
            "crash",
            json!({"phase": "Running", "podIP": "192.0.2.9", "podIPs": [{"ip": "192.0.2.9"}], "containerStatuses": [crashed, status("d", on.clone(), 0, true, true)]}),
        ),
        (
            "running",
            json!({"phase": "Running", "podIP": "192.0.2.8", "podIPs": [{"ip": "192.0.2.8"}],
            "conditions": [condition("Ready", "True"), condition("example.com/g", "True")], "containerStatuses": [status("c", on.clone(), 0, true, true)]}),
        ),
        (
            "init",
            json!({"phase": "Pending", "initContainerStatuses": [status("a", ended("Completed", 0, 0), 0, true, false),
            status("side", on.clone(), 2, true, true), status("b", waiting("PodInitializing"), 0, false, false)],
            "containerStatuses": [status("c", waiting("PodInitializing"), 0, false, false)]}),
        ),
        (
            "init-crash",
            json!({"phase": "Pending", "initContainerStatuses": [status("a", waiting("CrashLoopBackOff"), 4, false, false)],
            "containerStatuses": [status("c", waiting("PodInitializing"), 0, false, false)]}),
        ),
        (
            "done",
            json!({"phase": "Succeeded", "containerStatuses": [status("c", ended("Completed", 0, 0), 0, false, false)]}),
        ),
        (
            "killed",
            json!({"phase": "Failed", "containerStatuses": [status("c", ended("", 0, 9), 0, false, false)]}),
        ),
        (
            "exited",
            json!({"phase": "Failed", "containerStatuses": [status("c", ended("", 7, 0), 0, false, false), status("d", ended("OOMKilled", 137, 0), 0, false, false)]}),
        ),
        ("evicted", json!({"phase": "Failed", "reason": "Evicted", "message": "m"})),
        (
            "lost",
            json!({"phase": "Running", "reason": "NodeLost", "containerStatuses": [status("c", on.clone(), 0, true, true)]}),
        ),
        (
            "sidecar",
            json!({"phase": "Running", "conditions": [condition("Ready", "False"), condition("Initialized", "True")],
            "initContainerStatuses": [status("side", on.clone(), 1, true, true)], "containerStatuses": [status("c", ended("Completed", 0, 0), 0, false, false)]}),
        ),
    ] {
        place.set_status(&format!("pod/{pod}"), &status);
    }
    place.set_status(
        &format!("node/{name}-n"),
        &json!({"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "ExternalIP", "address": "198.51.100.1"}],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": place.now(), "lastTransitionTime": place.now()}],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Debian", "kernelVersion": "6.12", "containerRuntimeVersion": "x://1",
                "architecture": "amd64", "bootID": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "linux", "systemUUID": ""}}),
    );
    place.set_status(
        "service/balanced",
        &json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "lb.example.com"}]}}),
    );
    place.set_status(
        "ingress/i",
        &json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "lb.example.com"}]}}),
    );
    let metric = |kind: &str, key: &str, name: &str, current: Value| json!({"type": kind, key: {"name": name, "current": current}});
    place.set_status(
        "hpa/h",
        &json!({"currentReplicas": 3, "desiredReplicas": 4, "conditions": [], "currentMetrics": [metric("Resource", "resource", "cpu", json!({"averageUtilization": 10, "averageValue": "10m"})),
            metric("Resource", "resource", "memory", json!({"averageValue": "50Mi"}))]}),
    );
    place.run("delete pod ending --wait=false");
}

#[test]
fn kubectl_get_shows_the_same_columns_and_cells_for_every_kind() {
    let _turn = alone();
    on_both("columns", |place| {
        let objects = OBJECTS.replace("NS", &place.name);
        for document in objects.split("\n---\n") {
            let output = place.try_run("create -f -", document);
            if !output.ok {
                place.saw("refused", output.err.trim());
            }
        }
        let group = format!("{}.example.com", place.name);
        place.run(&format!("wait --for=condition=Established crd/boats.{group} --timeout=60s"));
        let boat = json!({"apiVersion": format!("{group}/v1"), "kind": "Boat", "metadata": {"name": "b"}, "spec": {"size": 3, "tags": ["a", "b"],
            "born": "2020-01-01T00:00:00Z", "flag": false, "ratio": 1.5, "object": {"a": {"b": 1}}}});
        eventually("the kind is served", PATIENCE, || place.try_run("create -f -", &boat.to_string()).ok);
        place.until("pvc/bound", "{.status.phase}", |phase| phase == "Bound");
        place.until("deploy/d", "{.status.updatedReplicas}", |count| count == "2");
        place.until("statefulset/s", "{.status.updatedReplicas}", |count| count == "1");
        place.until("rc/r", "{.status.replicas}", |count| count == "1");
        place.until("job/j", "{.status.active}", |count| count == "2");
        place.until("job/queue", "{.status.active}", |count| count == "4");
        place.until("job/stopped", "{.status.conditions[0].type}", |kind| kind == "Suspended");
        place.until("ds/all", "{.status.observedGeneration}", |count| !count.is_empty());
        place.until("quota/q", "{.status.used.pods}", |count| !count.is_empty());
        place.until(&format!("flowschema/{}-f", place.name), "{.status.conditions[0].status}", |is| {
            !is.is_empty()
        });
        statuses(place);
        for (path, plural, namespaced) in kinds(place) {
            let path = match namespaced {
                true => format!("{path}/namespaces/{}/{plural}", place.name),
                false => format!("{path}/{plural}"),
            };
            // Served by an API server of its own in a stock cluster.
            if path.contains("metrics.k8s.io") {
                continue;
            }
            // A definition of another test that runs at the same time.
            if path.contains(".example.com") && !path.contains(&group) {
                continue;
            }
            let table = table(&place.kubeconfig, &path);
            let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
            for column in &columns {
                let text = |key: &str| column[key].as_str().unwrap_or_default().to_owned();
                place.saw(
                    &format!("{path} column"),
                    format!("{} {} {} {}", text("name"), text("type"), text("format"), column["priority"]),
                );
            }
            let mut rows: Vec<String> = table["rows"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|row| {
                    let name = row["object"]["metadata"]["name"].as_str().unwrap_or_default();
                    let ours = name.contains(&place.name) || name == "10.213.0.9";
                    let made = plural == "events" && !["old", "new"].contains(&name);
                    (namespaced || ours) && !made
                })
                .map(|row| {
                    let cells = row["cells"].as_array().into_iter().flatten();
                    let cells = columns
                        .iter()
                        .zip(cells)
                        .map(|(column, value)| cell(column["name"].as_str().unwrap_or_default(), value));
                    let cells = cells.collect::<Vec<_>>().join(" | ");
                    if row["conditions"].is_null() { cells } else { format!("{cells} {}", row["conditions"]) }
                })
                .collect();
            rows.sort();
            // What they are is about the programs of the cluster.
            if plural == "componentstatuses" {
                continue;
            }
            assert!(!rows.is_empty(), "columns.yaml has no object for {path}");
            for row in rows {
                place.saw(&format!("{path} row"), row);
            }
        }
        place.patch("pod/ending", &json!({"metadata": {"finalizers": null}}));
        place
            .try_run("patch ipaddress 10.213.0.9 --type=merge -p '{\"metadata\":{\"finalizers\":null}}'", "");
        if place.is_stock {
            for plural in CLUSTER {
                let names = place.run(&format!("get {plural} -o name"));
                for object in
                    names.lines().filter(|line| line.contains(&place.name) && !line.starts_with("namespace/"))
                {
                    place.try_run(&format!("delete {object} --wait=false"), "");
                }
            }
            place.try_run("delete ipaddress 10.213.0.9 --wait=false", "");
        }
    });
}
