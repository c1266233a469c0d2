//! Everything in a store at one revision.

use crate::{KeyValue, Revision, StoreError};
use futures::stream::BoxStream;

/// The keys of a store as they were at one revision.
pub struct Export {
    /// The revision.
    pub revision: Revision,
    /// The keys in order. An error ends the stream, which is incomplete then: history may be compacted meanwhile, or the
    /// engine closed.
    pub keys: BoxStream<'static, Result<KeyValue, StoreError>>,
}
