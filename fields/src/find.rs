//! Entries of maps that may be missing, for readers that tell a missing entry from one that is `null`.

use crate::{At, Map, Reader, View};

impl<'a, T> View<'a, Map<T>> {
    /// The entry of a key, if there is one, even one that is `null`.
    pub fn find(&self, key: &str) -> Option<View<'a, T>> {
        match self.access {
            Reader::Tree(tree) => tree.get(key).map(|value| At::new(Reader::Tree(value))),
            Reader::Doc(doc, at) => doc.find(at, key).map(|at| At::new(Reader::Doc(doc, at))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::core::v1::ConfigMap;
    use crate::{Doc, Schema as _};

    #[test]
    fn null_is_an_entry() {
        let json = r#"{"data":{"a":"x","b":null}}"#;
        let doc = Doc::read(json.as_bytes()).unwrap();
        let tree: serde_json::Value = serde_json::from_str(json).unwrap();
        for map in [doc.view::<ConfigMap>(), ConfigMap::of(&tree)] {
            let found = |key: &str| map.data().find(key).map(|entry| entry.text());
            assert_eq!((found("a"), found("b"), found("c")), (Some("x"), Some(""), None));
            assert!(map.binary_data().find("a").is_none());
        }
    }
}
