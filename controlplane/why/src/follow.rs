//! From an object to the causes of its trouble, along its references.

use crate::finding::{Finding, ObjectRef};
use crate::world::World;

/// How many references are followed.
const DEPTH: usize = 6;

/// The causes of an object's trouble, and of those that it refers to; none when the object was looked at before.
pub fn follow(world: &World, trail: &[ObjectRef], object: ObjectRef) -> Vec<Finding> {
    if trail.len() >= DEPTH || trail.contains(&object) {
        return Vec::new();
    }
    let mut trail = trail.to_vec();
    trail.push(object.clone());
    let findings = world.inspect(&object, &trail);
    located(findings, &trail)
}

/// Adds the way that led to findings that have none.
pub(crate) fn located(mut findings: Vec<Finding>, trail: &[ObjectRef]) -> Vec<Finding> {
    for finding in findings.iter_mut().filter(|finding| finding.via.is_empty()) {
        let end = trail.iter().position(|step| *step == finding.object).unwrap_or(trail.len());
        finding.via = trail[..end].to_vec();
    }
    findings
}
