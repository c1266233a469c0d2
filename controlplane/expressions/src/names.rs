//! The names by which expressions call fields, and the fields that every object has.

use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_fields::{Made, Schema as _, View};
use serde_json::{Value, json};

/// A schema or part of one.
type Props<'s> = View<'s, JSONSchemaProps>;

/// Words that CEL keeps for itself.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// What stands for characters that names of fields may have and identifiers not.
const ESCAPES: [(&str, &str); 4] =
    [("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// A field's name as an identifier. Expressions cannot name fields whose names have other characters.
pub fn identifier(name: &str) -> Option<String> {
    let is_named = !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/'));
    is_named.then(|| escaped(name))
}

/// A field's name as an identifier, if it can be one.
pub fn escaped(name: &str) -> String {
    if is_reserved(name) {
        return format!("__{name}__");
    }
    // Underscores first: what stands for the others has some.
    ESCAPES.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// Whether a name is one that stands for another.
pub fn is_escaped(name: &str) -> bool {
    let keyword = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    keyword.is_some_and(|keyword| RESERVED.contains(&keyword))
        || ESCAPES.iter().any(|(_, to)| name.contains(to))
}

/// Whether CEL keeps a word for itself. Fields of this name are also known by it.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// The schema of what is inside a list or a map.
pub(super) fn within(schema: Props<'_>) -> Option<Props<'_>> {
    let mut inside = [schema.items(), schema.additional_properties()].into_iter();
    inside.find(|inside| inside.is_object()).map(|inside| inside.as_type())
}

/// The schema of a whole object: what every object has, too.
pub fn of_root(schema: &Value) -> Value {
    let mut whole = schema.clone();
    if !whole.is_object() {
        return whole;
    }
    let text = json!({"type": "string"});
    let mut props = JSONSchemaProps::edit(&mut whole);
    let mut fields = props.properties();
    for (field, of) in [
        ("apiVersion", text.clone()),
        ("kind", text.clone()),
        ("metadata", json!({"type": "object", "properties": {"name": text, "generateName": text}})),
    ] {
        fields.insert(field, Made::<JSONSchemaProps>::new(of));
    }
    whole
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_that_are_no_identifiers_have_others() {
        for (name, want) in [
            ("plain", "plain"),
            ("a-b", "a__dash__b"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
            ("namespace", "__namespace__"),
            ("while", "__while__"),
            ("a___b.c", "a__underscores___b__dot__c"),
        ] {
            assert_eq!(identifier(name).as_deref(), Some(want));
        }
        for name in ["", "1a", "a$", "a b", "é"] {
            assert_eq!(identifier(name), None, "{name}");
        }
    }
}
