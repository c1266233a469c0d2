//! Which spans of a tree say how far the object is that was asked for.

use crate::tree::{ObjectKey, SpanNode, Tree};

/// A pod, a claim or a volume answers for itself; everything else for all that followed.
pub(crate) struct Scope(Option<usize>);

impl Scope {
    /// `about`: the object that was asked for.
    pub(crate) fn of(tree: &Tree, about: Option<&ObjectKey>) -> Self {
        let about = about.filter(|about| {
            matches!(about.resource.as_str(), "pods" | "persistentvolumeclaims" | "persistentvolumes")
        });
        // Another one may have had the name before.
        Self(about.and_then(|about| tree.objects.iter().rposition(|object| object.key == *about)))
    }

    /// Whether a span counts.
    pub(crate) fn has(&self, span: &SpanNode) -> bool {
        self.0.is_none_or(|only| span.object == Some(only) || span.parent.is_none())
    }

    /// Whether an object counts.
    pub(crate) fn has_object(&self, object: usize) -> bool {
        self.0.is_none_or(|only| object == only)
    }

    /// Whether no other object counts.
    pub(crate) fn is_only(&self, object: usize) -> bool {
        self.0 == Some(object)
    }
}
