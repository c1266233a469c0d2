//! CEL for the rules of custom resources, the conditions of webhooks, admission policies and selectors of devices: the standard library, the
//! extensions for strings, lists and numbers, and the functions that the API server adds. The length and depth of an expression
//! are limited before it is parsed. Its cost is estimated when it is stored and counted while it is evaluated.
//!
//! Depends on no other crate of the control plane.

#![forbid(unsafe_code)]

// Parsing IP addresses and CIDR ranges.
pub mod addresses;
// Why a text cannot be compiled, and the messages of failed evaluations.
mod error;
// Limits on the length and depth of an expression.
mod limits;
// Cost limits, and time limits for slow expressions.
mod budget;
// The highest possible cost of an expression, estimated from the schema.
pub mod estimate;
// The cost of evaluation.
mod meter;
// Adds cost counting to a parsed expression.
mod rewrite;
// Regular expressions.
pub mod patterns;
// The syntax of regular expressions in Go.
mod go_regex;
// Durations and timestamps as Go reads them.
mod go_time;
// URLs as Go reads them.
mod go_url;
// Arguments and results of functions.
mod arguments;
// Functions that the API server adds: quantities, addresses, sets, lists, patterns.
mod library;
// Named formats of text.
mod formats;
// Semantic versions.
mod versions;
// Comprehensions with two variables.
mod two_variables;
// Names for values, in selectors of devices.
mod bindings;
// Questions to the authorizers of the API server.
pub mod authorizer;
// Messages that every expression can construct.
mod messages;
// `Object{…}` and `JSONPatch{…}` of mutating admission policies.
mod objects;
// Compiles and evaluates expressions.
mod program;
// The names by which expressions call fields.
pub mod names;
// Which fields of a variable an expression reads.
mod selection;
// The types of expressions, checked against the schemas of kinds.
pub mod types;
// Converts JSON values to CEL values.
mod values;
// Selectors of devices.
pub mod devices;
#[cfg(test)]
mod tests;

pub use arguments::optional;
pub use budget::{Budget, CONDITIONS, Failure, VALIDATION, evaluate_blocking};
pub use error::{CompileError, StackError};
pub use limits::LimitError;
pub use objects::{PatchError, PatchForm};
pub use program::{Program, compile, compile_patch, compile_selector, compiled, context};
pub use selection::selects;
pub use values::{to_cel, to_cel_claims, to_cel_typed, values_in, values_made};
