//! Parses YAML into a tree, with the YAML 1.1 scalars that Kubernetes clients rely on (`yes` is true, `0777` is octal).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::Number;

use super::{DecodeError, Tree, YamlError};
use crate::limits::{MAX_BODY_DEPTH, MAX_NODES, RESERVED};

/// Bytes of text that one body may expand to, aliases included: an alias of a few bytes may stand for a megabyte.
const MAX_TEXT: usize = 8 << 20;
/// Repeated keys that are reported.
const MAX_DUPLICATES: usize = 100;
/// What `!!` stands for in tags.
const CORE_TAGS: &str = "tag:yaml.org,2002:";

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
    let text = std::str::from_utf8(body).map_err(|_| YamlError::ControlCharacters)?;
    if text.contains('\0') {
        return Err(YamlError::ControlCharacters.into());
    }
    let options = granit_parser::options! { emit_comments: false };
    let mut reader = Reader {
        events: Parser::new_from_str_with_options(text, options),
        anchors: HashMap::new(),
        duplicates: Vec::new(),
        expanded: Size::default(),
        held: Size::default(),
    };
    let tree = reader.document()?;
    Ok(Yaml { tree, duplicates: reader.duplicates })
}

/// How much memory a tree takes, in the two numbers that are limited.
#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    text: usize,
}

impl Size {
    fn add(&mut self, other: Size) -> Result<(), YamlError> {
        self.nodes += other.nodes;
        self.text += other.text;
        if self.nodes > MAX_NODES || self.text > MAX_TEXT {
            return Err(YamlError::ExcessiveAliasing);
        }
        Ok(())
    }

    fn since(self, before: Size) -> Size {
        Size { nodes: self.nodes - before.nodes, text: self.text - before.text }
    }
}

/// A node that was read, with its levels of sequences and mappings.
#[derive(Clone)]
struct Node {
    tree: Tree,
    height: usize,
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// Anchored nodes with what they expand to.
    anchors: HashMap<usize, (Node, Size)>,
    duplicates: Vec<String>,
    /// What the document has expanded to so far.
    expanded: Size,
    /// What the anchors hold.
    held: Size,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, YamlError> {
        self.events.next().transpose().map_err(|e| syntax_error(&e))
    }

    /// The first document. Nested nodes are kept on a stack of their own: a call for every level would need more of the
    /// thread's stack than a request may use.
    fn document(&mut self) -> Result<Tree, YamlError> {
        let mut open: Vec<Open> = Vec::new();
        while let Some((event, span)) = self.next()? {
            let line = span.start.line();
            let node = match event {
                Event::StreamStart | Event::DocumentStart(..) => continue,
                Event::StreamEnd | Event::DocumentEnd if open.is_empty() => return Ok(Tree::Null),
                Event::SequenceStart(_, anchor, _) => {
                    self.open(&mut open, anchor, Inside::Sequence(Vec::new()))?;
                    continue;
                }
                Event::MappingStart(_, anchor, _) => {
                    self.open(&mut open, anchor, Inside::Mapping(Mapping::default()))?;
                    continue;
                }
                Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                    Some(whole) => self.close(whole)?,
                    None => return Err(YamlError::UnexpectedEnd { line }),
                },
                Event::Scalar(text, style, anchor, tag) => {
                    let size = Size { nodes: 1, text: text.len() };
                    self.expanded.add(size)?;
                    let node = Node { tree: scalar(&text, style, tag.as_deref()), height: 0 };
                    self.anchor(anchor, &node, size)?;
                    if let Some(Open { inside: Inside::Mapping(mapping), .. }) = open.last_mut()
                        && mapping.key.is_none()
                    {
                        // As in JSON, keys are not counted as values.
                        self.expanded.nodes -= 1;
                        mapping.key = Some(match (style, &*text) {
                            (ScalarStyle::Plain, "<<") => Key::Merge,
                            _ => Key::Name { name: key_text(node.tree, line)?, line },
                        });
                        continue;
                    }
                    node
                }
                Event::Alias(id) => self.alias(id, open.len(), line)?,
                _ => return Err(YamlError::UnexpectedEnd { line }),
            };
            match open.last_mut() {
                None => return Ok(node.tree),
                Some(around) => self.put(around, node, line)?,
            }
        }
        Ok(Tree::Null)
    }

    /// Begins a sequence or mapping.
    fn open(&mut self, open: &mut Vec<Open>, anchor: usize, inside: Inside) -> Result<(), YamlError> {
        check_depth(open.len() + 1)?;
        let before = self.expanded;
        self.expanded.add(Size { nodes: 1, text: 0 })?;
        open.push(Open { anchor, before, height: 0, inside });
        Ok(())
    }

    /// Ends a sequence or mapping.
    fn close(&mut self, whole: Open) -> Result<Node, YamlError> {
        let Open { anchor, before, height, inside } = whole;
        let tree = match inside {
            Inside::Sequence(items) => Tree::Array(items),
            Inside::Mapping(mapping) => mapping.finish(),
        };
        let node = Node { tree, height: height + 1 };
        self.anchor(anchor, &node, self.expanded.since(before))?;
        Ok(node)
    }

    /// Remembers a node that has an anchor; 0 is none.
    fn anchor(&mut self, anchor: usize, node: &Node, size: Size) -> Result<(), YamlError> {
        if anchor > 0 {
            self.held.add(size)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(())
    }

    /// A copy of the node that an alias means, with `depth` sequences and mappings around it.
    fn alias(&mut self, id: usize, depth: usize, line: usize) -> Result<Node, YamlError> {
        let Some((node, size)) = self.anchors.get(&id) else {
            return Err(YamlError::UnknownAnchor { line });
        };
        // Before the copy is made.
        check_depth(depth + node.height)?;
        self.expanded.add(*size)?;
        Ok(node.clone())
    }

    /// Puts a node into what is around it.
    fn put(&mut self, around: &mut Open, node: Node, line: usize) -> Result<(), YamlError> {
        around.height = around.height.max(node.height);
        let mapping = match &mut around.inside {
            Inside::Sequence(items) => {
                items.push(node.tree);
                return Ok(());
            }
            Inside::Mapping(mapping) => mapping,
        };
        match mapping.key.take() {
            // An alias, a sequence or a mapping.
            None => mapping.key = Some(Key::Name { name: key_text(node.tree, line)?, line }),
            Some(Key::Merge) => merge_into(&mut mapping.merged, node.tree)?,
            Some(Key::Name { name, line }) => {
                if let Some(name) = mapping.set(name, node.tree)
                    && self.duplicates.len() < MAX_DUPLICATES
                {
                    self.duplicates.push(format!("line {line}: key {name:?} already set in map"));
                }
            }
        }
        Ok(())
    }
}

/// A sequence or mapping whose end has not come yet.
struct Open {
    anchor: usize,
    /// What the document had expanded to before it.
    before: Size,
    /// Levels of sequences and mappings in it.
    height: usize,
    inside: Inside,
}

enum Inside {
    Sequence(Vec<Tree>),
    Mapping(Mapping),
}

#[derive(Default)]
struct Mapping {
    fields: Vec<(String, Tree)>,
    /// Where each field is.
    places: HashMap<String, usize>,
    /// The fields of `<<` values.
    merged: Vec<(String, Tree)>,
    /// A key whose value comes next.
    key: Option<Key>,
}

enum Key {
    Name {
        name: String,
        /// Where it stands.
        line: usize,
    },
    /// `<<`.
    Merge,
}

impl Mapping {
    /// Sets a field; gives its name back if it was set before.
    fn set(&mut self, key: String, value: Tree) -> Option<String> {
        match self.places.entry(key) {
            Entry::Occupied(place) => {
                self.fields[*place.get()].1 = value;
                Some(place.key().clone())
            }
            Entry::Vacant(place) => {
                self.fields.push((place.key().clone(), value));
                place.insert(self.fields.len() - 1);
                None
            }
        }
    }

    fn finish(mut self) -> Tree {
        for (key, value) in std::mem::take(&mut self.merged) {
            if !self.places.contains_key(&key) {
                self.set(key, value);
            }
        }
        Tree::Object(self.fields)
    }
}

fn syntax_error(error: &ScanError) -> YamlError {
    match error.kind() {
        ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
            YamlError::ControlCharacters
        }
        _ => YamlError::Syntax { line: error.marker().line(), message: error.info() },
    }
}

fn check_depth(depth: usize) -> Result<(), YamlError> {
    if depth > MAX_BODY_DEPTH {
        return Err(YamlError::Depth);
    }
    Ok(())
}

/// Takes the fields of a `<<` value; earlier mappings win.
fn merge_into(merged: &mut Vec<(String, Tree)>, value: Tree) -> Result<(), YamlError> {
    match value {
        Tree::Object(fields) => merged.extend(fields),
        Tree::Array(items) => {
            for item in items {
                merge_into(merged, item)?;
            }
        }
        _ => return Err(YamlError::Merge),
    }
    Ok(())
}

fn key_text(key: Tree, line: usize) -> Result<String, YamlError> {
    match key {
        Tree::String(text) if text == RESERVED => Err(YamlError::Reserved { line }),
        Tree::String(text) => Ok(text),
        Tree::Bool(value) => Ok(value.to_string()),
        Tree::Number(number) => Ok(number.to_string()),
        Tree::Null => Ok("null".into()),
        other => Err(YamlError::Key { line, found: other.found() }),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Tree {
    let tag = tag.filter(|t| t.handle() == CORE_TAGS).map(Tag::suffix);
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
    fn comments_directives_and_tags_are_no_content() {
        let comments = "# comment\n".repeat(200);
        let text = format!(
            "%YAML 1.1\n---\n{comments}a: # comment\n  {}  b: !!binary YQ==\n",
            comments.replace('#', "  #")
        );
        assert_eq!(value(&text), json!({"a": {"b": "YQ=="}}));
        assert_eq!(value("# nothing else\n"), Value::Null);
        assert_eq!(
            value("a: !!float 1\nb: !other yes\nc: !!int '7'\n"),
            json!({"a": 1.0, "b": true, "c": 7})
        );
    }

    #[test]
    fn control_characters_are_refused() {
        for text in ["a: \0", "a: x\u{1}", "a: 'x\u{7f}'", "# \u{1b}[31m\na: 1"] {
            let why = from_yaml(text.as_bytes()).unwrap_err().to_string();
            assert_eq!(why, "yaml: control characters are not allowed", "{text:?}");
        }
        assert_eq!(value("a: \"x\\u0001\"\n"), json!({"a": "x\u{1}"}));
    }

    #[test]
    fn syntax_errors_name_their_line() {
        let why = from_yaml(b"a: 1\nb: *c\n").unwrap_err().to_string();
        assert_eq!(why, "yaml: line 2: while parsing node, found unknown anchor");
        let why = from_yaml(b"a: 1\nb: c: d\n").unwrap_err().to_string();
        assert_eq!(why, "yaml: line 2: mapping values are not allowed in this context");
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
        assert!(from_yaml("- ".repeat(5000).as_bytes()).is_err());
        assert!(from_yaml(b"a: b: c").is_err());
        assert!(from_yaml(b"a: \xff").is_err());
    }

    /// A few lines in which every anchor holds the one before it twenty levels further down.
    fn deep_by_aliases(levels: usize) -> String {
        let mut text = String::from("a0: &a0 {x: 1}\n");
        for i in 1..=levels {
            text.push_str(&format!("a{i}: &a{i} {}*a{} {}\n", "[".repeat(20), i - 1, "]".repeat(20)));
        }
        text
    }

    #[test]
    fn aliases_do_not_nest_deeper_than_text() {
        // The mapping, six times twenty sequences, the innermost mapping: 122 levels.
        let deep = value(&deep_by_aliases(6));
        assert_eq!(crate::limits::height(&deep, &mut { usize::MAX }), Some(122));
        let why = from_yaml(deep_by_aliases(7).as_bytes()).unwrap_err().to_string();
        assert_eq!(why, "yaml: exceeded max depth");
        let merged = deep_by_aliases(6).replace("a6: &a6", "a6:\n  <<:");
        assert!(from_yaml(merged.as_bytes()).is_ok());
    }

    /// A request has a few hundred kilobytes of stack left when its body is read.
    #[test]
    fn the_deepest_document_needs_little_stack() {
        let text = format!("{}1{}", "{a: ".repeat(MAX_BODY_DEPTH), "}".repeat(MAX_BODY_DEPTH));
        let read = move || from_yaml(text.as_bytes()).map(drop);
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(read).unwrap();
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn aliases_of_long_text_are_counted_by_their_length() {
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 100].join(","));
        assert_eq!(
            from_yaml(text.as_bytes()).unwrap_err().to_string(),
            "yaml: document contains excessive aliasing"
        );
        // Anchors around anchors hold the same text again and again.
        let nested: String = (0..100).map(|i| format!("&n{i} [")).collect();
        let text = format!("{nested}{}{}", "x".repeat(100_000), "]".repeat(100));
        assert_eq!(
            from_yaml(text.as_bytes()).unwrap_err().to_string(),
            "yaml: document contains excessive aliasing"
        );
    }

    #[test]
    fn many_repeated_keys_take_no_longer_than_others() {
        let keys: String = (0..40_000).chain(0..40_000).map(|i| format!("k{i}: 1\n")).collect();
        let yaml = from_yaml(keys.as_bytes()).unwrap();
        assert_eq!(yaml.duplicates.len(), MAX_DUPLICATES);
        let Tree::Object(fields) = yaml.tree else { panic!("no mapping") };
        assert_eq!(fields.len(), 40_000);
    }

    proptest::proptest! {
        /// Whatever aliases refer to: no more levels than JSON may have, and nothing panics.
        #[test]
        fn no_document_goes_over_the_limits(lines in proptest::collection::vec((0usize..8, 0usize..60, 1usize..4), 1..12)) {
            let mut text = String::from("z: &z [1]\n");
            for (i, (from, depth, times)) in lines.into_iter().enumerate() {
                let alias = if from < i { format!("*a{from} ") } else { "*z ".to_owned() };
                let items = vec![alias; times].join(",");
                text.push_str(&format!("a{i}: &a{i} {}{items}{}\n", "[".repeat(depth + 1), "]".repeat(depth + 1)));
            }
            if let Ok(read) = from_yaml(text.as_bytes()) {
                let height = crate::limits::height(&to_value(read.tree), &mut { MAX_NODES });
                proptest::prop_assert!(height.is_some_and(|height| height <= MAX_BODY_DEPTH));
            }
        }
    }
}
