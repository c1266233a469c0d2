//! What admission sees of a change: the object, another form of it, or nothing more because it was asked already.

use super::admission::{Admitted, Attributes, Mutated};
use super::hook::Facet;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::borrow::Cow;

/// The form in which admission sees a change.
#[derive(Clone, Copy)]
pub(super) enum Seen<'a> {
    /// The object itself.
    Object,
    /// What a subresource shows of it, such as its Scale.
    Facet(&'a dyn Facet),
    /// None: the request was admitted in its own form, such as a Binding.
    Admitted(Admitted),
}

impl Seen<'_> {
    /// An object in this form.
    pub(super) fn of<'v>(&self, object: &'v Value) -> Cow<'v, Value> {
        match self {
            Self::Facet(facet) => Cow::Owned(facet.show(object)),
            Self::Object | Self::Admitted(_) => Cow::Borrowed(object),
        }
    }
}

/// How far admission of a change has come before it is checked.
pub(super) enum Progress<'c> {
    /// The mutating plugins were asked.
    Mutated(Mutated<'c>),
    /// All were.
    Admitted(Admitted),
}

impl Progress<'_> {
    /// Asks those that were not asked yet.
    pub(super) async fn finish(self, at: &mut Attributes<'_>, shown: &Value) -> Result<Admitted, ApiError> {
        match self {
            Self::Mutated(mutated) => mutated.validate(at, shown).await,
            Self::Admitted(admitted) => Ok(admitted),
        }
    }
}
