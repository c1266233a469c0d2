//! Features that a node declares in its status, and that some pods need.

use super::wire;

/// Features of upstream's registry that decide where a pod may run. Others are about running pods, or about connections.
const NAMES: [&str; 2] = ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"];
const RESTART_ALL: u8 = 1;
const USERS_ON_HOST_NETWORK: u8 = 1 << 1;

/// A set of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct DeclaredFeatures(u8);

impl DeclaredFeatures {
    /// What a node declares; names that mean nothing here are left out.
    pub fn of_node(declared: &[String]) -> Self {
        let bits = NAMES.iter().enumerate().filter(|(_, name)| declared.iter().any(|have| have == *name));
        Self(bits.fold(0, |set, (bit, _)| set | 1 << bit))
    }

    /// What a pod needs.
    pub fn of_pod(spec: &wire::PodSpec) -> Self {
        let mut rules =
            spec.containers.iter().chain(&spec.init_containers).flat_map(|c| &c.restart_policy_rules);
        let restarts_all = rules.any(|rule| rule.action == "RestartAllContainers");
        let users = spec.host_network && spec.host_users == Some(false);
        Self(if restarts_all { RESTART_ALL } else { 0 } | if users { USERS_ON_HOST_NETWORK } else { 0 })
    }

    /// Whether all of `needed` is there.
    pub fn has(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_bits() {
        let of = |names: &[&str]| {
            DeclaredFeatures::of_node(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["Other"]), DeclaredFeatures::default());
        assert_eq!(of(&["Other", "RestartAllContainersOnContainerExits"]), DeclaredFeatures(RESTART_ALL));
        assert_eq!(of(&["UserNamespacesHostNetworkSupport"]), DeclaredFeatures(USERS_ON_HOST_NETWORK));
        assert!(of(&NAMES).has(DeclaredFeatures(RESTART_ALL)));
        assert!(!DeclaredFeatures(RESTART_ALL).has(of(&NAMES)));
    }
}
