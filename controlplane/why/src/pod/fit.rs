//! What speaks against each node.

use super::verdict::Verdict;
use super::{neighbours, placement, resources};
use crate::finding::ObjectRef;
use crate::node_selector::{selects, text_of};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};

/// A node and what speaks against it.
pub struct Judged<'a> {
    /// The node.
    pub node: View<'a, Node>,
    /// Why it cannot run the pod.
    pub verdicts: Vec<Verdict>,
}

/// The volumes of a pod's claims that can only be used on some nodes.
fn bound_volumes<'a>(world: &'a World, pod: View<'a, Pod>) -> Vec<View<'a, PersistentVolume>> {
    let namespace = pod.metadata().namespace().text();
    let claims = pod.spec().volumes().items().filter_map(|volume| {
        let name = volume.persistent_volume_claim().claim_name().filled()?;
        world.get::<PersistentVolumeClaim>(namespace, name).view()
    });
    let volumes = claims.filter_map(|claim| {
        let name = claim.spec().volume_name().filled()?;
        world.get::<PersistentVolume>("", name).view()
    });
    volumes.filter(|volume| volume.spec().node_affinity().required().is_set()).collect()
}

/// What speaks against each node. What pods on the nodes use is left out when they may not be listed.
pub fn judge<'a>(world: &'a World, pod: View<'a, Pod>, nodes: &[View<'a, Node>]) -> Vec<Judged<'a>> {
    let pods = world.list::<Pod>(None);
    let usage = resources::usage(&pods.items);
    let wanted = resources::requests(pod);
    let volumes = bound_volumes(world, pod);
    let others = neighbours::Others::new(world, pod, nodes, &pods.items);
    let judged = nodes.iter().map(|&node| {
        let mut verdicts = placement::taints(pod, node);
        verdicts.extend(placement::labels(pod, node));
        verdicts.extend(placement::features(pod, node));
        verdicts.extend(volumes.iter().filter_map(|volume| volume_verdict(*volume, node)));
        verdicts.extend(resources::lacks(&wanted, node, usage.get(node.metadata().name().text())));
        verdicts.extend(others.verdicts(node));
        Judged { node, verdicts }
    });
    judged.collect()
}

fn volume_verdict(volume: View<'_, PersistentVolume>, node: View<'_, Node>) -> Option<Verdict> {
    let required = volume.spec().node_affinity().required();
    (!selects(required, node)).then(|| {
        let (object, wanted) = (ObjectRef::to(volume), text_of(required));
        let text = format!("is not one of the nodes of {object} ({wanted})");
        Verdict::new(Trouble::VolumeNodeConflict, text)
    })
}
