//! What the volumes of a pod are prepared for.

/// What the volumes of a pod are prepared for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Containers are to be started; none runs.
    Start,
    /// Containers run: files that come from the API are brought up to date. Nothing is mounted, and what belongs to the
    /// containers keeps its owner and mode.
    Renewal,
}
