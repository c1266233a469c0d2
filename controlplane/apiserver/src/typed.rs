//! Typed access to the fields of cached objects.

use coracle_fields::Doc;
use coracle_kinds::object::Object;

/// Reads the fields of an object by their types.
pub(crate) trait TypedObject {
    /// The object for reading; cheaper than [`Object::value`]. Never fails, for the same reason.
    fn doc(&self) -> Doc<'_>;
}

impl TypedObject for Object {
    fn doc(&self) -> Doc<'_> {
        Doc::read(&self.json).expect("render::read makes no object of bytes that are no tree")
    }
}
