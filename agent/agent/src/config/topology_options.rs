//! Options of the topology manager, as `--topology-manager-policy-options` names them.

use super::policy_options::{PolicyOptionError, boolean};

const CLOSEST: &str = "prefer-closest-numa-nodes";
const MOST_NODES: &str = "max-allowable-numa-nodes";
/// With more nodes there are very many combinations of them.
const USUAL_MOST_NODES: usize = 8;

/// How the topology manager chooses NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyOptions {
    /// Of sets with as many nodes, those are preferred whose nodes are close to each other.
    pub prefer_closest: bool,
    /// On machines with more nodes, resources are not aligned.
    pub max_nodes: usize,
}

impl Default for TopologyOptions {
    fn default() -> Self {
        Self { prefer_closest: false, max_nodes: USUAL_MOST_NODES }
    }
}

impl TopologyOptions {
    /// Reads options. One that is named twice has the last value.
    pub fn new<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, PolicyOptionError> {
        let mut all = Self::default();
        for (name, value) in options {
            match name {
                CLOSEST => all.prefer_closest = boolean(name, value)?,
                MOST_NODES => {
                    let number = value.parse().ok().filter(|number| *number >= USUAL_MOST_NODES);
                    all.max_nodes = number.ok_or_else(|| PolicyOptionError::Number {
                        name: name.to_owned(),
                        value: value.to_owned(),
                        least: USUAL_MOST_NODES,
                    })?;
                }
                name => {
                    let known = "prefer-closest-numa-nodes and max-allowable-numa-nodes";
                    return Err(PolicyOptionError::Unknown { name: name.to_owned(), known });
                }
            }
        }
        Ok(all)
    }

    /// Names and values of options that are not the usual ones.
    pub fn pairs(self) -> impl Iterator<Item = (&'static str, String)> {
        let closest = self.prefer_closest.then(|| (CLOSEST, "true".to_owned()));
        let most = (self.max_nodes != USUAL_MOST_NODES).then(|| (MOST_NODES, self.max_nodes.to_string()));
        closest.into_iter().chain(most)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn options_and_their_values() {
        let read = |options: &[(&'static str, &'static str)]| TopologyOptions::new(options.iter().copied());
        assert_eq!(read(&[]).unwrap().pairs().count(), 0);
        let both = read(&[(CLOSEST, "true"), (MOST_NODES, "12")]).unwrap();
        let both: Vec<String> = both.pairs().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(both, ["prefer-closest-numa-nodes=true", "max-allowable-numa-nodes=12"]);
        for (option, wrong) in [
            ((CLOSEST, "maybe"), "prefer-closest-numa-nodes=maybe: not true or false"),
            ((MOST_NODES, "7"), "max-allowable-numa-nodes=7: not a number from 8 on"),
            ((MOST_NODES, "many"), "max-allowable-numa-nodes=many: not a number from 8 on"),
            (
                ("closest", "true"),
                "unknown option \"closest\", the options are prefer-closest-numa-nodes and",
            ),
        ] {
            let error = read(&[option]).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
