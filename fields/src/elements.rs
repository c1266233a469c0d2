//! Lists and maps that are reached by an access of another crate, which keeps more than the value: its path, for example.

use crate::{Access, At, List, Map, View};

/// Access that leads on to the items of lists and the entries of maps.
pub trait Elements: Access {
    /// Items of a list.
    type Items: Iterator<Item = Self>;
    /// The key of an entry.
    type Key;
    /// Entries of a map.
    type Entries: Iterator<Item = (Self::Key, Self)>;

    /// Access to each item of the list at the place, none when missing.
    fn list_items(&self) -> Self::Items;

    /// Access to each entry of the map at the place, none when missing.
    fn map_entries(&self) -> Self::Entries;

    /// Access to an entry of the map at the place, which may be missing.
    fn map_entry(&self, key: &str) -> Self;
}

impl<C: Elements, T> At<C, List<T>> {
    /// The items, none when missing.
    pub fn items(&self) -> impl Iterator<Item = At<C, T>> + use<C, T> {
        self.list_items().map(At::new)
    }
}

impl<C: Elements, T> At<C, Map<T>> {
    /// Keys and values, none when missing.
    pub fn entries(&self) -> impl Iterator<Item = (C::Key, At<C, T>)> + use<C, T> {
        self.map_entries().map(|(key, value)| (key, At::new(value)))
    }

    /// The entry of a key.
    pub fn key(&self, key: &str) -> At<C, T> {
        At::new(self.map_entry(key))
    }
}

impl<C: Access, T> At<C, T> {
    /// The place as one that is only read.
    #[inline]
    pub fn view<'a>(&self) -> View<'a, T>
    where
        C: 'a,
    {
        At::new(self.reader())
    }
}

#[cfg(test)]
mod tests {
    use super::Elements;
    use crate::core::v1::Pod;
    use crate::{Access, At, Field, Reader};
    use serde_json::{Value, json};

    struct Located<'a>(&'a Value, String);

    static NULL: Value = Value::Null;

    impl Access for Located<'_> {
        fn field(&self, field: Field) -> Self {
            Located(self.0.get(field.name).unwrap_or(&NULL), format!("{}.{}", self.1, field.name))
        }

        fn reader<'a>(&self) -> Reader<'a>
        where
            Self: 'a,
        {
            Reader::Tree(self.0)
        }
    }

    impl<'c> Elements for Located<'c> {
        type Items = std::vec::IntoIter<Self>;
        type Key = &'c str;
        type Entries = std::vec::IntoIter<(&'c str, Self)>;

        fn list_items(&self) -> Self::Items {
            let items = self.0.as_array().into_iter().flatten().enumerate();
            let items: Vec<Self> =
                items.map(|(at, item)| Located(item, format!("{}[{at}]", self.1))).collect();
            items.into_iter()
        }

        fn map_entries(&self) -> Self::Entries {
            let entries = self.0.as_object().into_iter().flatten();
            let entries: Vec<_> = entries.map(|(key, _)| (key.as_str(), self.map_entry(key))).collect();
            entries.into_iter()
        }

        fn map_entry(&self, key: &str) -> Self {
            Located(self.0.get(key).unwrap_or(&NULL), format!("{}[{key}]", self.1))
        }
    }

    #[test]
    fn items_and_entries_keep_their_paths() {
        let tree = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}});
        let pod: At<Located<'_>, Pod> = At::new(Located(&tree, "pod".into()));
        for container in pod.spec().containers().items() {
            assert_eq!(container.name().1, "pod.spec.containers[0].name");
            assert!(container.view().name() == "c");
        }
        let labels: Vec<_> =
            pod.metadata().labels().entries().map(|(key, value)| (key, value.text())).collect();
        assert_eq!(labels, [("a", "b")]);
        assert_eq!(pod.metadata().labels().key("x").1, "pod.metadata.labels[x]");
    }
}
