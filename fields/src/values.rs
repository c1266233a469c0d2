//! Trees as places of no type, and places as trees.

use crate::{Access, At, Json, Reader, View};
use serde_json::Value;
use std::borrow::Cow;

/// Every tree is JSON.
impl<'a> From<&'a Value> for View<'a, Json> {
    #[inline]
    fn from(tree: &'a Value) -> Self {
        At::new(Reader::Tree(tree))
    }
}

impl<C: Access, T> At<C, T> {
    /// The value as a tree, `null` when missing; a copy only when it is read from a document.
    pub fn as_value<'a>(&self) -> Cow<'a, Value>
    where
        C: 'a,
    {
        match self.reader() {
            Reader::Tree(tree) => Cow::Borrowed(tree),
            document => Cow::Owned(document.tree()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::core::v1::Pod;
    use crate::{Doc, Json, View};
    use serde_json::{Value, json};
    use std::borrow::Cow;

    #[test]
    fn trees_are_not_copied() {
        let json = r#"{"spec":{"nodeName":"n"}}"#;
        let tree: Value = serde_json::from_str(json).unwrap();
        let pod = View::<Json>::from(&tree).as_type::<Pod>();
        assert!(matches!(pod.spec().as_value(), Cow::Borrowed(spec) if *spec == json!({"nodeName": "n"})));
        assert!(pod.status().as_value().is_null());
        let doc = Doc::read(json.as_bytes()).unwrap();
        assert_eq!(doc.view::<Pod>().spec().as_value(), pod.spec().as_value());
    }
}
