//! Where the keys of a new store come from, and what was loaded.

use super::error::LoadError;
use crate::{KeyValue, Revision, StoreError};
use futures::stream::BoxStream;

/// Above it keys of the embedded log could not be told from those of its index.
const MAX_REVISION: Revision = 1 << 55;

/// Where the keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// The revision at which they were exported.
    pub revision: Revision,
    /// Added to it: the new store continues behind the sum.
    pub bump: Revision,
}

/// What was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Number of keys.
    pub keys: u64,
    /// The revision of the store now. Everything before it is compacted.
    pub revision: Revision,
}

impl Loaded {
    /// The last revision that is compacted in the new store.
    pub(crate) fn floor(&self) -> Result<Revision, LoadError> {
        let sum = self.revision.saturating_add(self.bump);
        if sum > MAX_REVISION { Err(LoadError::TooGreat(sum)) } else { Ok(sum) }
    }
}

/// Keys that were checked.
pub(crate) type Keys<'a> = BoxStream<'a, Result<KeyValue, StoreError>>;
