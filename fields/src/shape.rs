//! Comparisons and shapes of whole values, for rules that must not take a value of another JSON type for a missing one.

use crate::doc::Slot;
use crate::{Map, Reader, View};

impl<T> View<'_, T> {
    /// Whether both places have the same value; a missing one is `null`.
    pub fn same_as(&self, other: View<'_, T>) -> bool {
        *self.as_value() == *other.as_value()
    }

    /// Whether the value is an object.
    pub fn is_object(&self) -> bool {
        match self.access {
            Reader::Tree(tree) => tree.is_object(),
            Reader::Doc(doc, at) => matches!(doc.slot(at), Slot::Object(_)),
        }
    }
}

impl<T> View<'_, Map<T>> {
    /// Whether there is an entry of this key, even one that is `null`.
    pub fn has_key(&self, key: &str) -> bool {
        match self.access {
            Reader::Tree(tree) => tree.get(key).is_some(),
            Reader::Doc(doc, at) => doc.find(at, key).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::core::v1::Pod;
    use crate::{Doc, Schema as _};

    #[test]
    fn other_types_differ_from_nothing() {
        let json =
            r#"{"metadata":{"annotations":{"a":null}},"spec":{"nodeName":1,"securityContext":"x","os":{}}}"#;
        let doc = Doc::read(json.as_bytes()).unwrap();
        let tree: serde_json::Value = serde_json::from_str(json).unwrap();
        for pod in [doc.view::<Pod>(), Pod::of(&tree)] {
            let spec = pod.spec();
            assert!(spec.same_as(Pod::of(&tree).spec()) && !spec.node_name().same_as(spec.hostname()));
            assert!(spec.hostname().same_as(pod.metadata().name()), "nothing is nothing");
            assert!(spec.os().is_object() && !spec.security_context().is_object());
            assert!(!spec.affinity().is_object() && !pod.metadata().labels().has_key("a"));
            assert!(pod.metadata().annotations().has_key("a") && !pod.metadata().annotations().has_key("b"));
        }
    }
}
