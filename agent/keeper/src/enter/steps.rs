//! Steps of a start that differ between callers.

use super::seccomp::load_seccomp;

/// Why a step of the caller failed.
pub type StepError = Box<dyn std::error::Error + Send + Sync>;

/// What the caller does in the child.
pub trait Steps {
    /// Gives the child, which leads a session, a terminal as its standard streams. It is root in the container.
    fn terminal(&self) -> Result<(), StepError> {
        Ok(())
    }

    /// Loads the seccomp filter, if there is one: with no_new_privs right before exec, otherwise before capabilities are
    /// dropped.
    fn filter(&self) -> Result<(), StepError>;
}

/// No terminal, and a filter of BPF instructions.
pub struct StoredFilter(pub Option<Vec<u8>>);

impl Steps for StoredFilter {
    fn filter(&self) -> Result<(), StepError> {
        match &self.0 {
            Some(filter) => Ok(load_seccomp(filter, 0)?),
            None => Ok(()),
        }
    }
}
