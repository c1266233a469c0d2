//! Timelines of the cluster: what was recorded about an object, where the time went, and who may see it. The server answers questions,
//! takes spans of agents and exports them; `coracle trace` and `coracle ui` ask.

// Options of recording and export.
pub mod options;
// Starts the recorder of the server.
pub mod record;
// Answers to questions about the timeline.
pub mod serve;
// What a user may see of an answer.
pub mod authorize;
// Counters of deliveries and of the export.
pub mod counters;
// Spans that agents deliver.
pub mod ingest;
// Which objects a node may report about.
pub mod placement;
// Other servers of the cluster.
pub mod peers;
// Spans as messages of OTLP.
pub mod otlp;
// Export to an OTLP receiver.
pub mod export;
// Metrics about spans.
pub mod metrics;
// The cluster that a command asks.
pub mod connect;
// From KIND/NAME to a resource.
pub mod resources;
// `coracle ui` and the proxy of `coracle trace -- COMMAND`.
pub mod proxy;
// `coracle trace`.
pub mod trace;
// The page.
pub mod page;
