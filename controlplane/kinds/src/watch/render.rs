//! The line that watchers get of an event, in the same memory as its object.

use super::event::EventType;
use crate::object::Object;
use crate::object::decode::{self, DecodeError};
use crate::object::field::Field;
use bytes::Bytes;
use coracle_store::Revision;

/// An object from its stored bytes with its line in the same memory.
pub fn event(
    what: EventType,
    fields: &[Field],
    stored: &[u8],
    revision: Revision,
) -> Result<(Object, Bytes), DecodeError> {
    let (json, line) = wrap(what, stored, revision)?;
    Ok((decode::read(fields, json, revision)?, line))
}

/// The last state of an object at the revision of its removal, with its line.
pub fn removal(last: &Object, revision: Revision) -> Result<(Object, Bytes), DecodeError> {
    let (json, line) = wrap(EventType::Deleted, &decode::unversioned(&last.json)?, revision)?;
    Ok((Object { revision, json, meta: last.meta.clone(), fields: last.fields.clone() }, line))
}

/// A watch line for an object that is already JSON, such as an initial event or a bookmark.
pub fn line(word: &str, json: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(json.len() + 40);
    put_start(&mut line, word);
    line.extend_from_slice(json);
    line.extend_from_slice(b"}\n");
    line.into()
}

fn put_start(line: &mut Vec<u8>, word: &str) {
    for part in ["{\"type\":\"", word, "\",\"object\":"] {
        line.extend_from_slice(part.as_bytes());
    }
}

fn wrap(what: EventType, stored: &[u8], revision: Revision) -> Result<(Bytes, Bytes), DecodeError> {
    let mut line = Vec::with_capacity(stored.len() + 80);
    put_start(&mut line, what.word());
    let start = line.len();
    decode::put_object(&mut line, stored, revision)?;
    let end = line.len();
    line.extend_from_slice(b"}\n");
    line.shrink_to_fit();
    let line = Bytes::from(line);
    Ok((line.slice(start..end), line))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    const POD: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","labels":{"metadata":"{}"}},"spec":{"nodeName":"x"}}"#;

    #[test]
    fn lines_hold_the_object_at_the_revision_of_the_event() {
        let fields = [Field::new("spec.nodeName", |v| v["spec"]["nodeName"].as_str().unwrap().to_owned())];
        let (added, line) = event(EventType::Added, &fields, POD, 7).unwrap();
        assert_eq!((&*added.meta.name, &*added.meta.namespace, &*added.fields[0]), ("a", "n", "x"));
        let (gone, gone_line) = removal(&added, 12).unwrap();
        for (what, line, object, revision) in
            [("ADDED", line, &added, "7"), ("DELETED", gone_line, &gone, "12")]
        {
            assert_eq!(line.last(), Some(&b'\n'));
            let value: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(value["type"], what);
            assert_eq!(value["object"], object.value());
            assert_eq!(value["object"]["metadata"]["resourceVersion"], revision);
            assert_eq!(line, super::line(what, &object.json));
        }
        assert_eq!((gone.revision, &gone.fields, &gone.meta), (12, &added.fields, &added.meta));
    }
}
