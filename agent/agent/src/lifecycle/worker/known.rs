//! Values that may be out of date.

/// A value that was read or sent, and whether the other side may have another one by now.
#[derive(Debug)]
pub(super) enum Known<T> {
    Current(T),
    Outdated(T),
}

impl<T: Default> Known<T> {
    pub(super) fn get(&self) -> &T {
        match self {
            Known::Current(value) | Known::Outdated(value) => value,
        }
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        match self {
            Known::Current(value) | Known::Outdated(value) => value,
        }
    }

    pub(super) fn is_outdated(&self) -> bool {
        matches!(self, Known::Outdated(_))
    }

    /// Marks the value as out of date.
    pub(super) fn outdate(&mut self) {
        if let Known::Current(value) = self {
            *self = Known::Outdated(std::mem::take(value));
        }
    }
}
