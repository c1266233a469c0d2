//! The node affinity of PersistentVolumes.

use coracle_fields::core::v1::{NodeSelectorRequirement, VolumeNodeAffinity};
use coracle_fields::{Edit, List, Schema as _, View};
use serde_json::Value;

/// Beta labels of nodes, and the stable ones that replaced them.
const STABLE: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

/// The affinity before a change, with the stable labels by which the change replaces beta labels.
pub(super) fn with_stable_labels(
    before: View<'_, VolumeNodeAffinity>,
    after: View<'_, VolumeNodeAffinity>,
) -> Value {
    let mut affinity = before.to_value();
    let mut terms = after.required().node_selector_terms().items();
    VolumeNodeAffinity::edit(&mut affinity).required().node_selector_terms().each_object(|mut term| {
        let Some(after) = terms.next() else { return };
        replace_beta(term.match_expressions(), after.match_expressions());
        replace_beta(term.match_fields(), after.match_fields());
    });
    affinity
}

fn replace_beta(
    mut requirements: Edit<'_, List<NodeSelectorRequirement>>,
    after: View<'_, List<NodeSelectorRequirement>>,
) {
    let mut replacements = after.items();
    requirements.each_object(|mut requirement| {
        let Some(after) = replacements.next() else { return };
        if STABLE.contains(&(requirement.view().key().text(), after.key().text())) {
            requirement.key().set(after.key());
        }
    });
}
