//! Files of manifests: what they hold, document by document.

use coracle_apiserver::decode;
use coracle_client::options::FieldValidation;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_proto::status::ApiError;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::fmt;
use std::io;

/// Largest file that is read.
pub(super) const MAX_BYTES: u64 = 8 << 20;
/// Most objects of a file: all of them have to fit into its record.
const MAX_OBJECTS: usize = 500;

/// Where a document stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    number: usize,
    line: usize,
    /// The item of a list.
    item: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document {} (line {})", self.number, self.line)?;
        self.item.map_or(Ok(()), |item| write!(f, ", item {item}"))
    }
}

/// Which object a document is about. Without a namespace it is in `default`, unless its kind is cluster-scoped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", self.kind, self.namespace, self.name)
    }
}

/// An object of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Document {
    pub(super) place: Place,
    pub(super) identity: Identity,
    pub(super) object: Value,
}

/// Why nothing of a file is applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("cannot be read")]
    Read(#[source] io::Error),
    #[error("is not a regular file")]
    NotRegular,
    #[error("has more than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    #[error("has more than {MAX_OBJECTS} objects")]
    TooMany,
    #[error("is not UTF-8 text")]
    NotText(#[source] std::str::Utf8Error),
    #[error("is not JSON")]
    Json(#[source] serde_json::Error),
    #[error("{0}")]
    Document(Place, #[source] ApiError),
    #[error("{0}: not an object")]
    NotObject(Place),
    #[error("{0}: {1} is missing")]
    Missing(Place, &'static str),
    #[error("{again}: {first} has {identity} already")]
    Twice { first: Place, again: Place, identity: Box<Identity> },
}

/// The objects of a file, in its order. Lists stand for their items; empty documents are skipped.
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Vec<Document>, FileError> {
    let text = std::str::from_utf8(bytes).map_err(FileError::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let texts = if file.ends_with(".json") { json_texts(text)? } else { yaml_texts(text)? };
    let mut documents: Vec<Document> = Vec::new();
    let mut number = 0;
    for (line, text) in texts {
        let place = Place { number: number + 1, line, item: None };
        let read = decode::applied(text.as_bytes(), FieldValidation::Strict);
        let object = read.map_err(|error| FileError::Document(place, error))?.object;
        if object.is_null() {
            continue;
        }
        number += 1;
        for (place, object) in items(place, object) {
            if documents.len() == MAX_OBJECTS {
                return Err(FileError::TooMany);
            }
            let document = document(place, object)?;
            if let Some(first) = documents.iter().find(|known| same(&known.identity, &document.identity)) {
                let (first, identity) = (first.place, Box::new(document.identity));
                return Err(FileError::Twice { first, again: place, identity });
            }
            documents.push(document);
        }
    }
    Ok(documents)
}

/// The items of a list; other objects stand for themselves.
fn items(place: Place, mut object: Value) -> Vec<(Place, Value)> {
    let is_list = object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match object.get_mut("items").filter(|_| is_list).map(Value::take) {
        Some(Value::Array(items)) => {
            let place = |at: usize| Place { item: Some(at + 1), ..place };
            items.into_iter().enumerate().map(|(at, item)| (place(at), item)).collect()
        }
        _ => vec![(place, object)],
    }
}

fn document(place: Place, object: Value) -> Result<Document, FileError> {
    if !object.is_object() {
        return Err(FileError::NotObject(place));
    }
    let view = PartialObjectMetadata::of(&object);
    let identity = Identity {
        api_version: view.api_version().text().to_owned(),
        kind: view.kind().text().to_owned(),
        namespace: view.metadata().namespace().text().to_owned(),
        name: view.metadata().name().text().to_owned(),
    };
    for (field, value) in
        [("apiVersion", &identity.api_version), ("kind", &identity.kind), ("metadata.name", &identity.name)]
    {
        if value.is_empty() {
            return Err(FileError::Missing(place, field));
        }
    }
    Ok(Document { place, identity, object })
}

/// The group of an `apiVersion`; the version does not tell objects apart.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Whether two documents are about one object.
fn same(a: &Identity, b: &Identity) -> bool {
    let written =
        |id: &Identity| if id.namespace == "default" { String::new() } else { id.namespace.clone() };
    group_of(&a.api_version) == group_of(&b.api_version)
        && (&a.kind, &a.name, written(a)) == (&b.kind, &b.name, written(b))
}

/// The documents of a YAML file with the lines where they begin. A separator stays with the document that it begins.
fn yaml_texts(text: &str) -> Result<Vec<(usize, &str)>, FileError> {
    let (mut found, mut begin, mut first, mut at) = (Vec::new(), 0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let separates =
            line.strip_prefix("---").is_some_and(|rest| rest.trim_start() != rest || rest.is_empty());
        if separates && at > begin {
            found.push((first, &text[begin..at]));
            (begin, first) = (at, number + 1);
        }
        // Separators count, too, whether there is anything between them or not.
        if found.len() > 2 * MAX_OBJECTS {
            return Err(FileError::TooMany);
        }
        at += line.len();
    }
    found.push((first, &text[begin..]));
    Ok(found)
}

/// The values of a JSON file with the lines where they begin.
fn json_texts(text: &str) -> Result<Vec<(usize, &str)>, FileError> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let (mut found, mut begin, mut line) = (Vec::new(), 0, 1);
    while let Some(value) = values.next() {
        value.map_err(FileError::Json)?;
        if found.len() == MAX_OBJECTS {
            return Err(FileError::TooMany);
        }
        let value = &text[begin..values.byte_offset()];
        let inner = value.trim_start();
        line += value[..value.len() - inner.len()].matches('\n').count();
        found.push((line, inner));
        line += inner.matches('\n').count();
        begin = values.byte_offset();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_cli::causes;

    fn names(file: &str, text: &str) -> Vec<String> {
        let found = parse(file, text.as_bytes()).unwrap();
        found.iter().map(|each| format!("{}: {}", each.place, each.identity)).collect()
    }

    fn error(file: &str, text: &str) -> String {
        causes::chain(&parse(file, text.as_bytes()).unwrap_err())
    }

    #[test]
    fn every_document_of_a_file_is_read() {
        let yaml = "# first\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n# nothing\n--- # second\n\
                    apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: b\n  namespace: web\n";
        let expected = ["document 1 (line 2): ConfigMap a", "document 2 (line 8): Deployment web/b"];
        assert_eq!(names("x.yaml", yaml), expected);
        assert_eq!(names("x.yaml", &yaml.replace('\n', "\r\n")), expected);
        let json = "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\",\n\"metadata\": {\"name\": \"a\"}}\n\n\
                    {\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"metadata\": {\"name\": \"b\"}}";
        assert_eq!(
            names("x.json", json),
            ["document 1 (line 1): ConfigMap a", "document 2 (line 4): Secret b"]
        );
        assert!(names("x.yaml", "").is_empty() && names("x.json", " \n").is_empty());
    }

    #[test]
    fn a_line_of_text_that_begins_with_dashes_is_no_separator() {
        let yaml =
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  key: |\n    a\n    ---\n    b\n";
        let found = parse("x.yaml", yaml.as_bytes()).unwrap();
        assert_eq!(found[0].object["data"]["key"], "a\n---\nb\n");
    }

    #[test]
    fn lists_stand_for_their_items() {
        let yaml = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n\
                    - {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n";
        assert_eq!(
            names("x.yaml", yaml),
            ["document 1 (line 1), item 1: ConfigMap a", "document 1 (line 1), item 2: ConfigMap b"]
        );
    }

    #[test]
    fn errors_name_document_line_and_field() {
        let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n";
        for (bad, expected) in [
            ("kind: ConfigMap\nmetadata: {name: b}\n", "document 2 (line 4): apiVersion is missing"),
            ("apiVersion: v1\nkind: ConfigMap\n", "document 2 (line 4): metadata.name is missing"),
            ("apiVersion: v1\nmetadata: {name: b}\n", "document 2 (line 4): kind is missing"),
            ("- a\n", "document 2 (line 4): not an object"),
            ("apiVersion: v1\nkind: [\n", "document 2 (line 4): error decoding YAML"),
            ("a: 1\na: 2\n", "document 2 (line 4): error strict decoding YAML"),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n",
                "document 2 (line 4): document 1 (line 1) has ConfigMap default/a already",
            ),
        ] {
            let said = error("x.yaml", &format!("{good}{bad}"));
            assert!(said.starts_with(expected), "{bad}: {said}");
        }
        assert!(error("x.json", "{\"a\": ").starts_with("is not JSON: EOF while parsing"));
    }

    #[test]
    fn sizes_are_bounded() {
        let many: String = (0..=MAX_OBJECTS)
            .map(|n| format!("---\n{{apiVersion: v1, kind: A, metadata: {{name: a{n}}}}}\n"))
            .collect();
        assert_eq!(error("x.yaml", &many), "has more than 500 objects");
        assert_eq!(error("x.yaml", &"---\n".repeat(100_000)), "has more than 500 objects");
        assert_eq!(error("x.json", &"{} ".repeat(501)), "has more than 500 objects");
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(error("x.json", &deep).starts_with("document 1 (line 1): error decoding YAML"));
    }
}
