//! The API server. The modules from `tls` to `respond` are in the order in which a request passes through them; the
//! modules after them serve particular kinds and other servers. `chain` is the whole chain, and `write` is the write pipeline.
//!
//! May depend on `coracle-client`, `coracle-kinds`, `coracle-validation`, `coracle-expressions`, `coracle-fields`,
//! `coracle-pki`, `coracle-store` and `coracle-trace`. It does not know controllers or the scheduler: what it needs of them are traits in
//! `coracle-client`.

#![forbid(unsafe_code)]

// Accepts TLS connections and reads the client's certificate.
pub mod tls;
// Timeouts of idle and stalled connections.
pub mod idle_timeout;
// A response that is being sent, with its timeouts.
mod pending_response;
// Sends responses; aborts those that the client does not read.
pub mod response_writer;
// Closes open connections of revoked nodes.
pub mod revocation;
// The chain that every request passes through, in order.
pub mod chain;
// Context of a request in the chain.
pub mod context;
// Id, span, metrics and audit event of a request.
mod request_trace;
// The log of slow requests.
pub mod slow;
// Runs a part of a request in a scope of its own.
mod scoped;
// Request bodies.
pub mod request_body;
// The verbs of requests.
pub mod verb;
// Parses method and URL into verb, resource, namespace and name.
pub mod request_info;
// Authentication.
pub mod authn;
// CORS, impersonation, audit log, priority and fairness.
pub mod filters;
// Authorization.
pub mod authz;
// Rejects requests that are not authorized.
mod authorize;
// Health, version, metrics and other paths that are not resources.
pub mod wellknown;
// Status and options of the server.
pub mod zpages;
// The version of the server.
pub mod version;
// The verbs on resources.
pub mod resource;
// Node ports that are taken, in the store.
pub mod node_ports;
// Runs CPU-bound work on large bodies and lists without blocking other requests.
pub mod offload;
// Decoding of request bodies.
pub mod decode;
// Content negotiation.
pub mod negotiate;
// Admission plugins, webhooks and policies.
pub mod admission;
// The four patch formats and field ownership.
pub mod patch;
// Decodes and applies patch requests.
pub mod patch_request;
// The writer of a request, for field ownership.
mod field_writer;
// The write pipeline: mutate, default, validate, admit, store.
pub mod write;
// Which objects wait for initializers, and how many creates may.
pub mod pending_initializers;
// New objects whose initializers are pending.
mod initialization;
// Why a change was not stored.
mod raced;
// Writes under the fence of an election.
mod fenced;
// Begins a term of an election.
mod election_term;
// The span of a write.
mod write_trace;
// The form of a change that is passed to admission.
mod admission_input;
// Conversion between the stored form of an object and the requested version.
pub mod conversion;
// HTTPS calls to admission and conversion webhooks.
pub mod webhook_call;
// Metadata of every object.
pub mod metadata;
// Deletion.
pub mod delete;
// Hooks for side effects of particular kinds.
pub mod hook;
// Actions (subresources that store nothing), after admission.
pub mod run_action;
// Subresources that take over the connection.
pub mod connector;
// Reads of objects.
pub mod objects;
// All operations on objects, without HTTP.
pub mod api;
// Audit events of their calls.
mod audited_call;
// The API for callers in the same process.
pub mod in_process;
// Label and field selectors on cached objects.
pub mod select;
// Lists.
pub mod list;
// Bodies of lists, rendered chunk by chunk.
pub mod list_body;
// Continue tokens.
pub mod continue_token;
// Watches.
pub mod watch;
// Tables and partial metadata.
pub mod table;
// JSON paths of printer columns.
pub mod jsonpath;
// Non-resource paths of other parts of the server.
pub mod non_resource;
// Timelines, spans of nodes and the page.
pub mod explain;
// Discovery documents.
pub mod discovery;
// OpenAPI documents.
pub mod openapi;
// Responses.
pub mod respond;
// Indented JSON.
pub mod pretty;
// Actions of built-in kinds (scale, binding, eviction, token, reviews), Service addresses.
pub mod actions;
// Address ranges of Services.
pub mod service_ranges;
// Adds and removes kinds as CustomResourceDefinitions change.
pub mod crd;
// Keeps an APIService for each group and version that this server serves.
pub mod apiservices;
// Aggregated API servers.
pub mod aggregation;
// Connections to node agents.
pub mod nodes;
// Requests that are forwarded to a node: logs, exec, attach, port-forward, proxy.
pub mod connect;
// What containers used in the past.
pub mod usage_history;
// The metrics page, and metrics of requests.
pub mod metrics;
// A small HTTPS client for JSON: webhooks, identity providers, commands.
pub mod https_client;
#[cfg(test)]
mod size_tests;
