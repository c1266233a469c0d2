//! What requests and tasks share: endpoints, keys, and basic reads.

use super::{
    attempt::{LARGE, QUICK},
    endpoints::Endpoints,
    error::EtcdError,
    keyspace::{Keyspace, OFFSET},
    options::EtcdOptions,
    progress::Progress,
    session::Session,
};
use crate::{KeyValue, Revision, StoreError, Unhealthy};
use etcd_client::{Client, CompactionOptions, GetOptions, KvClient, ResponseHeader};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

pub(super) const MAX_MESSAGE: usize = 1 << 30;

/// What requests and tasks share.
pub(super) struct Shared {
    pub endpoints: Endpoints,
    pub keys: Keyspace,
    /// The newest revision of etcd in any answer.
    heard: AtomicI64,
    pub progress: Progress,
    pub session: Session,
    pub alarm: Mutex<Option<Unhealthy>>,
}

impl Shared {
    /// Connects and reads the offset.
    pub async fn open(options: &EtcdOptions) -> Result<Self, StoreError> {
        let options = options.clone().checked()?;
        let keys = Keyspace::new(&options.prefix, 0);
        let mut shared = Self {
            endpoints: Endpoints::new(options),
            session: Session::new(&keys),
            keys,
            heard: AtomicI64::default(),
            progress: Progress::default(),
            alarm: Mutex::default(),
        };
        if let Some(found) = shared.find(OFFSET).await? {
            let offset = found.value_str().ok().and_then(|text| text.parse().ok());
            shared.keys.offset = offset.ok_or_else(|| EtcdError::Offset { key: shared.keys.key(OFFSET) })?;
        }
        Ok(shared)
    }

    /// The newest revision of etcd that this server knows of.
    pub fn heard(&self) -> i64 {
        self.heard.load(Ordering::Acquire)
    }

    /// Notes the revision of an answer and returns it.
    pub fn hear(&self, header: Option<&ResponseHeader>) -> Result<i64, EtcdError> {
        let header = header.ok_or(EtcdError::NoRevision)?;
        self.endpoints.note_term(header.raft_term());
        let revision = header.revision();
        self.heard.fetch_max(revision, Ordering::AcqRel);
        Ok(revision)
    }

    /// A key as etcd has it.
    pub async fn find(&self, key: &str) -> Result<Option<etcd_client::KeyValue>, EtcdError> {
        let get = |client| {
            let key = self.keys.key(key);
            async move { kv(&client).get(key, None).await }
        };
        let mut answer = self.endpoints.read(QUICK, get).await?;
        self.hear(answer.header())?;
        Ok(answer.take_kvs().pop())
    }

    pub async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.find(key).await?.map(|found| self.keys.key_value(found)).transpose()
    }

    /// A linearizable read of a key that is not there.
    pub async fn newest(&self) -> Result<Revision, StoreError> {
        let get = |client| {
            let key = self.keys.key("/");
            async move { kv(&client).get(key, Some(GetOptions::new().with_count_only())).await }
        };
        let answer = self.endpoints.read(QUICK, get).await?;
        Ok(self.keys.seen(self.hear(answer.header())?))
    }

    /// Forgets history; returns when it is gone from the disk, if that is wanted.
    pub async fn compact(&self, upto: Revision, physical: bool) -> Result<(), StoreError> {
        let Ok(etcd @ 1..) = self.keys.history(upto) else { return Ok(()) };
        // Repeating it does no harm.
        let options = physical.then(|| CompactionOptions::new().with_physical());
        let compact = |client| {
            let options = options.clone();
            async move { kv(&client).compact(etcd, options).await }
        };
        match self.endpoints.read(LARGE, compact).await.map_err(|e| e.at(upto)) {
            Ok(_) | Err(StoreError::Compacted(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether a quota was reached.
    pub fn is_full(&self) -> bool {
        matches!(self.alarm(), Some(Unhealthy::Quota { .. }))
    }
}

pub(super) fn kv(client: &Client) -> KvClient {
    client.kv_client().max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}
