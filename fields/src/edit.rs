//! Writing. The first write to a place creates it and the objects above it; looking creates nothing.

use crate::read::NULL;
use crate::{At, Fits, Reader, View};
use serde_json::Value;

/// How many missing fields a write may create; the deepest path of the table without lists has nine fields.
const DEPTH: usize = 12;

/// A place in a tree: an existing value, and the fields from it down to the place. Of these only the first may exist.
pub struct Writer<'a> {
    tree: &'a mut Value,
    names: [&'static str; DEPTH],
    count: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(tree: &'a mut Value) -> Self {
        Self { tree, names: [""; DEPTH], count: 0 }
    }

    fn deeper(&mut self, name: &'static str) -> Writer<'_> {
        if self.count == 1 && self.tree.get(self.names[0]).is_some_and(Value::is_object) {
            let mut below = Writer::new(&mut self.tree[self.names[0]]);
            (below.names[0], below.count) = (name, 1);
            return below;
        }
        let mut names = self.names;
        names[self.count] = name;
        Writer { tree: self.tree, names, count: self.count + 1 }
    }

    fn look(&self) -> Reader<'_> {
        Reader::Tree(match self.count {
            0 => self.tree,
            1 => self.tree.get(self.names[0]).unwrap_or(&NULL),
            _ => &NULL,
        })
    }

    pub(crate) fn existing(&mut self) -> Option<&mut Value> {
        match self.count {
            0 => Some(self.tree),
            1 => self.tree.get_mut(self.names[0]),
            _ => None,
        }
    }

    pub(crate) fn make(&mut self) -> &mut Value {
        let mut at = &mut *self.tree;
        for name in &self.names[..self.count] {
            if !at.is_object() {
                *at = Value::Object(serde_json::Map::new());
            }
            at = &mut at[*name];
        }
        at
    }

    fn remove(&mut self) {
        if let (1, Value::Object(entries)) = (self.count, &mut *self.tree) {
            entries.remove(self.names[0]);
        }
    }
}

impl<T> At<Writer<'_>, T> {
    #[inline]
    pub(crate) fn edit_at<U>(&mut self, name: &'static str) -> At<Writer<'_>, U> {
        At::new(self.access.deeper(name))
    }

    /// Reads the place.
    pub fn view(&self) -> View<'_, T> {
        At::new(self.access.look())
    }

    /// Sets the field; `None` and a place without a value remove it.
    pub fn set(&mut self, value: impl Fits<T>) {
        self.put(value.fit().unwrap_or_default());
    }

    /// Sets the field to a tree whose type is not checked; `null` removes it.
    pub fn put(&mut self, tree: Value) {
        match tree {
            Value::Null => self.access.remove(),
            tree => *self.access.make() = tree,
        }
    }

    /// Sets the field unless it has a value; an empty string counts as none.
    pub fn default(&mut self, value: impl Fits<T>) {
        let nothing = match self.access.look() {
            Reader::Tree(Value::Null) => true,
            Reader::Tree(Value::String(text)) => text.is_empty(),
            _ => false,
        };
        if nothing {
            self.set(value);
        }
    }

    /// Makes the place an object, if it is none.
    pub fn section(mut self) -> Self {
        let made = self.access.make();
        if !made.is_object() {
            *made = Value::Object(serde_json::Map::new());
        }
        self
    }

    /// The tree at the place, if there is one.
    pub fn tree(&mut self) -> Option<&mut Value> {
        self.access.existing()
    }

    /// Removes the field.
    pub fn clear(&mut self) {
        self.access.remove();
    }
}
