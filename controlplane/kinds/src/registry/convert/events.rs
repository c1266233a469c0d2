//! `events.k8s.io/v1` Events are core Events with other field names.

use crate::registry::kinds::StoredAs;
use serde_json::{Map, Value, json};

/// The view.
pub const STORED_AS: StoredAs = StoredAs { group: "", version: "v1", encode, decode };

/// Names in `events.k8s.io`, then in core.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

fn rename(event: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = event.remove(from) {
        event.insert(to.into(), value);
    }
}

fn encode(event: &mut Value) {
    let Some(event) = event.as_object_mut() else { return };
    event.insert("apiVersion".into(), json!("v1"));
    for (view, core) in NAMES {
        rename(event, view, core);
    }
}

fn decode(event: &mut Value) {
    let Some(event) = event.as_object_mut() else { return };
    event.insert("apiVersion".into(), json!("events.k8s.io/v1"));
    for (view, core) in NAMES {
        rename(event, core, view);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let view = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}, "reason": "Started",
            "regarding": {"kind": "Pod"}, "note": "hello", "reportingController": "kubelet", "deprecatedCount": 2,
        });
        let mut event = view.clone();
        encode(&mut event);
        assert_eq!(event["involvedObject"]["kind"], "Pod");
        assert_eq!(event["message"], "hello");
        assert_eq!(event["apiVersion"], "v1");
        decode(&mut event);
        assert_eq!(event, view);
    }
}
