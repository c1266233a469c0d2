//! Fields that the schema table does not describe.

use crate::{At, Json, Map, View};

impl<'a> View<'a, Json> {
    /// Names and values of the fields, none when it is no object.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, View<'a, Json>)> + use<'a> {
        At::<_, Map<Json>>::new(self.access).entries()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::core::v1::Pod;
    use crate::{Doc, Schema as _};

    #[test]
    fn fields_by_name() {
        let json = r#"{"spec":{"nodeName":"n","volumes":[{"name":"v"}]},"status":null}"#;
        let doc = Doc::read(json.as_bytes()).unwrap();
        let tree: serde_json::Value = serde_json::from_str(json).unwrap();
        for pod in [doc.view::<Pod>(), Pod::of(&tree)] {
            let names = pod.spec().erased().entries().map(|(name, _)| name).collect::<Vec<_>>();
            assert_eq!(names, ["nodeName", "volumes"]);
            assert_eq!(pod.status().erased().entries().count(), 0);
            assert_eq!(pod.spec().volumes().erased().entries().count(), 0, "a list has no names");
        }
    }
}
