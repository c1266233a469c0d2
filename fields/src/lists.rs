//! Lists and maps: reads and writes.

use crate::doc::Slot;
use crate::read::NULL;
use crate::{At, Doc, Edit, Fits, List, Map, Reader, Text, View, Writer};
use serde_json::Value;
use std::marker::PhantomData;

impl<'a, T> View<'a, List<T>> {
    /// The items, none when missing.
    pub fn items(&self) -> Items<'a, T> {
        match self.access {
            Reader::Tree(Value::Array(items)) => Items { tree: items.iter(), doc: None, of: PhantomData },
            Reader::Doc(doc, at) if matches!(doc.slot(at), Slot::List(_)) => {
                Items { tree: [].iter(), doc: Some((doc, at + 1, doc.after(at))), of: PhantomData }
            }
            _ => Items { tree: [].iter(), doc: None, of: PhantomData },
        }
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items().next().is_none()
    }

    /// The items as trees of their own.
    pub fn to_values(&self) -> Vec<Value> {
        self.items().map(|item| item.to_value()).collect()
    }

    /// The item at a place, nothing when there are fewer.
    pub fn nth(&self, at: usize) -> View<'a, T> {
        self.items().nth(at).unwrap_or(At::new(Reader::Tree(&NULL)))
    }

    /// The first item.
    pub fn first(&self) -> Option<View<'a, T>> {
        self.items().next()
    }
}

impl<'a> View<'a, List<Text>> {
    /// The texts of the list.
    pub fn texts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.items().map(|item| item.text())
    }

    /// Whether a text is among them.
    pub fn has(&self, text: &str) -> bool {
        self.texts().any(|item| item == text)
    }
}

impl<'a, T> IntoIterator for View<'a, List<T>> {
    type Item = View<'a, T>;
    type IntoIter = Items<'a, T>;

    fn into_iter(self) -> Items<'a, T> {
        self.items()
    }
}

/// Items of a list.
pub struct Items<'a, T> {
    tree: std::slice::Iter<'a, Value>,
    doc: Option<(&'a Doc<'a>, u32, u32)>,
    of: PhantomData<fn() -> T>,
}

impl<'a, T> Iterator for Items<'a, T> {
    type Item = View<'a, T>;

    fn next(&mut self) -> Option<View<'a, T>> {
        match &mut self.doc {
            None => self.tree.next().map(|item| At::new(Reader::Tree(item))),
            Some((doc, at, end)) if *at < *end => {
                let item = Reader::Doc(doc, *at);
                *at = doc.after(*at);
                Some(At::new(item))
            }
            Some(_) => None,
        }
    }
}

impl<'a, T> View<'a, Map<T>> {
    /// The entry of a key.
    pub fn key(&self, key: &str) -> View<'a, T> {
        At::new(self.access.get(key))
    }

    /// The entries as trees of their own.
    pub fn to_entries(&self) -> serde_json::Map<String, Value> {
        self.entries().map(|(key, value)| (key.to_owned(), value.to_value())).collect()
    }

    /// Keys and values.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, View<'a, T>)> + use<'a, T> {
        let (tree, doc) = match self.access {
            Reader::Tree(tree) => (tree.as_object(), None),
            Reader::Doc(doc, at) if matches!(doc.slot(at), Slot::Object(_)) => {
                (None, Some((doc, at + 1, doc.after(at))))
            }
            Reader::Doc(..) => (None, None),
        };
        let of_tree =
            tree.into_iter().flatten().map(|(key, value)| (key.as_str(), At::new(Reader::Tree(value))));
        let of_doc = doc.into_iter().flat_map(|(doc, mut at, end)| {
            std::iter::from_fn(move || {
                (at < end).then(|| {
                    let key = doc.text(at).unwrap_or_default();
                    let value = Reader::Doc(doc, at + 1);
                    at = doc.after(at + 1);
                    (key, At::new(value))
                })
            })
        });
        of_tree.chain(of_doc)
    }
}

impl<T> Edit<'_, List<T>> {
    /// The items, when there is a list.
    pub fn list_mut(&mut self) -> Option<&mut Vec<Value>> {
        self.tree().and_then(Value::as_array_mut)
    }

    /// Adds an item.
    pub fn push(&mut self, value: impl Fits<T>) {
        if let Some(value) = value.fit() {
            let made = self.access.make();
            match made.as_array_mut() {
                Some(items) => items.push(value),
                None => *made = Value::Array(vec![value]),
            }
        }
    }

    /// Adds an object, to be filled.
    pub fn add(&mut self) -> Edit<'_, T> {
        let made = self.access.make();
        if !made.is_array() {
            *made = Value::Array(Vec::new());
        }
        let Value::Array(items) = made else { unreachable!("it was made a list") };
        items.push(Value::Object(serde_json::Map::new()));
        let last = items.len() - 1;
        At::new(Writer::new(&mut items[last]))
    }

    /// Keeps the items of which `keep` says so; a list that is not there stays away.
    pub fn retain(&mut self, keep: impl Fn(View<'_, T>) -> bool) {
        if let Some(items) = self.tree().and_then(Value::as_array_mut) {
            items.retain(|item| keep(At::new(Reader::Tree(item))));
        }
    }

    /// Changes every item.
    pub fn each(&mut self, mut change: impl FnMut(Edit<'_, T>)) {
        if let Some(items) = self.tree().and_then(Value::as_array_mut) {
            items.iter_mut().for_each(|item| change(At::new(Writer::new(item))));
        }
    }
}

impl<T> Edit<'_, Map<T>> {
    /// The entries, when there is a map.
    pub fn map_mut(&mut self) -> Option<&mut serde_json::Map<String, Value>> {
        self.tree().and_then(Value::as_object_mut)
    }

    /// Sets an entry.
    pub fn insert(&mut self, key: &str, value: impl Fits<T>) {
        if let Some(value) = value.fit() {
            let made = self.access.make();
            if !made.is_object() {
                *made = Value::Object(serde_json::Map::new());
            }
            made[key] = value;
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &str) {
        if let Some(entries) = self.tree().and_then(Value::as_object_mut) {
            entries.remove(key);
        }
    }
}
