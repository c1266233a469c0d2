//! Reasons against a node.

use crate::trouble::Trouble;

/// A reason why a node cannot run a pod.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// What kind of reason.
    pub trouble: Trouble,
    /// Continues a sentence about the node: `has the taint …`.
    pub text: String,
    /// What a command that changes the node needs: a taint, a label; empty for others.
    pub subject: String,
}

impl Verdict {
    /// A reason that no command on the node changes.
    pub fn new(trouble: Trouble, text: impl Into<String>) -> Self {
        Self { trouble, text: text.into(), subject: String::new() }
    }

    /// Adds what a command that changes the node needs.
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }
}
