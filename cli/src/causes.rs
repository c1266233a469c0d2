//! Formats an error with its chain of sources.

use std::error::Error;

/// An error and its sources in one line, `a: b: c`: the text of many errors says only that something failed. A source
/// whose text is already part of the line is not repeated.
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    for cause in std::iter::successors(error.source(), |&cause| cause.source()) {
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failed {
        text: &'static str,
        source: Option<Box<Failed>>,
    }

    fn failed<const N: usize>(texts: [&'static str; N]) -> Failed {
        let chained =
            texts.into_iter().rev().fold(None, |source, text| Some(Box::new(Failed { text, source })));
        *chained.expect("at least one text")
    }

    #[test]
    fn sources_follow_the_error() {
        assert_eq!(chain(&failed(["a"])), "a");
        assert_eq!(chain(&failed(["a", "b", "c"])), "a: b: c");
    }

    #[test]
    fn a_source_that_was_printed_is_not_repeated() {
        assert_eq!(chain(&failed(["open x: denied", "denied"])), "open x: denied");
        // Its own source is still printed.
        assert_eq!(chain(&failed(["open x: denied", "denied", "policy"])), "open x: denied: policy");
        assert_eq!(chain(&failed(["a", "b", "b"])), "a: b");
    }
}
