//! Scores by node: preferred node affinity, `PreferNoSchedule` taints and image locality.

use super::super::filters::taints::tolerates;
use super::super::node::NodeInfo;
use super::super::node_selector::term_matches;
use super::super::pod::PodInfo;
use super::super::snapshot::Snapshot;
use super::FULL;

const MIN_IMAGE: i64 = 23 << 20;
const MAX_IMAGE: i64 = 1000 << 20;

/// Sum of the weights of preferred node terms that match.
pub fn affinity(pod: &PodInfo, node: &NodeInfo) -> i64 {
    pod.node_preferred.iter().filter(|(_, term)| term_matches(term, node)).map(|(weight, _)| weight).sum()
}

/// Number of `PreferNoSchedule` taints that the pod does not tolerate.
pub fn untolerated_taints(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let soft = node.taints.iter().filter(|t| t.effect == "PreferNoSchedule");
    soft.filter(|t| !tolerates(&pod.tolerations, t)).count() as i64
}

/// Score by the size of the pod's images that the node has. Images on few nodes count less, so that one node does not attract
/// all pods.
pub fn image_locality(pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64 {
    if node.images.is_empty() || pod.images.is_empty() {
        return 0;
    }
    let nodes = snapshot.node_count().max(1) as i64;
    let sum: i64 = pod
        .images
        .iter()
        .filter_map(|image| Some(node.images.get(image)? / nodes * i64::from(snapshot.image_nodes(image))))
        .sum();
    let most = MAX_IMAGE * pod.images.len() as i64;
    FULL * (sum.clamp(MIN_IMAGE, most) - MIN_IMAGE) / (most - MIN_IMAGE)
}
