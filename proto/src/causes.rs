//! Formats an error with its chain of sources.

use std::error::Error;

/// An error with its causes, in one line: the text of many libraries says only that something failed.
pub fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no door")]
    struct Outer(#[source] std::fmt::Error);

    #[test]
    fn causes_follow() {
        assert_eq!(chain(&Outer(std::fmt::Error)), format!("no door: {}", std::fmt::Error));
        assert_eq!(chain(&std::fmt::Error), std::fmt::Error.to_string());
    }
}
