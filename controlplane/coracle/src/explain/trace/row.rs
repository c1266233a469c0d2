//! A row of the waterfall.

/// A row of the waterfall, and the rows below it.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) label: String,
    /// Added to the label where there is room.
    pub(super) detail: String,
    pub(super) start: u64,
    /// None while it lasts.
    pub(super) end: Option<u64>,
    /// The last end of this row and of those below.
    pub(super) latest: u64,
    /// Whether it or something below lasts.
    pub(super) open: bool,
    pub(super) uncertainty: u64,
    pub(super) usual: Option<u64>,
    pub(super) critical: bool,
    /// Until when the critical path was in this row or in those below; 0 if it was not.
    pub(super) critical_until: u64,
    pub(super) failed: bool,
    /// Whether its end was not recorded.
    pub(super) cut: bool,
    /// Whether the server only assumes that it belongs here.
    pub(super) inferred: bool,
    /// Whether it is drawn however short it is.
    pub(super) keep: bool,
    /// Whether it stands for several rows.
    pub(super) several: bool,
    /// Verb and resource of a create or delete; siblings with the same are alike.
    pub(super) alike: Option<(String, String)>,
    /// Name and object of a control loop; siblings with the same are alike.
    pub(super) turn: Option<String>,
    pub(super) parts: Vec<Part>,
    pub(super) children: Vec<Node>,
}

/// A stage that is mentioned by name and time only.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) time: u64,
    /// The stages within it.
    pub(super) within: String,
}
