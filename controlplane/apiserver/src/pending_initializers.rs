//! Which objects wait for initializers, and how many creates may wait with them.

use coracle_client::options::{Uninitialized, WriteOptions};
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::object::Object;
use coracle_proto::schema;
use coracle_proto::status::ApiError;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How many creates of clients wait at a time. Each holds a seat of its priority level, and the level of most users,
/// `global-default`, has 49 with the default limits: others are to get through. Control loops hold no seats and are not counted.
const WAITING: usize = 32;

/// Whether initializers of an object are pending. Without the feature gate an object that still has the field is like any other.
pub(super) fn is_pending(object: &Object) -> bool {
    object.meta.uninitialized && schema::has_initializers()
}

/// Places for creates that wait.
pub struct WaitingCreates(Semaphore);

impl Default for WaitingCreates {
    fn default() -> Self {
        Self(Semaphore::new(WAITING))
    }
}

impl WaitingCreates {
    /// The place of a create that will wait for initializers of this new object; `None` if it will not wait. When all places are
    /// taken, 429 before anything is stored, so that clients can send the request again.
    pub(super) fn place(
        &self,
        options: &WriteOptions,
        object: &Value,
    ) -> Result<Option<SemaphorePermit<'_>>, ApiError> {
        let is_counted = options.uninitialized == Uninitialized::Keep && !options.dry_run;
        if !is_counted || !PartialObjectMetadata::of(object).metadata().initializers().is_set() {
            return Ok(None);
        }
        let refused = || {
            ApiError::too_many_requests("too many creates wait for initializers, please try again later.", 1)
        };
        self.0.try_acquire().map(Some).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    #[test]
    fn nothing_is_pending_without_the_gate() {
        let pending = json!({"pending": [{"name": "a.example.com"}]});
        let left = object(json!({"metadata": {"name": "a", "uid": "1", "initializers": pending}}));
        assert!(left.meta.uninitialized && !is_pending(&left));
    }

    #[test]
    fn only_so_many_creates_of_clients_wait() {
        let waiting = WaitingCreates::default();
        let pending = json!({"metadata": {"initializers": {"pending": [{"name": "a.example.com"}]}}});
        let place = |uninitialized: Uninitialized, object: &Value| {
            waiting.place(&WriteOptions { uninitialized, ..WriteOptions::default() }, object)
        };
        let mut taken: Vec<_> = (0..WAITING).map(|_| place(Uninitialized::Keep, &pending)).collect();
        assert!(taken.iter().all(|place| matches!(place, Ok(Some(_)))));
        let refused = place(Uninitialized::Keep, &pending).err();
        assert_eq!(refused.map(|error| (error.code, error.details.retry_after)), Some((429, 1)));
        for (uninitialized, object) in [
            (Uninitialized::Keep, &json!({"metadata": {}})),
            (Uninitialized::Show, &pending),
            (Uninitialized::Remove, &pending),
        ] {
            assert!(matches!(place(uninitialized, object), Ok(None)), "{uninitialized:?} {object}");
        }
        drop(taken.pop());
        assert!(matches!(place(Uninitialized::Keep, &pending), Ok(Some(_))));
    }
}
