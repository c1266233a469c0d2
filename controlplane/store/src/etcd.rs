//! The store in etcd v3, for more than one server. Revisions are etcd's, so the etcd is for this cluster alone: keys of
//! others would count revisions that no watch here ever sees.

// Errors.
mod error;

pub use error::EtcdError;

use super::{Change, Durability, KeyValue, Revision, Store, StoreError, Watch, WatchItem, Write};
use async_trait::async_trait;
use bytes::Bytes;
use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use coracle_trace::{Stage, tracked};
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, Event, EventType, GetOptions, KvClient, Txn, TxnOp,
    TxnOpResponse, WatchOptions, WatchResponse, WatchStream,
};
use futures::{StreamExt, stream};
use std::{future::Future, time::Duration};
use tokio::task::JoinHandle;

/// How long etcd may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Keys of one answer; a range takes as many answers as it needs, at one revision.
const PAGE: i64 = 500;
const MAX_MESSAGE: usize = 1 << 30;
/// History is kept for at least this long.
const KEEP: Duration = Duration::from_secs(300);

/// A client of etcd. It compacts history periodically; with several servers the first one does.
pub struct Etcd {
    client: Client,
    compactor: JoinHandle<()>,
}

impl Etcd {
    /// Connects to `host:port[,host:port]`. Fails when none of them answers. The supervisor keeps the compactor running.
    pub async fn connect(endpoints: &str, supervisor: &Supervisor) -> Result<Self, StoreError> {
        let endpoints: Vec<_> = endpoints.split(',').map(|one| format!("http://{one}")).collect();
        let options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(5))
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        let client = wait(Client::connect(endpoints, Some(options))).await?;
        newest(&client).await?;
        let known = client.clone();
        let compactor = supervisor.spawn("etcd compaction", move || forget(known.clone()));
        Ok(Self { client, compactor })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.compactor.abort();
    }
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        let mut answer = wait(kv(&self.client).get(key, None)).await?;
        answer.take_kvs().pop().map(key_value).transpose()
    }

    async fn range(
        &self,
        prefix: &str,
        at: Option<Revision>,
    ) -> Result<(Vec<KeyValue>, Revision), StoreError> {
        let (mut found, mut at, mut from) = (Vec::new(), at.unwrap_or(0), prefix.to_owned());
        loop {
            let options = GetOptions::new().with_range(end(prefix)).with_limit(PAGE).with_revision(at as i64);
            let mut page = wait(kv(&self.client).get(from, Some(options))).await.map_err(|e| e.at(at))?;
            if at == 0 {
                at = page.header().map_or(0, |header| header.revision() as u64);
            }
            let more = page.more();
            for one in page.take_kvs() {
                found.push(key_value(one)?);
            }
            match found.last() {
                Some(last) if more => from = format!("{}\0", last.key),
                _ => return Ok((found, at)),
            }
        }
    }

    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        let Write { key, expect, value, durability } = write;
        if expect == 0 && value.is_none() {
            return Err(StoreError::Conflict(self.get(&key).await?));
        }
        let then = match value {
            Some(value) => TxnOp::put(key.as_str(), value, None),
            None => TxnOp::delete(key.as_str(), None),
        };
        let txn = Txn::new()
            .when([Compare::mod_revision(key.as_str(), CompareOp::Equal, expect as i64)])
            .and_then([then])
            .or_else([TxnOp::get(key, None)]);
        let mut client = kv(&self.client);
        let answer = wait(client.txn(txn));
        let answer = match durability {
            Durability::Sync => tracked(Stage::StoreSync, "etcd", Box::pin(answer)).await?,
            // Leases and Events are not recorded, and a stage would keep their request.
            Durability::Lazy => answer.await?,
        };
        if answer.succeeded() {
            let revision = answer.header().map(|header| header.revision() as u64);
            return Ok(revision.ok_or(EtcdError::NoRevision)?);
        }
        let now = match answer.op_responses().pop() {
            Some(TxnOpResponse::Get(mut found)) => found.take_kvs().pop().map(key_value).transpose()?,
            _ => None,
        };
        Err(StoreError::Conflict(now))
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        // Of a deleted key only the previous value tells when it was created.
        let options = WatchOptions::new()
            .with_range(end(prefix))
            .with_start_revision(after as i64 + 1)
            .with_prev_key()
            .with_fragment()
            .with_progress_notify();
        let mut client = self.client.watch_client().max_decoding_message_size(MAX_MESSAGE);
        let watch = wait(client.watch(prefix, Some(options))).await.map_err(|e| e.at(after))?;
        let state = Some((watch, client, after));
        let answers = stream::unfold(state, |state| async {
            let (mut watch, client, after) = state?;
            match message(&mut watch, after).await {
                Ok(answer) => {
                    let seen = answer.header().map_or(after, |header| header.revision() as u64);
                    Some((watch_items(&answer), Some((watch, client, seen))))
                }
                Err(error) => Some((vec![Err(error)], None)),
            }
        });
        Ok(Box::pin(answers.map(stream::iter).flatten()))
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        newest(&self.client).await
    }

    async fn compact(&self, upto: Revision) -> Result<(), StoreError> {
        let done = wait(kv(&self.client).compact(upto as i64, None)).await.map_err(|e| e.at(upto));
        match done {
            Ok(_) | Err(StoreError::Compacted(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn kv(client: &Client) -> KvClient {
    client.kv_client().max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}

/// A linearizable read of a key that is not there.
async fn newest(client: &Client) -> Result<Revision, StoreError> {
    let answer = wait(kv(client).get("/", Some(GetOptions::new().with_count_only()))).await?;
    Ok(answer.header().map_or(0, |header| header.revision() as u64))
}

/// The key behind all keys with the prefix, which ends in no byte that cannot be counted up.
fn end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        None => end.push(0),
    }
    end
}

async fn forget(client: Client) {
    let mut known = None;
    loop {
        let now = newest(&client).await.ok();
        if let Some(old) = known.filter(|old| *old > 0) {
            // Another server may have done it already.
            if let Err(error) = wait(kv(&client).compact(old as i64, None)).await {
                tracing::debug!(error = %causes::chain(&error.at(old)), "cannot compact");
            }
        }
        known = now;
        tokio::time::sleep(KEEP).await;
    }
}

fn key_value(found: etcd_client::KeyValue) -> Result<KeyValue, StoreError> {
    let (created, modified) = (found.create_revision() as u64, found.mod_revision() as u64);
    let (key, value) = found.into_key_value();
    let key = String::from_utf8(key).map_err(EtcdError::Key)?;
    Ok(KeyValue { key, value: Bytes::from(value), created, modified })
}

async fn message(watch: &mut WatchStream, after: Revision) -> Result<WatchResponse, StoreError> {
    let answer = watch.message().await.map_err(EtcdError::Client)?.ok_or(EtcdError::Ended)?;
    if answer.compact_revision() > 0 {
        return Err(StoreError::Compacted(after));
    }
    if answer.canceled() {
        return Err(EtcdError::Canceled(answer.cancel_reason().to_owned()).into());
    }
    Ok(answer)
}

fn watch_items(answer: &WatchResponse) -> Vec<Result<WatchItem, StoreError>> {
    if answer.events().is_empty() && !answer.created() {
        return answer
            .header()
            .map(|header| Ok(WatchItem::Progress(header.revision() as u64)))
            .into_iter()
            .collect();
    }
    answer.events().iter().filter_map(|event| change(event).transpose()).collect()
}

fn change(event: &Event) -> Result<Option<WatchItem>, StoreError> {
    let Some(now) = event.kv() else { return Ok(None) };
    let put = event.event_type() == EventType::Put;
    let made = if put { Some(now) } else { event.prev_kv() };
    Ok(Some(WatchItem::Change(Change {
        revision: now.mod_revision() as u64,
        key: now.key_str().map_err(StoreError::from)?.to_owned(),
        value: put.then(|| Bytes::copy_from_slice(now.value())),
        created: made.map_or(0, |made| made.create_revision() as u64),
    })))
}

/// An error of etcd, with what it says about revisions understood. Compacted and future revisions have the same code
/// (`OutOfRange`); etcd's own clients tell them apart by these texts, too.
struct Refused(Error);

impl Refused {
    fn at(self, revision: Revision) -> StoreError {
        match &self.0 {
            Error::GRpcStatus(status) if status.message().contains("revision has been compacted") => {
                StoreError::Compacted(revision)
            }
            Error::GRpcStatus(status) if status.message().contains("is a future revision") => {
                StoreError::Future(revision)
            }
            _ => self.0.into(),
        }
    }
}

impl From<Refused> for StoreError {
    fn from(Refused(error): Refused) -> Self {
        error.into()
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        Self::Etcd(EtcdError::Client(error))
    }
}

async fn wait<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Refused> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer.map_err(Refused),
        Err(_) => Err(Refused(Error::IoError(std::io::ErrorKind::TimedOut.into()))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::conformance_tests::{self, delete, next_change, put, show};
    use std::{
        net::TcpListener,
        process::{Child, Command, Stdio},
        sync::Arc,
    };

    /// An etcd of its own on loopback, gone with the test.
    struct Server {
        child: Child,
        client: String,
        args: Vec<String>,
        _dir: tempfile::TempDir,
    }

    fn spawn(args: &[String]) -> Child {
        let mut etcd = Command::new("etcd");
        etcd.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        etcd.spawn().expect("etcd must be installed (Debian package etcd-server)")
    }

    impl Server {
        fn start() -> Self {
            let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
            let (dir, client, peer) = (tempfile::tempdir().unwrap(), free(), free());
            let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
            let args = [
                ("data-dir", dir.path().join("data").display().to_string()),
                ("listen-client-urls", client_url.clone()),
                ("advertise-client-urls", client_url),
                ("listen-peer-urls", peer_url.clone()),
                ("initial-advertise-peer-urls", peer_url.clone()),
                ("initial-cluster", format!("default={peer_url}")),
            ];
            let args: Vec<_> = args.iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
            Self { child: spawn(&args), client, args, _dir: dir }
        }

        async fn connect(&self) -> Arc<dyn Store> {
            let url = format!("etcd://{}", self.client);
            for _ in 0..100 {
                if let Ok(store) = crate::open(&url, std::path::Path::new("/nonexistent")).await {
                    return store;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            panic!("etcd does not answer");
        }

        fn restart(&mut self) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
            self.child = spawn(&self.args);
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn behaves() {
        let server = Server::start();
        conformance_tests::check(server.connect().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_see_each_other_over_a_restart_of_etcd() {
        let mut server = Server::start();
        let (one, two) = (server.connect().await, server.connect().await);
        let mut watch = two.watch("/registry/", two.revision().await.unwrap()).await.unwrap();
        let a = put(&*one, "/registry/a", 0, "1").await.unwrap();
        assert_eq!(next_change(&mut watch).await.revision, a);
        // More keys than one answer holds.
        for n in 0..PAGE + 1 {
            put(&*one, &format!("/registry/many/{n:04}"), 0, "x").await.unwrap();
        }
        let (found, at) = two.range("/registry/many/", None).await.unwrap();
        assert_eq!((found.len() as i64, at), (PAGE + 1, one.revision().await.unwrap()));
        assert!(found.is_sorted_by(|a, b| a.key < b.key));

        server.restart();
        let lost = loop {
            if let Err(error) = watch.next().await.unwrap() {
                break error;
            }
        };
        assert!(matches!(lost, StoreError::Etcd(_)), "{lost:?}");
        server.connect().await;
        // The old clients come back on their own.
        let deleted = loop {
            match delete(&*one, "/registry/a", a).await {
                Ok(revision) => break revision,
                Err(StoreError::Etcd(_)) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(error) => panic!("{error:?}"),
            }
        };
        let mut watch = two.watch("/registry/", at).await.unwrap();
        let change = next_change(&mut watch).await;
        assert_eq!((change.revision, change.created, change.value), (deleted, a, None));
        assert_eq!(show(&two.range("/registry/a", None).await.unwrap().0, ""), "");
    }
}
