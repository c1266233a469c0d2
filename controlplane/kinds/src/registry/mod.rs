//! The kinds the server knows and how objects of each kind are made, changed and read.

// One row per kind; routes, discovery, storage, selectors and columns derive from it.
pub mod kinds;
// The rows of every built-in kind, one file per API group.
pub mod table;
// Who finds a row: by resource or by kind, with rows that come and go at run time.
pub mod index;
// Features that can be switched.
pub mod features;
// Older versions.
pub mod older;
// Resources that are the same objects under other names.
pub mod equivalent;
// What discovery says of subresources.
pub mod subresources;
// Fields that field selectors may name.
pub mod fields;
// Kinds that are views on other kinds: Events and HorizontalPodAutoscalers.
pub mod convert;
// Kinds that are made at run time.
pub mod custom;
// Columns of `kubectl get`.
pub mod columns;
// What a kind does to its objects before a write.
pub mod strategy;
// How the pipeline asks a kind: defaults, preparation, checks.
pub mod check;
// What objects use of quotas.
pub mod usage;
// The Scale of an object.
pub mod scale;
// What every cluster has from its first moment.
pub mod bootstrap;
// Objects at random through every row.
#[cfg(test)]
mod fuzz_tests;
