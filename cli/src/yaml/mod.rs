//! YAML files: configurations, kubeconfigs, manifests.

// Writing.
mod write;

pub use write::to_string;

use serde::de::DeserializeOwned;
use serde_saphyr::{Options, UserMessageFormatter};

/// Why a text is not the YAML that was expected: one line, with line and column.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct YamlError(String);

/// Reads a text of one document. As in Kubernetes, `yes` is true and `0644` is octal. Repeated keys are errors, and so are
/// aliases that expand to more than a million events.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str_with_options(text, options())
        .map_err(|error| YamlError(error.render_with_formatter(&UserMessageFormatter)))
}

fn options() -> Options {
    serde_saphyr::options! {
        // The parser limits how many comments in a row it keeps.
        emit_comments: false,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn errors_are_one_line_with_line_and_column() {
        for (text, expected) in [
            ("a: true\nb: perhaps\n", "at line 2, column "),
            ("a: true\na: false\n", "at line 2, column "),
            ("a: b: c\n", "at line 1, column "),
            ("a: [true\n", "at line "),
        ] {
            let error = from_str::<BTreeMap<String, bool>>(text).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn scalars_are_read_as_kubernetes_does() {
        let text = "mode: 0644\nenabled: yes\nempty:\nname: '1'\nport: 80\n";
        let read: Value = from_str(text).unwrap();
        assert_eq!(read, json!({"mode": 420, "enabled": true, "empty": null, "name": "1", "port": 80}));
    }

    #[test]
    fn any_number_of_comments_is_read() {
        let text = format!("a:\n{}  b: 1\n", "  # comment\n".repeat(200));
        assert_eq!(from_str::<Value>(&text).unwrap(), json!({"a": {"b": 1}}));
        let comments: Option<Value> = from_str(&"# comment\n".repeat(200)).unwrap();
        assert_eq!(comments, None);
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..9 {
            text.push_str(&format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(",")));
        }
        assert!(from_str::<Value>(&text).is_err());
    }
}
