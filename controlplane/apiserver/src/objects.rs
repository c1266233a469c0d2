//! Reads of objects, from the caches and at the newest revision. Authentication, authorization, connections to nodes and
//! everything else that only reads takes [`Objects`] instead of the whole API.

use coracle_kinds::object::Object;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_kinds::watch::reflector::Reflector;
use coracle_proto::status::ApiError;
use coracle_store::{Revision, Store, StoreError};
use coracle_trace::{Sum, add};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

/// The kinds and the caches of their objects.
pub struct Objects {
    /// The kinds.
    pub registry: Arc<Registry>,
    /// The caches.
    pub reflector: Arc<Reflector>,
    store: Arc<dyn Store>,
}

impl Objects {
    /// The caches of `reflector`; `store` is asked for the newest revision.
    pub fn new(registry: Arc<Registry>, store: Arc<dyn Store>, reflector: Arc<Reflector>) -> Self {
        Self { registry, reflector, store }
    }

    /// The cache that holds a kind.
    pub fn cache(&self, kind: &Kind) -> Result<Arc<Cache>, ApiError> {
        self.reflector.cache(kind).ok_or_else(ApiError::no_such_path)
    }

    /// The cache that holds a kind, with objects whose initializers are pending. It is the same cache without initializers.
    pub fn whole_cache(&self, kind: &Kind) -> Result<Arc<Cache>, ApiError> {
        self.reflector.whole_cache(kind).ok_or_else(ApiError::no_such_path)
    }

    /// Waits until reads see every write acknowledged before this call; returns that revision.
    pub async fn catch_up(&self) -> Result<Revision, ApiError> {
        waited_for(async {
            let revision = self.store.revision().await.map_err(store_failed)?;
            self.reflector.wait_for(revision).await;
            Ok(revision)
        })
        .await
    }

    /// The newest state of an object.
    pub async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.catch_up().await?;
        self.cached(kind, namespace, name)
    }

    /// The newest state of an object, also while its initializers are pending.
    pub async fn get_whole(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.catch_up().await?;
        self.cached_whole(kind, namespace, name)
    }

    /// The state of an object as this server last saw it.
    pub fn cached(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.found(kind, (namespace, name), &*self.cache(kind)?)
    }

    /// The same, also while its initializers are pending.
    pub fn cached_whole(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.found(kind, (namespace, name), &*self.whole_cache(kind)?)
    }

    fn found(
        &self,
        kind: &Kind,
        (namespace, name): (&str, &str),
        cache: &Cache,
    ) -> Result<Arc<Object>, ApiError> {
        cache.get(namespace, name).ok_or_else(|| {
            match self.reflector.unreadable_at(&kind.key(namespace, name)) {
                // It is there: who takes it for gone would remove what belongs to it.
                Some(broken) => ApiError::internal(broken).about(&kind.group, &kind.plural, name),
                None => ApiError::not_found(&kind.group, &kind.plural, name),
            }
        })
    }
}

/// Counts how long the current request waits for the store. Most reads do not wait, and no clock is read for them.
async fn waited_for<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut begun = None;
    let result = poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            begun.get_or_insert_with(Instant::now);
        }
        polled
    })
    .await;
    if let Some(begun) = begun {
        add(Sum::Store, begun.elapsed());
    }
    result
}

/// A store failure that is not the client's doing.
pub fn store_failed(error: StoreError) -> ApiError {
    match error {
        StoreError::Compacted(_) => ApiError::expired(
            "The provided resource version is too old: the requested history is no longer held",
        ),
        // It may have been written: whoever sends it again has to look first.
        StoreError::Etcd(error) if error.is_ambiguous() => ApiError::timeout(error.to_string()),
        // Nothing was written, so a client may send it again.
        StoreError::Unavailable(_) | StoreError::Paused => unavailable(&error),
        StoreError::Etcd(ref etcd) if etcd.is_transient() => unavailable(&error),
        other => ApiError::internal(other),
    }
}

/// Asks the client to come back, here or at another server.
fn unavailable(error: &StoreError) -> ApiError {
    let mut refusal = ApiError::unavailable(error.to_string());
    refusal.details.retry_after = 1;
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_store::etcd::EtcdError;
    use coracle_trace::{Recorder, within};
    use std::time::Duration;

    #[tokio::test]
    async fn reads_that_wait_for_the_store_are_counted() {
        let request = Recorder::OFF.request(None, false);
        within(request.scope(), waited_for(async {})).await;
        assert_eq!(request.finish(200).store, Duration::ZERO);
        let request = Recorder::OFF.request(None, false);
        within(request.scope(), waited_for(tokio::task::yield_now())).await;
        assert!(request.finish(200).store > Duration::ZERO);
    }

    #[test]
    fn only_what_was_not_written_is_to_be_sent_again() {
        let unknown = store_failed(EtcdError::Ambiguous("/registry/a".to_owned()).into());
        assert_eq!((unknown.code, unknown.reason, unknown.details.retry_after), (504, "Timeout", 0));
        let unread = store_failed(EtcdError::Timeout(Duration::from_secs(1)).into());
        assert_eq!((unread.code, unread.reason, unread.details.retry_after), (503, "ServiceUnavailable", 1));
        assert_eq!(store_failed(EtcdError::NoRevision.into()).code, 500);
    }
}
