//! The cluster that bootstrap objects are made for.

/// What bootstrap objects need to know of their cluster.
pub struct Cluster<'a> {
    /// Address ranges of Services, one per family.
    pub service_ranges: &'a [String],
    /// The first address of the first range: where pods find the API server.
    pub service_address: &'a str,
    /// The port that the API server listens on.
    pub port: u16,
}
