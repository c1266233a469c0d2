//! Errors with their causes. `coracle_cli::causes` does the same for crates that may depend on it.

use std::error::Error;

/// An error with its causes, in one line.
pub fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::fmt::Error);

    #[test]
    fn causes_follow_the_error() {
        assert_eq!(chain(&Outer(std::fmt::Error)), format!("outer: {}", std::fmt::Error));
        assert_eq!(chain(&std::fmt::Error), std::fmt::Error.to_string());
    }
}
