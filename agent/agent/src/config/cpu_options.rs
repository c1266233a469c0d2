//! Options of the static policy of the CPU manager, as `--cpu-manager-policy-options` names them.

use super::policy_options::{PolicyOptionError, boolean};

const FULL_CORES: &str = "full-pcpus-only";
const STRICT: &str = "strict-cpu-reservation";
const UNCORE: &str = "prefer-align-cpus-by-uncorecache";
const ACROSS_NODES: &str = "distribute-cpus-across-numa";
/// Options behind `CPUManagerPolicyAlphaOptions`, which is off in Kubernetes.
const ALPHA: [&str; 2] = ["align-by-socket", "distribute-cpus-across-cores"];

/// How the static policy chooses cpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Containers get whole cores, or are rejected.
    pub full_cores_only: bool,
    /// Nothing of pods runs on the cpus that are reserved for the system.
    pub strict_reservation: bool,
    /// Cpus of few groups that share a cache are preferred.
    pub prefer_uncore_cache: bool,
    /// If one NUMA node has too few cpus, each gives as many as the others.
    pub across_nodes: bool,
}

impl CpuOptions {
    /// Reads options. One that is named twice has the last value.
    pub fn new<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, PolicyOptionError> {
        let mut all = Self::default();
        for (name, value) in options {
            let field = match name {
                FULL_CORES => &mut all.full_cores_only,
                STRICT => &mut all.strict_reservation,
                UNCORE => &mut all.prefer_uncore_cache,
                ACROSS_NODES => &mut all.across_nodes,
                name if ALPHA.contains(&name) => {
                    let gate = "CPUManagerPolicyAlphaOptions";
                    return Err(PolicyOptionError::Alpha { name: name.to_owned(), gate });
                }
                name => {
                    let known = "full-pcpus-only, strict-cpu-reservation, prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa";
                    return Err(PolicyOptionError::Unknown { name: name.to_owned(), known });
                }
            };
            *field = boolean(name, value)?;
        }
        if all.prefer_uncore_cache && all.across_nodes {
            return Err(PolicyOptionError::Conflict(UNCORE, ACROSS_NODES));
        }
        Ok(all)
    }

    /// Names of the options that are on.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.full_cores_only, FULL_CORES),
            (self.strict_reservation, STRICT),
            (self.prefer_uncore_cache, UNCORE),
            (self.across_nodes, ACROSS_NODES),
        ];
        all.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn options_are_those_that_kubernetes_has_on() {
        assert_eq!(CpuOptions::new([]), Ok(CpuOptions::default()));
        let all = CpuOptions::new([(FULL_CORES, "true"), (STRICT, "1"), (UNCORE, "t"), (ACROSS_NODES, "0")]);
        assert_eq!(all.unwrap().names().collect::<Vec<_>>(), [FULL_CORES, STRICT, UNCORE]);
        assert_eq!(CpuOptions::new([(STRICT, "true"), (STRICT, "false")]), Ok(CpuOptions::default()));
        for (options, wrong) in [
            (
                vec![("full-pcpus", "true")],
                "unknown option \"full-pcpus\", the options are full-pcpus-only, ",
            ),
            (vec![("align-by-socket", "true")], "align-by-socket is an alpha option of Kubernetes"),
            (
                vec![("distribute-cpus-across-cores", "true")],
                "CPUManagerPolicyAlphaOptions can only be false",
            ),
            (vec![(STRICT, "yes")], "strict-cpu-reservation=yes: not true or false"),
            (
                vec![(ACROSS_NODES, "true"), (UNCORE, "true")],
                "prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa cannot be used at the same time",
            ),
        ] {
            let error = CpuOptions::new(options).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
