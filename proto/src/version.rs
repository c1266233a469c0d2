//! The version of Kubernetes whose API the server and the agent speak, and the version of this build.

macro_rules! kubernetes {
    () => {
        "v1.36.0"
    };
}

/// Minor version of the API: `36` of `1.36`.
pub const MINOR: &str = "36";

/// The oldest minor version whose clients and servers the API is compatible with.
pub const OLDEST_MINOR: &str = "35";

/// The version of the API.
pub const KUBERNETES: &str = kubernetes!();

/// The version of this build, as `kubectl version` and Nodes show it.
pub const BUILD: &str = concat!(kubernetes!(), "+coracle.", env!("CARGO_PKG_VERSION"));

/// The user agent of probes.
pub const PROBE_AGENT: &str = "kube-probe/1.36";

/// The user agent of lifecycle hooks.
pub const LIFECYCLE_AGENT: &str = "kube-lifecycle/1.36";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_name_the_same_version() {
        assert!(KUBERNETES.starts_with(&format!("v1.{MINOR}.")));
        assert!(BUILD.starts_with(&format!("{KUBERNETES}+coracle.")));
        for agent in [PROBE_AGENT, LIFECYCLE_AGENT] {
            assert!(agent.ends_with(&format!("/1.{MINOR}")), "{agent}");
        }
        assert_eq!(OLDEST_MINOR.parse::<u32>().ok(), MINOR.parse::<u32>().ok().map(|minor| minor - 1));
    }
}
