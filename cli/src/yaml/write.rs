//! Writing YAML: block style, as kubectl writes it.

use serde_json::Value;

/// The text of a document. Strings that a reader could take for something else are quoted as in JSON, which is YAML too.
pub fn to_string(value: &Value) -> String {
    let mut text = String::new();
    if is_block(value) {
        block(&mut text, value, 0);
    } else {
        text.push_str(&inline(value));
        text.push('\n');
    }
    text
}

/// A mapping or sequence that is not empty, one entry per line, beginning where the line is indented already.
fn block(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) => {
            for (at, (name, value)) in map.iter().enumerate() {
                if at > 0 {
                    spaces(text, indent);
                }
                text.push_str(&scalar(name));
                text.push(':');
                // As in kubectl's output, the elements of a sequence are not indented.
                entry(text, value, if value.is_array() { indent } else { indent + 2 });
            }
        }
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                if at > 0 {
                    spaces(text, indent);
                }
                text.push('-');
                match is_block(value) {
                    true => {
                        text.push(' ');
                        block(text, value, indent + 2);
                    }
                    false => entry(text, value, indent),
                }
            }
        }
        _ => {}
    }
}

/// What stands behind a name or a dash: in the same line, or below it.
fn entry(text: &mut String, value: &Value, indent: usize) {
    if is_block(value) {
        text.push('\n');
        spaces(text, indent);
        block(text, value, indent);
    } else {
        text.push(' ');
        text.push_str(&inline(value));
        text.push('\n');
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn spaces(text: &mut String, count: usize) {
    text.extend(std::iter::repeat_n(' ', count));
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// A string, quoted unless every reader of YAML 1.1 and 1.2 takes it for a string.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/' || first == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./@+= ,:()".contains(c))
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { quoted(text) }
}

/// As in JSON, and without characters that end a line in YAML 1.1 or cannot be printed.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for c in Value::from(text).to_string().chars() {
        match c {
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{7f}'..='\u{9f}' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)))
            }
            _ => quoted.push(c),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::yaml::from_str;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_again() {
        for value in [
            json!({"a": {"b": [1, {"c": "d", "e": [[], [2, [3]]]}], "f": {}}, "g": null, "h": -1.5}),
            json!([{"name": "x", "user": {"token": "y"}}, "z", [["deep"]]]),
            json!("only a word"),
            json!({}),
            json!({"": "", "1": "1", "true": "True", "~": "~", "0x1": "0o7", "1e3": ".5", "y": "No"}),
            json!({"a: b": "c #d", "- x": "- y", "k": "two\nlines\n", "t": "\ttab", "u": "ü\u{85}\u{2028}"}),
            json!({"q": "it's \"quoted\"", "e": "ends:", "s": " space ", "*a": "&b", "!t": "%d", "{": "]"}),
        ] {
            let text = to_string(&value);
            assert_eq!(from_str::<Value>(&text).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn it_looks_as_kubectl_writes_it() {
        let value = json!({"users": [{"name": "a", "user": {}}], "kind": "Config", "current-context": ""});
        assert_eq!(to_string(&value), "users:\n- name: a\n  user: {}\nkind: Config\ncurrent-context: \"\"\n");
    }
}
