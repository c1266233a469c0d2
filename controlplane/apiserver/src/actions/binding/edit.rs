//! Sets the node in the serialized bytes of a pod. A binding changes a pod in a few places; parsing and serializing the
//! whole pod would be most of the work.

use coracle_kinds::object::decode;
use coracle_proto::limits::MAX_BYTES;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// An object by its members, which stay bytes.
type Members<'a> = BTreeMap<&'a str, &'a RawValue>;

/// The members of a pod that change.
#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow)]
    spec: &'a RawValue,
    #[serde(borrow)]
    status: &'a RawValue,
}

#[derive(Deserialize)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

/// The bytes to store of a pod that gets its node, and labels of it; `None` when it cannot have one, or is not as the server
/// writes pods.
pub fn bound(json: &[u8], node: &str, labels: &[(&str, &str)], now: &str) -> Option<Vec<u8>> {
    let stored = decode::unversioned(json).ok()?;
    let Pod { metadata, spec, status } = serde_json::from_slice(&stored).ok()?;
    let wanted: Members<'_> = serde_json::from_str(spec.get()).ok()?;
    let gated = wanted.get("schedulingGates").is_some_and(|gates| gates.get() != "[]");
    if gated || wanted.contains_key("nodeName") {
        return None;
    }
    let name = serde_json::to_string(node).ok()?;
    let name = format!("\"nodeName\":{name}{}", if wanted.is_empty() { "" } else { "," });
    let told = scheduled(&serde_json::from_str(status.get()).ok()?, now)?;
    let start = |part: &RawValue| part.get().as_ptr() as usize - stored.as_ptr() as usize;
    // What is replaced, and by what.
    let inside = start(spec) + 1;
    let mut puts = vec![(inside, inside, name), (start(status), start(status) + status.get().len(), told)];
    if !labels.is_empty() {
        let text = labelled(&serde_json::from_str(metadata.get()).ok()?, labels)?;
        puts.push((start(metadata), start(metadata) + metadata.get().len(), text));
    }
    puts.sort_unstable_by_key(|(from, ..)| *from);
    let mut out = Vec::with_capacity(stored.len() + 256);
    let mut done = 0;
    for (from, to, text) in &puts {
        out.extend_from_slice(&stored[done..*from]);
        out.extend_from_slice(text.as_bytes());
        done = *to;
    }
    out.extend_from_slice(&stored[done..]);
    // A node and a condition do not make the pod deeper; what makes it too large the single binding refuses.
    (out.len() <= MAX_BYTES).then_some(out)
}

/// Metadata with more labels, which replace those of the same name.
fn labelled(metadata: &Members<'_>, more: &[(&str, &str)]) -> Option<String> {
    let own = metadata.get("labels").map_or(Ok(None), |labels| serde_json::from_str(labels.get()));
    let own: Option<BTreeMap<Cow<'_, str>, Cow<'_, str>>> = own.ok()?;
    let mut labels = own.unwrap_or_default();
    labels.extend(more.iter().map(|(key, value)| (Cow::Borrowed(*key), Cow::Borrowed(*value))));
    let labels = serde_json::to_string(&labels).ok()?;
    let mut members: BTreeMap<&str, &str> =
        metadata.iter().map(|(member, value)| (*member, value.get())).collect();
    members.insert("labels", &labels);
    let members: Vec<String> =
        members.iter().map(|(member, value)| format!("\"{member}\":{value}")).collect();
    Some(format!("{{{}}}", members.join(",")))
}

/// The status of a pod that has a node: it is scheduled, and the node that it was promised is of no interest any more.
fn scheduled(told: &Members<'_>, now: &str) -> Option<String> {
    let mut text = String::from("{");
    for (member, value) in told {
        if !["conditions", "nominatedNodeName"].contains(member) {
            text.extend(["\"", *member, "\":", value.get(), ","]);
        }
    }
    text.push_str("\"conditions\":[");
    let conditions = told.get("conditions").map_or(Ok(None), |list| serde_json::from_str(list.get()));
    let conditions: Option<Vec<&RawValue>> = conditions.ok()?;
    for condition in conditions.unwrap_or_default() {
        let Condition { kind } = serde_json::from_str(condition.get()).ok()?;
        if kind != "PodScheduled" {
            text.extend([condition.get(), ","]);
        }
    }
    text.extend([
        r#"{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":""#,
        now,
    ]);
    text.push_str("\"}]}");
    Some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::limits::rendered_bytes;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn pod(spec: &Value, status: &Value) -> Value {
        let meta = json!({"name": "p", "annotations": {"a": "\"spec\":{\"status\":{"}});
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": status})
    }

    /// As the cache has it.
    fn cached(pod: &Value) -> bytes::Bytes {
        decode::object(&[], &rendered_bytes(pod), 7).unwrap().json
    }

    #[test]
    fn says_what_the_tree_would_say() {
        let containers = json!({"containers": [{"name": "c", "command": ["}\"],{\\"]}]});
        let conditions =
            json!([{"type": "PodScheduled", "status": "False", "message": "]}"}, {"type": "Ready"}]);
        for (spec, status) in [
            (json!({}), json!({})),
            (containers.clone(), json!({"phase": "Pending"})),
            (containers.clone(), json!({"conditions": []})),
            (containers.clone(), json!({"conditions": null, "nominatedNodeName": "n"})),
            (json!({"schedulingGates": []}), json!({"conditions": [{"type": "Ready"}], "phase": "Pending"})),
            (containers, json!({"conditions": conditions, "qosClass": "Burstable"})),
        ] {
            let pod = pod(&spec, &status);
            let mut want = super::super::bind(&pod, &json!({}), "p", "n\"1").unwrap();
            let conditions = want["status"]["conditions"].as_array_mut().unwrap();
            conditions.last_mut().unwrap()["lastTransitionTime"] = json!(NOW);
            let bytes = bound(&cached(&pod), "n\"1", &[], NOW).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), want);
        }
    }

    #[test]
    fn labels_of_the_node_are_those_of_the_binding() {
        let zone = "topology.kubernetes.io/zone";
        let binding = json!({"metadata": {"labels": {zone: "a", "other": "\"}"}}});
        for labels in [None, Some(json!({})), Some(json!({"app": "\"{", zone: "z"}))] {
            let mut pod = pod(&json!({"containers": []}), &json!({"phase": "Pending"}));
            if let Some(labels) = labels {
                pod["metadata"]["labels"] = labels;
            }
            let mut want = super::super::bind(&pod, &binding, "p", "n").unwrap();
            want["status"]["conditions"][0]["lastTransitionTime"] = json!(NOW);
            let bytes = bound(&cached(&pod), "n", &[(zone, "a"), ("other", "\"}")], NOW).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), want);
            assert_eq!(want["metadata"]["labels"][zone], "a");
        }
    }

    #[test]
    fn leaves_alone_what_cannot_be() {
        for spec in [
            json!({"nodeName": ""}),
            json!({"nodeName": null}),
            json!({"schedulingGates": [{"name": "g"}]}),
            json!(null),
        ] {
            assert_eq!(bound(&cached(&pod(&spec, &json!({}))), "n", &[], NOW), None, "{spec}");
        }
    }
}
