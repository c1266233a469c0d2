//! The CNI protocol: calls, results and errors of a plugin.

// Errors with the spec's codes.
mod error;
// The environment and stdin of one call.
mod call;
// Results in the shape of each version.
mod result;
// From process start to exit code.
mod run;

pub use call::{Attachment, Call, CallError};
pub use error::{Error, Result, code};
pub use result::{Dns, Interface, Ip, NetResult, RouteEntry};
pub use run::{Plugin, run};

/// Supported protocol versions, oldest first.
pub const VERSIONS: &[&str] = &["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Whether `version` is at least `other`; both of `VERSIONS`.
pub fn at_least(version: &str, other: &str) -> bool {
    let rank = |v: &str| VERSIONS.iter().position(|known| *known == v);
    rank(version) >= rank(other)
}
