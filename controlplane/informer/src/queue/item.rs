//! What can be queued.

use std::fmt::Debug;
use std::hash::Hash;

/// What can be queued.
pub trait Item: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static {}
impl<T: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static> Item for T {}
