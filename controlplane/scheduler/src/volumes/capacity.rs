//! Free space of storage drivers: CSIStorageCapacities, for drivers whose CSIDriver says that they publish them.

use super::{Claim, StorageClass, Volumes, set};
use crate::node::NodeInfo;
use crate::resources::whole;
use crate::terms;
use coracle_fields::View;
use coracle_fields::storage::v1::{CSIDriver, CSIStorageCapacity};
use coracle_proto::selector::LabelSelector;

/// Space of a class on some nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Capacity {
    class: String,
    /// The largest volume that fits; nothing if it is not known.
    largest: Option<i64>,
    /// Labels of the nodes; unset: no node.
    nodes: Option<LabelSelector>,
}

impl Volumes {
    /// A CSIStorageCapacity came, changed or went.
    pub fn set_capacity(&mut self, key: &str, object: Option<View<'_, CSIStorageCapacity>>) -> bool {
        let made = object.map(|object| {
            let (most, all) = (object.maximum_volume_size(), object.capacity());
            let largest = if most.is_set() { most } else { all };
            let nodes = object.node_topology();
            Capacity {
                class: object.storage_class_name().text().to_owned(),
                largest: largest.is_set().then(|| whole(&largest.to_value())),
                nodes: nodes
                    .is_set()
                    .then(|| LabelSelector::from_object(&nodes.to_value()).unwrap_or(LabelSelector::Nothing)),
            }
        });
        let changed = set(&mut self.capacities, key, made);
        self.version += u64::from(changed);
        changed
    }

    /// A CSIDriver came, changed or went: whether it publishes its space.
    pub fn set_driver(&mut self, key: &str, object: Option<View<'_, CSIDriver>>) -> bool {
        let made = object.filter(|driver| driver.spec().storage_capacity().flag()).map(|_| ());
        let changed = set(&mut self.publishers, key, made);
        self.version += u64::from(changed);
        changed
    }

    /// Whether a node's storage has room for a volume of a claim. Drivers that publish nothing are believed to have it.
    pub(super) fn has_room(&self, claim: &Claim, class: &StorageClass, node: &NodeInfo) -> bool {
        if claim.size == 0 || !self.publishers.contains_key(&class.provisioner) {
            return true;
        }
        let fits = |capacity: &Capacity| {
            capacity.class == claim.class
                && capacity.largest.is_some_and(|largest| largest >= claim.size)
                && capacity.nodes.as_ref().is_some_and(|nodes| terms::selects(nodes, &node.labels))
        };
        self.capacities.values().any(fits)
    }
}
