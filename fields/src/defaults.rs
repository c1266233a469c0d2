//! Writes that fill gaps, for the default values of a kind.

use crate::{At, Edit, Fits, List, Reader, Schema, Writer};
use serde_json::Value;

impl<T> Edit<'_, T> {
    /// The place, when an object is there.
    pub fn existing(self) -> Option<Self> {
        let tree = self.access.into_existing()?;
        tree.is_object().then(|| At::new(Writer::new(tree)))
    }

    /// Sets the field unless it has a value other than zero, `false` and what is empty.
    pub fn default_empty(&mut self, value: impl Fits<T>) {
        if matches!(self.view().access, Reader::Tree(tree) if is_empty(tree)) {
            self.set(value);
        }
    }
}

impl<'a, T: Schema> Edit<'a, T> {
    /// The place as a type with the same fields, such as an ephemeral container as a container; nothing checks that.
    pub fn like<U: Schema>(self) -> Edit<'a, U> {
        At::new(self.access)
    }
}

impl<T: Schema> Edit<'_, List<T>> {
    /// Changes every item that is an object.
    pub fn each_object(&mut self, mut change: impl FnMut(Edit<'_, T>)) {
        let items = self.list_mut().into_iter().flatten().filter(|item| item.is_object());
        items.for_each(|item| change(At::new(Writer::new(item))));
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use crate::Schema;
    use crate::core::v1::{Container, Pod};
    use serde_json::json;

    #[test]
    fn only_gaps_are_filled() {
        let mut tree = json!({"spec": {"priority": 0, "nodeName": "n", "hostname": null, "containers": [null, {}],
            "ephemeralContainers": [{}]}});
        let mut pod = Pod::edit(&mut tree);
        let mut spec = pod.spec().section();
        spec.priority().default(1);
        assert_eq!(spec.view().priority().int(), Some(0));
        spec.priority().default_empty(2);
        spec.node_name().default_empty("other");
        spec.hostname().default("h");
        assert!(spec.affinity().existing().is_none() && spec.affinity().pod_affinity().existing().is_none());
        spec.containers().each_object(|mut container| container.name().default("a"));
        spec.ephemeral_containers()
            .each_object(|container| container.like::<Container>().name().default("b"));
        assert!(pod.spec().existing().is_some());
        assert_eq!(
            tree,
            json!({"spec": {"priority": 2, "nodeName": "n", "hostname": "h", "containers": [null, {"name": "a"}],
                "ephemeralContainers": [{"name": "b"}]}})
        );
    }
}
