//! Watches. They end when their endpoint is given up; the caller resumes at the last revision, on the next endpoint.

use super::{
    endpoints::Endpoint,
    error::EtcdError,
    keyspace::WRITER,
    shared::{MAX_MESSAGE, Shared},
};
use crate::{Change, OWN_KEYS, Revision, StoreError, Watch, WatchItem};
use bytes::Bytes;
use etcd_client::{Event, EventType, WatchClient, WatchOptions, WatchResponse, WatchStream};
use futures::{StreamExt, stream};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch::Receiver;

/// How long a watch may take to begin.
const BEGIN: Duration = Duration::from_secs(2);

/// A watch on one endpoint.
struct Following {
    etcd: Arc<Shared>,
    prefix: String,
    /// Whether it sees all our keys, so that its progress is that of the store.
    whole: bool,
    stream: WatchStream,
    /// The stream ends with it.
    _client: WatchClient,
    endpoint: Arc<Endpoint>,
    left: Receiver<u64>,
    after: Revision,
}

pub(super) async fn watch(etcd: &Arc<Shared>, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
    // Who follows objects waits for revisions of the servers' own keys, too: they become progress.
    let whole = !prefix.starts_with(OWN_KEYS);
    let watched = if whole { "/" } else { prefix };
    // Of a deleted key only the previous value tells when it was created.
    let options = WatchOptions::new()
        .with_range(etcd.keys.end(watched))
        .with_start_revision(etcd.keys.history(after)? + 1)
        .with_prev_key()
        .with_fragment()
        .with_progress_notify();
    let left = etcd.endpoints.current()?.left();
    let asked = etcd.endpoints.attempt(BEGIN, |client| {
        let (key, options) = (etcd.keys.key(watched), options.clone());
        async move {
            let mut client = client.watch_client().max_decoding_message_size(MAX_MESSAGE);
            Ok((client.watch(key, Some(options)).await?, client))
        }
    });
    let ((stream, client), endpoint) = asked.await.map_err(|e| e.at(after))?;
    // Another one may have become the endpoint in use just before.
    let left = if left.same_channel(&endpoint.left()) { left } else { endpoint.left() };
    if whole {
        etcd.progress.begun(&endpoint, after);
    }
    let (etcd, prefix) = (etcd.clone(), prefix.to_owned());
    let following = Following { etcd, prefix, whole, stream, _client: client, endpoint, left, after };
    let answers = stream::unfold(Some(following), |following| async {
        let mut following = following?;
        match following.next().await {
            Ok(items) => Some((items, Some(following))),
            Err(error) => Some((vec![Err(error)], None)),
        }
    });
    Ok(Box::pin(answers.map(stream::iter).flatten()))
}

impl Drop for Following {
    fn drop(&mut self) {
        if self.whole {
            self.etcd.progress.ended();
        }
    }
}

impl Following {
    async fn next(&mut self) -> Result<Vec<Result<WatchItem, StoreError>>, StoreError> {
        let answer = tokio::select! {
            answer = self.stream.message() => answer.map_err(EtcdError::Client)?.ok_or(EtcdError::Ended)?,
            _ = self.left.changed() => return Err(EtcdError::GivenUp(self.endpoint.url.clone()).into()),
        };
        if answer.compact_revision() > 0 {
            return Err(StoreError::Compacted(self.after));
        }
        if answer.canceled() {
            return Err(EtcdError::Canceled(answer.cancel_reason().to_owned()).into());
        }
        let items = self.items(&answer);
        let reached = items.iter().filter_map(|item| match item.as_ref().ok()? {
            WatchItem::Change(change) => Some(change.revision),
            WatchItem::Progress(revision) => Some(*revision),
        });
        if let Some(reached) = reached.max() {
            self.after = reached;
            if self.whole {
                self.etcd.progress.reached(reached);
            }
        }
        Ok(items)
    }

    fn items(&self, answer: &WatchResponse) -> Vec<Result<WatchItem, StoreError>> {
        if answer.events().is_empty() && !answer.created() {
            let revision = answer.header().map(|header| self.etcd.keys.seen(header.revision()));
            return revision.map(|revision| Ok(WatchItem::Progress(revision))).into_iter().collect();
        }
        answer.events().iter().filter_map(|event| self.item(event).transpose()).collect()
    }

    fn item(&self, event: &Event) -> Result<Option<WatchItem>, StoreError> {
        let Some(now) = event.kv() else { return Ok(None) };
        let keys = &self.etcd.keys;
        let (revision, key) = (keys.seen(now.mod_revision()), keys.own(now.key().to_vec())?);
        // It comes with another key, in the same revision.
        if key == WRITER {
            return Ok(None);
        }
        if !key.starts_with(&self.prefix) {
            return Ok(Some(WatchItem::Progress(revision)));
        }
        let put = event.event_type() == EventType::Put;
        let made = if put { Some(now) } else { event.prev_kv() };
        Ok(Some(WatchItem::Change(Change {
            revision,
            key,
            value: put.then(|| Bytes::copy_from_slice(now.value())),
            created: made.map_or(0, |made| keys.seen(made.create_revision())),
        })))
    }
}
