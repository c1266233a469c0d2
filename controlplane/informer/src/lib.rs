//! The parts that control loops are built from: informers on the caches, work queues, event recorders, leader election.
//!
//! May depend on `coracle-client` and `coracle-kinds`. It does not depend on the API server; its tests do, through
//! `coracle-testing`.

#![forbid(unsafe_code)]

// API timestamps.
pub mod time;
// Spec and status of an object.
pub mod wire;
// Label selectors.
pub mod selector;
// Status conditions.
pub mod conditions;
// Pod templates: equality and hash.
pub mod template;
// The fields of a pod that controllers read.
pub mod pod;
// The rate-limited work queue.
pub mod queue;
// Metrics of the work queues.
pub mod queue_metrics;
// The writes that control loops react to.
pub mod cause;
// Informers: event handlers that add keys to work queues.
pub mod informer;
// Objects indexed by owner and node.
pub mod index;
// Event handlers for objects of all kinds.
pub mod all_kinds;
// Correlation and rate limits of events.
pub mod events;
// The event recorder: writes events in the background.
pub mod recorder;
// Access to one kind with one identity.
pub mod resource;
// The reconcile loop around a controller.
pub mod runner;
// The identities of controllers: account, source of Events, field manager.
pub mod identity;
// Starts controllers: informers, shared indexes, tasks.
pub mod setup;
// Leader election by Lease.
pub mod election;
