//! How bad a trouble is.

use serde::Serialize;

/// How bad a trouble is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Intended, or harmless: only shown for an object that was asked for.
    Notice,
    /// Something does not work as it should.
    Warning,
    /// Something does not work.
    Error,
    /// More than one workload is affected.
    Critical,
}
