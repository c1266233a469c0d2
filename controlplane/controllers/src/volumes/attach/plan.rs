//! What to attach to a node and to detach from it. No clock, no tasks.

use super::read::Attachment;
use crate::nodes::health::{Node, OUT_OF_SERVICE};
use coracle_fields::core::v1;
use coracle_informer::informer::Name;
use coracle_informer::time;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// How long a node that is not well is believed to use its volumes.
const FORCE_AFTER_SECONDS: i64 = 360;
const PREFIX: &str = "kubernetes.io/csi/";

/// A volume that a pod of the node needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) pod: Name,
    pub(super) volume: String,
    pub(super) driver: String,
    pub(super) handle: String,
    pub(super) is_exclusive: bool,
}

/// What a Node says.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeState {
    pub(super) in_use: Vec<String>,
    /// Items of `status.volumesAttached`, by name.
    pub(super) attached: BTreeMap<String, Value>,
    pub(super) is_ready: bool,
    pub(super) is_out_of_service: bool,
}

impl NodeState {
    pub(super) fn read(object: &Object, node: &Node) -> Self {
        let doc = object.doc();
        let status = doc.view::<v1::Node>().status();
        let attached = status.volumes_attached().items();
        Self {
            in_use: status.volumes_in_use().texts().map(str::to_owned).collect(),
            attached: attached.map(|one| (one.name().text().to_owned(), one.to_value())).collect(),
            is_ready: node.readiness() == "True",
            is_out_of_service: node.tainted(OUT_OF_SERVICE),
        }
    }
}

/// What is known of a node and its volumes.
pub(super) struct Input<'a> {
    pub(super) node: &'a str,
    /// `None` if there is no such Node.
    pub(super) state: Option<&'a NodeState>,
    pub(super) wanted: &'a [Wanted],
    pub(super) here: &'a [Arc<Attachment>],
    pub(super) now: Timestamp,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) attach: Vec<Wanted>,
    /// Attached to these other nodes.
    pub(super) blocked: Vec<(Wanted, Vec<String>)>,
    /// With the driver's words.
    pub(super) failed: Vec<(Wanted, String)>,
    /// Attached now, and the node does not know yet.
    pub(super) succeeded: Vec<Wanted>,
    pub(super) detach: Vec<Arc<Attachment>>,
    /// `status.volumesAttached`.
    pub(super) attached: Vec<Value>,
    /// When a node is not believed any more.
    pub(super) again_at: Option<Timestamp>,
}

/// Name of the VolumeAttachment of a volume and a node.
pub(super) fn attachment_name(driver: &str, handle: &str, node: &str) -> String {
    let hash = Sha256::digest(format!("{handle}{driver}{node}"));
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hash}")
}

/// Name of a volume in the status of a Node.
pub(super) fn unique_name(driver: &str, handle: &str) -> String {
    format!("{PREFIX}{driver}^{handle}")
}

/// The attachment of a volume in the status of a Node.
fn attachment_of(unique: &str, node: &str) -> Option<String> {
    let (driver, handle) = unique.strip_prefix(PREFIX)?.split_once('^')?;
    Some(attachment_name(driver, handle, node))
}

/// Compares what is needed with what is attached. `unwanted` keeps since when attachments of the node are not
/// needed.
pub(super) fn plan(
    input: &Input<'_>,
    unwanted: &mut HashMap<String, Timestamp>,
    nodes_of_volume: impl Fn(&str) -> Vec<String>,
) -> Plan {
    let mut plan = Plan::default();
    let nothing = NodeState::default();
    let state = input.state.unwrap_or(&nothing);
    let by_name: BTreeMap<&str, &Arc<Attachment>> =
        input.here.iter().map(|attachment| (attachment.name.as_str(), attachment)).collect();
    let mut needed = BTreeSet::new();
    // Volumes of other plugins are not ours.
    let mut attached: BTreeMap<String, Value> =
        state.attached.iter().filter(|(name, _)| !name.starts_with(PREFIX)).map(clone_pair).collect();
    for wanted in input.wanted {
        let name = attachment_name(&wanted.driver, &wanted.handle, input.node);
        let unique = unique_name(&wanted.driver, &wanted.handle);
        match by_name.get(name.as_str()) {
            // It is attached again when it is gone.
            Some(attachment) if attachment.is_deleting => {}
            Some(attachment) if attachment.is_attached => {
                if !state.attached.contains_key(&unique) {
                    plan.succeeded.push(wanted.clone());
                }
                attached.insert(unique.clone(), json!({"name": unique, "devicePath": ""}));
            }
            Some(attachment) if !attachment.error.is_empty() => {
                plan.failed.push((wanted.clone(), attachment.error.clone()));
            }
            Some(_) => {}
            None if input.state.is_none() => {}
            None => {
                let others: Vec<String> =
                    nodes_of_volume(&wanted.volume).into_iter().filter(|node| node != input.node).collect();
                if wanted.is_exclusive && !others.is_empty() {
                    plan.blocked.push((wanted.clone(), others));
                } else {
                    plan.attach.push(wanted.clone());
                }
            }
        }
        needed.insert(name);
    }
    let in_use: BTreeMap<String, &String> =
        state.in_use.iter().filter_map(|unique| Some((attachment_of(unique, input.node)?, unique))).collect();
    for attachment in input.here {
        if needed.contains(&attachment.name) || attachment.is_deleting {
            unwanted.remove(&attachment.name);
            continue;
        }
        let since = *unwanted.entry(attachment.name.clone()).or_insert(input.now);
        let Some(unique) = in_use.get(&attachment.name) else {
            plan.detach.push(attachment.clone());
            continue;
        };
        let due = time::after(since, FORCE_AFTER_SECONDS);
        if state.is_out_of_service || (!state.is_ready && input.now >= due) {
            plan.detach.push(attachment.clone());
            continue;
        }
        if !state.is_ready {
            plan.again_at = plan.again_at.into_iter().chain([due]).min();
        }
        if let Some(item) = state.attached.get(*unique) {
            attached.insert((*unique).clone(), item.clone());
        }
    }
    let gone = |name: &String| plan.detach.iter().any(|attachment| attachment.name == *name);
    unwanted.retain(|name, _| by_name.contains_key(name.as_str()) && !gone(name));
    plan.attached = attached.into_values().collect();
    plan
}

fn clone_pair((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}
