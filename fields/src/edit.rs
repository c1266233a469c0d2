//! Writing. The first write to a place creates it and the objects above it; looking creates nothing.

use crate::read::NULL;
use crate::{At, Fits, Reader, View};
use serde_json::Value;

/// How many missing fields a write may create; the deepest path of the table without lists has nine fields.
const DEPTH: usize = 12;

/// A place in a tree: an existing value, and the fields from it down to the place. Those after the first did not exist when
/// the place was reached.
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
        let names = &self.names[..self.count];
        let found = names.iter().try_fold(&*self.tree, |tree, name| tree.get(*name));
        Reader::Tree(found.unwrap_or(&NULL))
    }

    fn again(&mut self) -> Writer<'_> {
        Writer { tree: self.tree, names: self.names, count: self.count }
    }

    pub(crate) fn existing(&mut self) -> Option<&mut Value> {
        self.again().into_existing()
    }

    pub(crate) fn make(&mut self) -> &mut Value {
        self.again().into_made()
    }

    /// The value at the place, made when it is missing.
    fn into_made(self) -> &'a mut Value {
        let mut at = self.tree;
        for name in &self.names[..self.count] {
            if !at.is_object() {
                *at = Value::Object(serde_json::Map::new());
            }
            at = &mut at[*name];
        }
        at
    }

    /// The value at the place, when there is one.
    pub(crate) fn into_existing(self) -> Option<&'a mut Value> {
        let names = &self.names[..self.count];
        names.iter().try_fold(self.tree, |tree, name| tree.get_mut(*name))
    }

    fn remove(&mut self) {
        let Some((last, above)) = self.names[..self.count].split_last() else { return };
        let parent = above.iter().try_fold(&mut *self.tree, |tree, name| tree.get_mut(*name));
        if let Some(Value::Object(entries)) = parent {
            entries.remove(*last);
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

    /// Makes the place an object, if it is none. The result is that object: its fields can be removed, not the object itself.
    pub fn section(self) -> Self {
        let made = self.access.into_made();
        if !made.is_object() {
            *made = Value::Object(serde_json::Map::new());
        }
        At::new(Writer::new(made))
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
