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

/// Whether an attachment has a name that this controller gives.
fn is_own(name: &str) -> bool {
    let is_hash = |hash: &str| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix("csi-").is_some_and(is_hash)
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
    // What others have attached, they detach.
    for attachment in input.here.iter().filter(|attachment| is_own(&attachment.name)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "n";

    fn wanted(handle: &str) -> Wanted {
        Wanted {
            pod: Name::new("d", "p"),
            volume: format!("pv-{handle}"),
            driver: "x".into(),
            handle: handle.into(),
            is_exclusive: true,
        }
    }

    fn attachment(handle: &str, is_attached: bool) -> Arc<Attachment> {
        Arc::new(Attachment {
            name: attachment_name("x", handle, NODE),
            node: NODE.into(),
            volume: format!("pv-{handle}"),
            is_attached,
            ..Attachment::default()
        })
    }

    #[test]
    fn attachments_of_others_stay() {
        let foreign =
            Arc::new(Attachment { name: "mine".into(), node: NODE.into(), ..Attachment::default() });
        let (here, state) = ([foreign, attachment("a", true)], state(&[], &[]));
        let now = Timestamp::UNIX_EPOCH;
        let input = Input { node: NODE, state: Some(&state), wanted: &[], here: &here, now };
        let plan = plan(&input, &mut HashMap::new(), |_| Vec::new());
        assert_eq!(plan.detach, [attachment("a", true)]);
    }

    fn state(in_use: &[&str], attached: &[&str]) -> NodeState {
        let item = |handle: &&str| {
            let name = unique_name("x", handle);
            (name.clone(), json!({"name": name, "devicePath": ""}))
        };
        NodeState {
            in_use: in_use.iter().map(|handle| unique_name("x", handle)).collect(),
            attached: attached.iter().map(item).collect(),
            is_ready: true,
            is_out_of_service: false,
        }
    }

    struct Case<'a> {
        state: Option<NodeState>,
        wanted: &'a [Wanted],
        here: &'a [Arc<Attachment>],
        elsewhere: &'a [&'a str],
    }

    fn run(case: &Case<'_>, unwanted: &mut HashMap<String, Timestamp>, now: i64) -> Plan {
        let now = Timestamp::from_second(now).unwrap_or_default();
        let input =
            Input { node: NODE, state: case.state.as_ref(), wanted: case.wanted, here: case.here, now };
        plan(&input, unwanted, |_| case.elsewhere.iter().map(|node| (*node).to_owned()).collect())
    }

    fn once(case: &Case<'_>) -> Plan {
        run(case, &mut HashMap::new(), 0)
    }

    #[test]
    fn what_pods_need_is_attached_and_told() {
        let a = [wanted("a")];
        let case = Case { state: Some(state(&[], &[])), wanted: &a, here: &[], elsewhere: &[NODE] };
        let plan = once(&case);
        assert_eq!((plan.attach, plan.attached), (a.to_vec(), vec![]));
        let here = [attachment("a", false)];
        let plan = once(&Case { here: &here, ..case });
        assert_eq!(
            (plan.attach.len(), plan.attached.len(), plan.detach.len()),
            (0, 0, 0),
            "the driver is at work"
        );
        let here = [attachment("a", true)];
        let case = Case { state: Some(state(&[], &[])), wanted: &a, here: &here, elsewhere: &[] };
        let plan = once(&case);
        assert_eq!(plan.attached, [json!({"name": "kubernetes.io/csi/x^a", "devicePath": ""})]);
        assert_eq!(plan.succeeded, a);
        let plan = once(&Case { state: Some(state(&["a"], &["a"])), ..case });
        assert!(plan.succeeded.is_empty(), "it is told once");
    }

    #[test]
    fn one_node_at_a_time_unless_the_volume_is_shared() {
        let mut a = [wanted("a")];
        let case = Case { state: Some(state(&[], &[])), wanted: &a, here: &[], elsewhere: &["other"] };
        let plan = once(&case);
        assert_eq!((plan.attach.len(), plan.blocked), (0, vec![(a[0].clone(), vec!["other".to_owned()])]));
        a[0].is_exclusive = false;
        let case = Case { state: Some(state(&[], &[])), wanted: &a, here: &[], elsewhere: &["other"] };
        assert_eq!(once(&case).attach, a);
    }

    #[test]
    fn a_volume_in_use_is_not_detached() {
        let here = [attachment("a", true)];
        let case = Case { state: Some(state(&["a"], &["a"])), wanted: &[], here: &here, elsewhere: &[] };
        let plan = once(&case);
        assert_eq!((plan.detach.len(), plan.attached.len(), plan.again_at), (0, 1, None));
        let plan = once(&Case { state: Some(state(&[], &["a"])), ..case });
        assert_eq!((plan.detach.len(), plan.attached.len()), (1, 0), "told before it is detached");
        let plan = once(&Case { state: None, wanted: &[], here: &here, elsewhere: &[] });
        assert_eq!(plan.detach.len(), 1, "the node is gone");
    }

    #[test]
    fn a_node_that_is_silent_is_believed_for_six_minutes() {
        let here = [attachment("a", true)];
        let lost = NodeState { is_ready: false, ..state(&["a"], &["a"]) };
        let case = Case { state: Some(lost.clone()), wanted: &[], here: &here, elsewhere: &[] };
        let mut unwanted = HashMap::new();
        let plan = run(&case, &mut unwanted, 100);
        assert_eq!((plan.detach.len(), plan.again_at.map(Timestamp::as_second)), (0, Some(460)));
        assert_eq!(run(&case, &mut unwanted, 459).detach.len(), 0);
        assert_eq!(run(&case, &mut unwanted, 460).detach.len(), 1);
        assert!(unwanted.is_empty());
        let gone = NodeState { is_out_of_service: true, ..lost };
        let case = Case { state: Some(gone), wanted: &[], here: &here, elsewhere: &[] };
        assert_eq!(once(&case).detach.len(), 1, "an operator has said so");
        // A pod that comes back within the time keeps its volume, and the time begins anew.
        let a = [wanted("a")];
        let lost = NodeState { is_ready: false, ..state(&["a"], &["a"]) };
        let mut unwanted = HashMap::from([(here[0].name.clone(), Timestamp::UNIX_EPOCH)]);
        let case = Case { state: Some(lost), wanted: &a, here: &here, elsewhere: &[] };
        assert_eq!(run(&case, &mut unwanted, 1000).detach.len(), 0);
        assert!(unwanted.is_empty());
    }

    #[test]
    fn volumes_of_other_plugins_stay_in_the_status() {
        let mut other = state(&[], &[]);
        other.attached.insert("kubernetes.io/x/y".into(), json!({"name": "kubernetes.io/x/y"}));
        let plan = once(&Case { state: Some(other), wanted: &[], here: &[], elsewhere: &[] });
        assert_eq!(plan.attached, [json!({"name": "kubernetes.io/x/y"})]);
    }
}
