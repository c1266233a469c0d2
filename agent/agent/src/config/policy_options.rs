//! Options of the policies of CPU manager and topology manager, which are given as `name=value`.

/// Why options of a policy are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyOptionError {
    /// There is no such option.
    #[error("unknown option {name:?}, the options are {known}")]
    Unknown {
        /// The name as given.
        name: String,
        /// Those that there are.
        known: &'static str,
    },
    /// The option is there in Kubernetes, behind a gate that is off.
    #[error("{name} is an alpha option of Kubernetes that is not there: {gate} can only be false")]
    Alpha {
        /// The option.
        name: String,
        /// Its gate.
        gate: &'static str,
    },
    /// Neither true nor false.
    #[error("{name}={value}: not true or false")]
    Bool {
        /// The option.
        name: String,
        /// The value as given.
        value: String,
    },
    /// Not a number, or too low.
    #[error("{name}={value}: not a number from {least} on")]
    Number {
        /// The option.
        name: String,
        /// The value as given.
        value: String,
        /// The lowest value.
        least: usize,
    },
    /// Two options contradict each other.
    #[error("{0} and {1} cannot be used at the same time")]
    Conflict(&'static str, &'static str),
    /// The policy has no options.
    #[error("the policy none has no options")]
    NoPolicy,
}

/// `true` or `false`, also as the other words that Go takes for them.
pub(super) fn boolean(name: &str, value: &str) -> Result<bool, PolicyOptionError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(PolicyOptionError::Bool { name: name.to_owned(), value: value.to_owned() }),
    }
}
