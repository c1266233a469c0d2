//! How many volumes of a storage driver fit on a node: `allocatable.count` of its CSINode.

use super::{Volumes, set};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::rejection::{Plugin, Rejection};
use coracle_fields::View;
use coracle_fields::storage::v1::CSINode;
use std::collections::{HashMap, HashSet};

/// Limits of a node, by driver.
pub(super) type Limits = HashMap<String, usize>;

impl Volumes {
    /// The CSINode of a node came, changed or went.
    pub fn set_limits(&mut self, node: &str, object: Option<View<'_, CSINode>>) -> bool {
        let made: Option<Limits> = object.map(|object| {
            let drivers = object.spec().drivers().items();
            let limit = drivers.filter_map(|driver| {
                let count = usize::try_from(driver.allocatable().count().int()?).ok()?;
                Some((driver.name().text().to_owned(), count))
            });
            limit.collect()
        });
        let changed = set(&mut self.limits, node, made.filter(|limits| !limits.is_empty()));
        self.version += u64::from(changed);
        changed
    }

    /// Whether the pod's volumes fit beside those of the node's pods. A volume that several pods use counts once.
    pub(super) fn check_limits(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(limits) = self.limits.get(&node.name) else { return Ok(()) };
        let mut more = HashSet::new();
        self.disks(pod, limits, &mut more);
        if more.is_empty() {
            return Ok(());
        }
        let mut all = HashSet::new();
        node.pods.iter().for_each(|pod| self.disks(pod, limits, &mut all));
        if more.is_subset(&all) {
            return Ok(());
        }
        let grows: HashSet<&str> = more.difference(&all).map(|(driver, _)| *driver).collect();
        all.extend(more);
        let is_full = |driver: &&str| {
            let count = all.iter().filter(|(of, _)| of == driver).count();
            limits.get(*driver).is_some_and(|limit| count > *limit)
        };
        if grows.iter().any(is_full) {
            return Err(Rejection::new(Plugin::NodeVolumeLimits, "node(s) exceed max volume count"));
        }
        Ok(())
    }

    /// Driver and name of a pod's volumes, of drivers with a limit. A volume that is not made yet is known by its claim.
    fn disks<'a>(&'a self, pod: &PodInfo, limits: &'a Limits, into: &mut HashSet<(&'a str, String)>) {
        for name in &pod.claims {
            let key = format!("{}/{name}", pod.namespace);
            let Some(claim) = self.claims.get(&key) else { continue };
            let (driver, handle) = if claim.is_bound() {
                let Some(disk) = self.volumes.get(&claim.volume).and_then(|v| v.disk.as_ref()) else {
                    continue;
                };
                (disk.0.as_str(), disk.1.clone())
            } else {
                let Some(class) = self.classes.get(&claim.class) else { continue };
                (class.provisioner.as_str(), key)
            };
            if limits.contains_key(driver) {
                into.insert((driver, handle));
            }
        }
    }
}
