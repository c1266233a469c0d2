//! YAML text as a tree, with the readings of YAML 1.1 that Kubernetes clients rely on (`yes` is true, `0777` is octal).

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::Number;

use super::{DecodeError, Tree};

/// Nodes that one body may expand to, aliases included. Far above any real object, far below what hurts.
const MAX_NODES: usize = 1_000_000;
const MAX_DEPTH: usize = 128;

/// A body that was YAML.
#[derive(Debug, Clone, PartialEq)]
pub struct Yaml {
    /// What it held; of repeated keys the last.
    pub tree: Tree,
    /// Repeated keys, as a strict reader reports them: `line 9: key "foo" already set in map`.
    pub duplicates: Vec<String>,
}

impl Yaml {
    /// The error of a strict reader, if there is one.
    pub fn strict_error(&self) -> Option<String> {
        if self.duplicates.is_empty() {
            return None;
        }
        let lines: Vec<String> = self.duplicates.iter().map(|d| format!("  {d}")).collect();
        Some(format!("yaml: unmarshal errors:\n{}", lines.join("\n")))
    }
}

/// Reads the first document. JSON is YAML, too, but reads slower here than with [`super::from_json`].
pub fn from_yaml(body: &[u8]) -> Result<Yaml, DecodeError> {
    let text = std::str::from_utf8(body)
        .map_err(|_| DecodeError::Yaml("control characters are not allowed".into()))?;
    // A NUL ends the scanner's input without an error.
    if text.contains('\0') {
        return Err(DecodeError::Yaml("control characters are not allowed".into()));
    }
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        anchors: HashMap::new(),
        duplicates: Vec::new(),
        nodes: 0,
    };
    let tree = reader.document()?;
    Ok(Yaml { tree, duplicates: reader.duplicates })
}

struct Reader<'a> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// Anchored nodes with their number of nodes.
    anchors: HashMap<usize, (Tree, usize)>,
    duplicates: Vec<String>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, DecodeError> {
        let next = self.events.next().transpose();
        next.map_err(|e| DecodeError::Yaml(format!("line {}: {}", e.marker().line(), e.info())))
    }

    fn document(&mut self) -> Result<Tree, DecodeError> {
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
                Event::StreamEnd | Event::DocumentEnd => return Ok(Tree::Null),
                other => return self.node(other, span, 0),
            }
        }
        Ok(Tree::Null)
    }

    fn count(&mut self, nodes: usize) -> Result<(), DecodeError> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err(DecodeError::Yaml("document contains excessive aliasing".into()));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Tree, DecodeError> {
        if depth > MAX_DEPTH {
            return Err(DecodeError::Yaml("exceeded max depth".into()));
        }
        let before = self.nodes;
        self.count(1)?;
        let (anchor, tree) = match event {
            Event::Alias(id) => {
                let (tree, nodes) = self.anchors.get(&id).cloned().ok_or_else(|| {
                    DecodeError::Yaml(format!("line {}: unknown anchor referenced", span.start.line()))
                })?;
                self.count(nodes)?;
                (0, tree)
            }
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref())),
            Event::SequenceStart(anchor, _) => (anchor, self.sequence(depth)?),
            Event::MappingStart(anchor, _) => (anchor, self.mapping(depth)?),
            _ => return Err(DecodeError::Yaml(format!("line {}: unexpected end", span.start.line()))),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, (tree.clone(), self.nodes - before));
        }
        Ok(tree)
    }

    fn sequence(&mut self, depth: usize) -> Result<Tree, DecodeError> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            items.push(self.node(event, span, depth + 1)?);
        }
        Ok(Tree::Array(items))
    }

    fn mapping(&mut self, depth: usize) -> Result<Tree, DecodeError> {
        let mut fields: Vec<(String, Tree)> = Vec::new();
        let mut merged: Vec<(String, Tree)> = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let line = span.start.line();
            let merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            let key = self.node(event, span, depth + 1)?;
            let value = match self.next()? {
                Some((event, span)) => self.node(event, span, depth + 1)?,
                None => Tree::Null,
            };
            if merge {
                merge_into(&mut merged, value)?;
                continue;
            }
            let key = key_text(key, line)?;
            if !seen.insert(key.clone()) {
                self.duplicates.push(format!("line {line}: key {key:?} already set in map"));
                fields.retain(|(name, _)| *name != key);
            }
            fields.push((key, value));
        }
        for (key, value) in merged {
            if seen.insert(key.clone()) {
                fields.push((key, value));
            }
        }
        Ok(Tree::Object(fields))
    }
}

/// Takes the fields of a `<<` value; earlier mappings win.
fn merge_into(merged: &mut Vec<(String, Tree)>, value: Tree) -> Result<(), DecodeError> {
    match value {
        Tree::Object(fields) => merged.extend(fields),
        Tree::Array(items) => {
            for item in items {
                merge_into(merged, item)?;
            }
        }
        _ => {
            return Err(DecodeError::Yaml("map merge requires map or sequence of maps as the value".into()));
        }
    }
    Ok(())
}

fn key_text(key: Tree, line: usize) -> Result<String, DecodeError> {
    match key {
        Tree::String(text) => Ok(text),
        Tree::Bool(value) => Ok(value.to_string()),
        Tree::Number(number) => Ok(number.to_string()),
        Tree::Null => Ok("null".into()),
        other => Err(DecodeError::Yaml(format!("line {line}: invalid map key: {}", other.found()))),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Tree {
    let tag = tag.filter(|t| t.is_yaml_core_schema()).map(|t| t.suffix.as_str());
    match tag {
        Some("str" | "binary") => Tree::String(text.to_owned()),
        None if style != ScalarStyle::Plain => Tree::String(text.to_owned()),
        Some("float") => float(text).unwrap_or_else(|| plain(text)),
        _ => plain(text),
    }
}

fn plain(text: &str) -> Tree {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Tree::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Tree::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Tree::Bool(false);
        }
        _ => {}
    }
    let first = text.as_bytes()[0];
    let numeric = first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.');
    let number = if numeric { integer(text).or_else(|| float(text)) } else { None };
    number.unwrap_or_else(|| Tree::String(text.to_owned()))
}

fn integer(text: &str) -> Option<Tree> {
    let clean = text.replace('_', "");
    let negative = clean.starts_with('-');
    let digits = clean.strip_prefix(['-', '+']).unwrap_or(&clean);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    if digits.starts_with(['-', '+']) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    if !negative {
        return Some(Tree::Number(value.into()));
    }
    let value = 0i64.checked_sub_unsigned(value)?;
    Some(Tree::Number(value.into()))
}

fn float(text: &str) -> Option<Tree> {
    let clean = text.replace('_', "");
    let unsigned = clean.strip_prefix(['-', '+']).unwrap_or(&clean);
    let mantissa_ok = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    if !mantissa_ok {
        return None;
    }
    Number::from_f64(clean.parse().ok()?).map(Tree::Number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decode::plain as to_value;
    use serde_json::{Value, json};

    fn value(text: &str) -> Value {
        to_value(from_yaml(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}")).tree)
    }

    #[test]
    fn scalars_are_read_as_yaml_1_1() {
        for (text, expected) in [
            ("yes", json!(true)),
            ("off", json!(false)),
            ("'yes'", json!("yes")),
            ("!!str yes", json!("yes")),
            ("0777", json!(511)),
            ("0x1F", json!(31)),
            ("1_000", json!(1000)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            ("-7", json!(-7)),
            ("1.2.3", json!("1.2.3")),
            ("12Mi", json!("12Mi")),
            ("2026-01-02", json!("2026-01-02")),
            ("~", Value::Null),
            ("", Value::Null),
            ("08", json!(8.0)),
            ("|\n a\n b\n", json!("a\nb\n")),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn anchors_merge_and_keys() {
        let text = "base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  x: 3\nlist: [*b]\n1: one\n";
        let expected = json!({"base": {"x": 1, "y": 2}, "use": {"x": 3, "y": 2}, "list": [{"x": 1, "y": 2}], "1": "one"});
        let mut got = value(text);
        // `y` reads as a truth value, as it does upstream.
        for at in ["/base", "/use", "/list/0"] {
            let map = got.pointer_mut(at).unwrap().as_object_mut().unwrap();
            let y = map.remove("true").unwrap();
            map.insert("y".into(), y);
        }
        assert_eq!(got, expected);
    }

    #[test]
    fn repeated_keys_name_their_line() {
        let yaml = from_yaml(b"a: 1\nspec:\n  foo: 1\n  bar: 2\n  foo: 3\n").unwrap();
        assert_eq!(
            yaml.strict_error().unwrap(),
            "yaml: unmarshal errors:\n  line 5: key \"foo\" already set in map"
        );
        assert_eq!(to_value(yaml.tree), json!({"a": 1, "spec": {"foo": 3, "bar": 2}}));
    }

    #[test]
    fn bombs_are_refused() {
        let mut text = String::from("a: &a [x,x,x,x,x,x,x,x,x,x]\n");
        for (from, to) in
            ["a", "b", "c", "d", "e", "f", "g", "h"].iter().zip(["b", "c", "d", "e", "f", "g", "h", "i"])
        {
            text.push_str(&format!("{to}: &{to} [{}]\n", vec![format!("*{from}"); 10].join(",")));
        }
        let why = from_yaml(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(why, "yaml: document contains excessive aliasing");
        assert!(from_yaml("[".repeat(5000).as_bytes()).is_err());
        assert!(from_yaml(b"a: b: c").is_err());
        assert!(from_yaml(b"a: \xff").is_err());
    }
}
