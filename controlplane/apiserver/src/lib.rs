//! The API server. The modules from `tls` to `respond` are in the order in which a request passes through them; the
//! modules after them serve particular kinds and other servers. `chain` is the whole chain, and `write` is the write pipeline.
//!
//! May depend on `coracle-client`, `coracle-kinds`, `coracle-validation`, `coracle-expressions`, `coracle-pki` and
//! `coracle-store`. It does not know controllers or the scheduler: what it needs of them are traits in `coracle-client`.

// Accepts TLS connections and reads the client's certificate.
pub mod tls;
// Timeouts of idle and stalled connections.
pub mod attendance;
// Sending of responses; slow readers are disconnected.
pub mod delivery;
// Closes open connections of revoked nodes.
pub mod revocation;
// The chain that every request passes through, in order.
pub mod chain;
// Request bodies.
pub mod inbound;
// From method and URL to verb, resource, namespace and name.
pub mod request_info;
// Authentication.
pub mod authn;
// CORS, impersonation, audit log, priority and fairness.
pub mod filters;
// Authorization.
pub mod authz;
// Health, version, metrics and other paths that are not resources.
pub mod wellknown;
// The verbs on resources.
pub mod resource;
// Keeps work on large bodies and lists from blocking other requests.
pub mod apart;
// Decoding of request bodies.
pub mod decode;
// Content negotiation.
pub mod negotiate;
// Admission plugins, webhooks and policies.
pub mod admission;
// The four patch formats and field ownership.
pub mod patch;
// From a patch request to a change of an object.
pub mod patching;
// The write pipeline: mutate, default, validate, admit, store.
pub mod write;
// The form of a change that admission sees.
mod seen;
// Conversion between the stored form of an object and the requested version.
pub mod view;
// Metadata of every object.
pub mod metadata;
// Deletion.
pub mod remove;
// Hooks for side effects and actions of particular kinds.
pub mod hook;
// Actions (subresources that store nothing), after admission.
pub mod act;
// All operations on objects, without HTTP.
pub mod api;
// Implements `coracle_client::pipeline::Pipeline`.
mod in_process;
// Label and field selectors on cached objects.
pub mod select;
// Lists.
pub mod list;
// Bodies of lists, rendered piece by piece.
pub mod pieces;
// Continue tokens.
pub mod page;
// Watches.
pub mod stream;
// Tables and partial metadata.
pub mod table;
// JSON paths of printer columns.
pub mod jsonpath;
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
// Adds and removes kinds as CustomResourceDefinitions change.
pub mod definitions;
// Keeps an APIService for each group and version that this server serves.
pub mod registrations;
// Aggregated API servers.
pub mod aggregation;
// Requests that are forwarded to a node: logs, exec, attach, port-forward, proxy.
pub mod connect;
// The metrics page, and metrics of requests.
pub mod metrics;
// A small HTTPS client for JSON: webhooks, identity providers, commands.
pub mod remote;
#[cfg(test)]
mod size_tests;
