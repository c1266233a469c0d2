//! Why a device is not injected.

use std::io;
use std::path::PathBuf;

/// Why a device is not injected.
#[derive(Debug, thiserror::Error)]
pub enum CdiError {
    /// Not `vendor/class=name`.
    #[error("CDI device {name:?} is invalid: {reason}")]
    Name {
        /// As given.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// No spec file has them, or several disagree.
    #[error("unresolvable CDI devices {}{}", .names.join(", "), .problems.iter().map(|problem| format!("; {problem}")).collect::<String>())]
    Unresolved {
        /// Qualified names.
        names: Vec<String>,
        /// Spec files that cannot be used, and conflicts.
        problems: Vec<String>,
    },
    /// What a spec file asks for is not possible here.
    #[error("{}: CDI device {device:?}", .file.display())]
    Edit {
        /// The spec file.
        file: PathBuf,
        /// Qualified name.
        device: String,
        /// The cause.
        #[source]
        source: EditError,
    },
}

/// Why a spec file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// Neither JSON nor YAML of a spec.
    #[error("{0}")]
    Syntax(String),
    /// Not a version of the specification.
    #[error("cdiVersion {0:?} is not known")]
    Version(String),
    /// A field of a later version.
    #[error("cdiVersion {given} is too low: {field} needs {needed}")]
    VersionTooLow {
        /// In the file.
        given: String,
        /// Which field.
        field: &'static str,
        /// Since when there is such a field.
        needed: &'static str,
    },
    /// A value that is not allowed.
    #[error("{field}: {reason}")]
    Value {
        /// Path of the field.
        field: String,
        /// What is wrong.
        reason: String,
    },
}

/// Why a change cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The host does not have the device.
    #[error("device node {path:?}")]
    Node {
        /// On the host.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The host has another kind of file there.
    #[error("device node {path:?} is not of type {wanted:?}")]
    Type {
        /// On the host.
        path: String,
        /// Type in the spec file, or none.
        wanted: String,
    },
}
