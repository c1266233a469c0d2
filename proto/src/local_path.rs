//! Directory names of local volumes, shared by server and agents.

/// The provisioner of such volumes.
pub const PROVISIONER: &str = "coracle.dev/local-path";
/// The annotation of a volume with its provisioner.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Where a node keeps them unless it says otherwise.
pub const DIRECTORY: &str = "/var/lib/coracle/storage";
/// The annotation of a Node with the directories that it keeps volumes in and removes them from: a list in JSON, the one to
/// use first.
pub const DIRECTORIES: &str = "coracle.dev/storage-dirs";
/// Below this path of a node's API are its volumes.
pub const API: &str = "/volumes";

/// The name of a volume's directory. No part of it has a slash, and no name of a volume an underscore: it belongs to one
/// volume.
pub fn directory_name(volume: &str, namespace: &str, claim: &str) -> String {
    format!("{volume}_{namespace}_{claim}")
}

/// Whether a directory of this name belongs to the volume.
pub fn is_of(directory: &str, volume: &str) -> bool {
    !volume.is_empty() && directory.strip_prefix(volume).is_some_and(|rest| rest.starts_with('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_belongs_to_one_volume() {
        let name = directory_name("pvc-1", "default", "data");
        for (volume, its) in [("pvc-1", true), ("pvc-10", false), ("pvc", false), ("", false)] {
            assert_eq!(is_of(&name, volume), its, "{volume}");
        }
        assert!(!is_of("pvc-1", "pvc-1"), "nobody's");
    }
}
