//! Fills an empty etcd with the keys of another store. A key marks the store as unfinished until all are there.
//!
//! Requests whose answer was lost are sent again, and an attempt that was given up may still arrive, even after others have
//! begun to use the store. Each request therefore expects the mark of this load at its revision: none has an effect once the
//! mark is gone.

use super::{
    attempt::LARGE,
    error::EtcdError,
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
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};
use futures::TryStreamExt;
use uuid::Uuid;

/// Puts that are under way at the same time. Each is one transaction, because keys must not share a revision.
const AT_ONCE: usize = 64;

/// Puts the keys into etcd, whose revisions get an offset that lifts them above all of the old store.
pub(crate) async fn load(
    options: &EtcdOptions,
    keys: Keys<'_>,
    loaded: Loaded,
) -> Result<Summary, StoreError> {
    let loading = Loading::open(options).await?;
    let (mark, own) = loading.begin(loaded).await?;
    let filled = async {
        let count = loading.put_all(keys, mark).await?;
        Ok::<_, StoreError>((count, loading.finish(mark).await?))
    };
    match filled.await {
        Ok((count, revision)) => {
            loading.forget(revision).await;
            Ok(Summary { keys: count, revision: own.seen(revision) })
        }
        Err(error) => {
            loading.give_up(mark).await;
            Err(error)
        }
    }
}

/// Removes what was loaded into a store that nobody uses yet. A store that was never loaded is left as it is.
pub(crate) async fn remove(options: &EtcdOptions) -> Result<(), StoreError> {
    let loaded = Loading::open(options).await?;
    match loaded.etcd.find(OFFSET).await? {
        // A deletion that arrives late does not meet what is loaded next.
        Some(offset) => loaded.delete_all(OFFSET, offset.mod_revision()).await.map(|_| ()),
        None => Ok(()),
    }
}

/// The revision of etcd at which the mark of a load was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(i64);

pub(super) struct Loading {
    etcd: Shared,
    name: String,
}

impl Loading {
    pub async fn open(options: &EtcdOptions) -> Result<Self, StoreError> {
        Ok(Self { etcd: Shared::open(options).await?, name: options.name() })
    }

    /// Marks the empty store as being loaded, together with its offset. Also returns how its revisions are translated then.
    pub async fn begin(&self, loaded: Loaded) -> Result<(Mark, Keyspace), StoreError> {
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
        // Tells this load from any other, if the answer is lost.
        let id = Uuid::new_v4().to_string();
        let mark = match self.mark(&id, offset).await {
            Ok(mark) => mark,
            Err(error) => {
                self.give_up_unknown(&id).await;
                return Err(error);
            }
        };
        Ok((mark, keys.with_offset(offset)))
    }

    /// Writes the mark into the empty store, at most once.
    async fn mark(&self, id: &str, offset: u64) -> Result<Mark, StoreError> {
        let keys = &self.etcd.keys;
        // A server that opens it at the same moment has written the format, or sees that keys are being loaded.
        let absent = |key| Compare::mod_revision(keys.key(key), CompareOp::Equal, 0);
        let begin = Txn::new()
            .when([FORMAT_KEY, LOADING, OFFSET].map(absent))
            .and_then([
                TxnOp::put(keys.key(OFFSET), offset.to_string(), None),
                TxnOp::put(keys.key(LOADING), id, None),
            ])
            .or_else([TxnOp::get(keys.key(LOADING), None)]);
        let answer = self.ask(&begin).await?;
        if answer.succeeded() {
            return Ok(Mark(self.etcd.hear(answer.header())?));
        }
        match found(&answer) {
            // An attempt before had succeeded.
            Some(mark) if mark.value() == id.as_bytes() => Ok(Mark(mark.mod_revision())),
            _ => Err(LoadError::NotEmpty(self.name.clone()).into()),
        }
    }

    async fn put_all(&self, keys: Keys<'_>, mark: Mark) -> Result<u64, StoreError> {
        let puts = keys.map_ok(|one| self.put(one, mark)).try_buffer_unordered(AT_ONCE);
        puts.try_fold(0, |count, ()| std::future::ready(Ok(count + 1))).await
    }

    /// Puts a key as long as the mark is there.
    pub async fn put(&self, one: KeyValue, mark: Mark) -> Result<(), StoreError> {
        let put = TxnOp::put(self.etcd.keys.key(&one.key), one.value.to_vec(), None);
        match self.ask(&self.marked(mark).and_then([put])).await?.succeeded() {
            true => Ok(()),
            false => Err(LoadError::Unfinished(self.name.clone()).into()),
        }
    }

    /// Removes the mark. Returns the revision of etcd.
    pub async fn finish(&self, mark: Mark) -> Result<i64, StoreError> {
        let keys = &self.etcd.keys;
        let finish = self
            .marked(mark)
            .and_then([TxnOp::delete(keys.key(LOADING), None)])
            .or_else([TxnOp::get(keys.key(OFFSET), None)]);
        let answer = self.ask(&finish).await?;
        // The offset was written with the mark. If it is still there, an attempt before has removed the mark.
        if !answer.succeeded() && found(&answer).is_none_or(|offset| offset.mod_revision() != mark.0) {
            return Err(LoadError::Unfinished(self.name.clone()).into());
        }
        Ok(self.etcd.hear(answer.header())?)
    }

    /// Forgets how the store was filled. Watchers of the past are told even if that fails: the offset is above it.
    async fn forget(&self, revision: i64) {
        // The offset is not in force here yet.
        if let Err(error) = self.etcd.compact(self.etcd.keys.seen(revision), false).await {
            tracing::warn!(error = %causes::chain(&error), "{} cannot be compacted", self.name);
        }
    }

    /// Removes everything again, also the mark. False if the mark is not there any more: nothing is removed then.
    pub async fn clear(&self, mark: Mark) -> Result<bool, StoreError> {
        self.delete_all(LOADING, mark.0).await
    }

    /// Deletes all keys if one of them is at this revision.
    async fn delete_all(&self, key: &str, revision: i64) -> Result<bool, StoreError> {
        let keys = &self.etcd.keys;
        let all = DeleteOptions::new().with_range(keys.end("/"));
        let delete = Txn::new()
            .when([Compare::mod_revision(keys.key(key), CompareOp::Equal, revision)])
            .and_then([TxnOp::delete(keys.key("/"), Some(all))]);
        Ok(self.ask(&delete).await?.succeeded())
    }

    /// After a failure.
    async fn give_up(&self, mark: Mark) {
        match self.clear(mark).await {
            Ok(true) => {}
            Ok(false) => tracing::warn!("nothing was removed from {}: its mark is gone", self.name),
            Err(error) => {
                tracing::error!(error = %causes::chain(&error), "keys of a failed load are left in {}", self.name);
            }
        }
    }

    /// After a failure to write the mark, which may be there.
    async fn give_up_unknown(&self, id: &str) {
        match self.etcd.find(LOADING).await {
            Ok(Some(mark)) if mark.value() == id.as_bytes() => self.give_up(Mark(mark.mod_revision())).await,
            Ok(_) => {}
            Err(error) => {
                tracing::error!(error = %causes::chain(&error), "the mark of a failed load may be left in {}", self.name);
            }
        }
    }

    /// A transaction that only has an effect while the mark is there.
    fn marked(&self, mark: Mark) -> Txn {
        let key = self.etcd.keys.key(LOADING);
        Txn::new().when([Compare::mod_revision(key, CompareOp::Equal, mark.0)])
    }

    /// Sends it until there is an answer.
    async fn ask(&self, txn: &Txn) -> Result<TxnResponse, EtcdError> {
        let ask = |client| {
            let txn = txn.clone();
            async move { kv(&client).txn(txn).await }
        };
        self.etcd.endpoints.read(LARGE, ask).await
    }
}

/// What a transaction that was refused has read.
fn found(answer: &TxnResponse) -> Option<etcd_client::KeyValue> {
    answer.op_responses().into_iter().find_map(|response| match response {
        TxnOpResponse::Get(mut found) => found.take_kvs().pop(),
        _ => None,
    })
}
