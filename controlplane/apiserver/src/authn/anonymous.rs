//! Which requests are served without credentials.

use std::collections::BTreeSet;

/// Who may come without credentials, as `system:anonymous`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Those who ask for the health and version of the server.
    #[default]
    Public,
    /// Everybody; the authorizers decide.
    Everybody,
    /// Those who ask for one of these paths.
    Paths(BTreeSet<String>),
    /// Nobody.
    Nobody,
}

impl Anonymous {
    /// Whether a request for a path needs no credentials.
    pub fn admits(&self, path: &str, is_public: bool) -> bool {
        match self {
            Self::Public => is_public,
            Self::Everybody => true,
            Self::Paths(paths) => paths.contains(path),
            Self::Nobody => false,
        }
    }
}
