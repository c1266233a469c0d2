//! Typed access to the fields of cached objects.

use coracle_fields::{Doc, Made, Schema};
use coracle_kinds::object::Object;

/// Reads and changes the fields of an object by their types.
pub trait TypedObject {
    /// The object for reading; cheaper than [`Object::value`]. Never fails, for the same reason.
    fn doc(&self) -> Doc<'_>;

    /// A copy of the object, to be changed and written.
    fn copy<T: Schema>(&self) -> Made<T>;
}

impl TypedObject for Object {
    fn doc(&self) -> Doc<'_> {
        Doc::read(&self.json).expect("render::read makes no object of bytes that are no tree")
    }

    fn copy<T: Schema>(&self) -> Made<T> {
        Made::new(self.value())
    }
}
