//! Fills an empty etcd with the keys of another store. A key marks the store as unfinished until all are there.

use super::{
    attempt::LARGE,
    keyspace::{Keyspace, LOADING, OFFSET},
    options::EtcdOptions,
    shared::{Shared, kv},
};
use crate::{
    KeyValue, StoreError,
    format::FORMAT_KEY,
    load::{
        error::LoadError,
        loaded::{Keys, Loaded, Summary},
    },
};
use coracle_cli::causes;
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, Txn, TxnOp};
use futures::TryStreamExt;

/// Puts that are under way at the same time. Each is one transaction, because keys must not share a revision.
const AT_ONCE: usize = 64;

/// Puts the keys into etcd, whose revisions get an offset that lifts them above all of the old store.
pub(crate) async fn load(
    options: &EtcdOptions,
    keys: Keys<'_>,
    loaded: Loaded,
) -> Result<Summary, StoreError> {
    let loading = Loading { etcd: Shared::open(options).await?, name: options.name() };
    let own = loading.begin(loaded).await?;
    match loading.put_all(keys).await {
        Ok(count) => Ok(Summary { keys: count, revision: loading.finish(&own).await? }),
        Err(error) => {
            if let Err(why) = loading.clear().await {
                tracing::error!(error = %causes::chain(&why), "keys of a failed load are left in {}", loading.name);
            }
            Err(error)
        }
    }
}

struct Loading {
    etcd: Shared,
    name: String,
}

impl Loading {
    /// Marks the empty store as being loaded, together with its offset.
    async fn begin(&self, loaded: Loaded) -> Result<Keyspace, StoreError> {
        let (floor, keys) = (loaded.floor()?, &self.etcd.keys);
        let count = |client| {
            let options = GetOptions::new().with_range(keys.end("/")).with_count_only();
            async move { kv(&client).get(keys.key("/"), Some(options)).await }
        };
        let found = self.etcd.endpoints.read(LARGE, count).await?;
        if found.count() > 0 {
            let name = self.name.clone();
            let unfinished = self.etcd.find(LOADING).await?.is_some();
            return Err(
                if unfinished { LoadError::Unfinished(name) } else { LoadError::NotEmpty(name) }.into()
            );
        }
        let offset = floor.saturating_sub(self.etcd.hear(found.header())?.unsigned_abs());
        // A server that opens it at the same moment has written the format, or sees that keys are being loaded.
        let absent = |key| Compare::mod_revision(keys.key(key), CompareOp::Equal, 0);
        let begin = Txn::new().when([FORMAT_KEY, LOADING, OFFSET].map(absent)).and_then([
            TxnOp::put(keys.key(OFFSET), offset.to_string(), None),
            TxnOp::put(keys.key(LOADING), loaded.revision.to_string(), None),
        ]);
        let begun = self.etcd.endpoints.attempt(LARGE, |client| async move { kv(&client).txn(begin).await });
        if !begun.await?.0.succeeded() {
            return Err(LoadError::NotEmpty(self.name.clone()).into());
        }
        Ok(keys.with_offset(offset))
    }

    async fn put_all(&self, keys: Keys<'_>) -> Result<u64, StoreError> {
        let puts = keys.map_ok(|one| self.put(one)).try_buffer_unordered(AT_ONCE);
        puts.try_fold(0, |count, ()| std::future::ready(Ok(count + 1))).await
    }

    /// Nobody else writes to the store, so that a put can be repeated.
    async fn put(&self, one: KeyValue) -> Result<(), StoreError> {
        let put = |client| {
            let (key, value) = (self.etcd.keys.key(&one.key), one.value.to_vec());
            async move { kv(&client).put(key, value, None).await }
        };
        self.etcd.endpoints.read(LARGE, put).await?;
        Ok(())
    }

    /// Removes the mark and forgets how the store was filled. Returns its revision.
    async fn finish(&self, own: &Keyspace) -> Result<u64, StoreError> {
        let unmark = |client| async move { kv(&client).delete(self.etcd.keys.key(LOADING), None).await };
        let done = self.etcd.endpoints.read(LARGE, unmark).await?;
        let revision = self.etcd.hear(done.header())?;
        // The offset is not in force here yet.
        self.etcd.compact(self.etcd.keys.seen(revision), false).await?;
        Ok(own.seen(revision))
    }

    /// Removes everything again, also the mark.
    async fn clear(&self) -> Result<(), StoreError> {
        let keys = &self.etcd.keys;
        let all = || DeleteOptions::new().with_range(keys.end("/"));
        let delete = |client| async move { kv(&client).delete(keys.key("/"), Some(all())).await };
        self.etcd.endpoints.read(LARGE, delete).await?;
        Ok(())
    }
}
