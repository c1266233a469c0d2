//! What the rules of a container need to know of its pod.

use crate::field_ref::Field;
use coracle_fields::View;
use coracle_fields::core::v1::{Container, PodSpec, Volume};
use std::collections::{BTreeSet, HashMap};

/// What the rules of a container need to know of its pod.
pub(super) struct PodFacts<'a> {
    /// Seconds that a pod has to end.
    pub grace: Option<i64>,
    pub restart_policy: &'a str,
    pub host_users: bool,
    pub os: &'a str,
    pub volumes: HashMap<&'a str, View<'a, Volume>>,
    pub claims: BTreeSet<&'a str>,
}

impl<'a> PodFacts<'a> {
    pub fn of(spec: View<'a, PodSpec>) -> Self {
        PodFacts {
            grace: spec.termination_grace_period_seconds().int(),
            restart_policy: spec.restart_policy().text(),
            host_users: spec.host_users().get().unwrap_or(true),
            os: spec.os().name().text(),
            volumes: spec.volumes().items().map(|volume| (volume.name().text(), volume)).collect(),
            claims: spec.resource_claims().items().map(|claim| claim.name().text()).collect(),
        }
    }
}

/// Ephemeral containers, which have all fields of containers.
pub(super) fn ephemeral<'a>(
    spec: &Field<'a, PodSpec>,
) -> impl Iterator<Item = Field<'a, Container>> + use<'a> {
    spec.ephemeral_containers().items().map(|container| container.as_type())
}
