//! The request's journey, top down.

// Accepts connections and learns the client's certificate.
pub mod tls;
// How long they may be silent.
pub mod attendance;
// Answers on their way.
pub mod delivery;
// Those of nodes that are shut out.
pub mod revocation;
// The chain every request runs through, in order.
pub mod chain;
// The bodies of requests.
pub mod inbound;
// What a URL and a method mean.
pub mod request_info;
// Who is asking.
pub mod user;
// Who vouches for them.
pub mod authn;
// Browsers, impersonation, queues, the audit log.
pub mod filters;
// Who may do what.
pub mod authz;
// Health, version and the like.
pub mod wellknown;
// Verbs on resources.
pub mod resource;
// Large bodies and lists.
pub mod apart;
// Query parameters.
pub mod options;
// Bodies become objects.
pub mod decode;
// Which form an answer takes.
pub mod negotiate;
// What the cluster accepts.
pub mod admission;
// The four patch formats and field ownership.
pub mod patch;
// From a patch request to a change.
pub mod patching;
// The one place where a write is written down.
pub mod write;
// What admission sees of a change.
mod seen;
// The form that is stored, and the form that is shown.
pub mod view;
// Metadata of every object.
pub mod metadata;
// Removal.
pub mod remove;
// Side effects and actions of some kinds.
pub mod hook;
// Actions, once they are admitted.
pub mod act;
// Objects without HTTP.
pub mod api;
// The API for callers in the same process.
mod in_process;
// Label and field selectors on cached objects.
pub mod select;
// Lists.
pub mod list;
// Their bodies.
pub mod pieces;
// Continue tokens.
pub mod page;
// Watches.
pub mod stream;
// Tables and partial metadata.
pub mod table;
// Paths of printer columns.
pub mod jsonpath;
// What the server serves.
pub mod discovery;
// What its objects look like.
pub mod openapi;
// Replies.
pub mod respond;
// The same for people.
pub mod pretty;
#[cfg(test)]
mod size_tests;
