//! The format of what commands print: text for people, JSON or YAML for programs.

use crate::{print, yaml};
use clap::ValueEnum;
use serde::Serialize;
use std::io;

/// How an answer is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text for people.
    #[default]
    #[value(alias = "table")]
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl Output {
    /// Prints an answer: `text` for people, otherwise all of `answer`.
    pub fn print(self, answer: &impl Serialize, text: impl FnOnce() -> String) -> io::Result<()> {
        print::print(&self.format(answer, text)?)
    }

    /// The answer as it is printed, with a newline at its end unless there is nothing to print.
    pub fn format(self, answer: &impl Serialize, text: impl FnOnce() -> String) -> io::Result<String> {
        Ok(match self {
            Self::Text => text(),
            Self::Json => format!("{}\n", serde_json::to_string_pretty(answer)?),
            Self::Yaml => yaml::to_string(&serde_json::to_value(answer)?),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn all_formats_but_text_have_the_whole_answer() {
        let answer = json!({"nodes": 2, "names": ["a", "b"]});
        let printed = |output: Output| output.format(&answer, || "two nodes\n".to_owned()).unwrap();
        assert_eq!(printed(Output::Text), "two nodes\n");
        assert_eq!(serde_json::from_str::<Value>(&printed(Output::Json)).unwrap(), answer);
        assert_eq!(printed(Output::Yaml), "nodes: 2\nnames:\n- a\n- b\n");
    }
}
