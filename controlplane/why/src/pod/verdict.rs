//! Reasons against a node.

use crate::trouble::Trouble;

/// A reason why a node cannot run a pod.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// What kind of reason.
    pub trouble: Trouble,
    /// Continues a sentence about the node: `has the taint …`.
    pub text: String,
}
