//! Compare-and-swap in etcd, also when an answer is lost.
//!
//! A write whose answer was lost is sent again: it expects a revision, so that at most one of the attempts can succeed. A
//! creation also ends the session of the attempt before it, which might arrive after the object was deleted again. If the last
//! attempt finds another revision, the history of the key tells whether an earlier one succeeded. A creation is recognised by
//! its value, which is unique. Other writes could have been made by another server with the same value: with each of them a
//! random number is written, under one key for all, and the revision of the change has that number or another one.

use super::{
    attempt::QUICK,
    error::EtcdError,
    keyspace::WRITER,
    shared::{Shared, kv},
};
use crate::{KeyValue, Revision, StoreError, Unhealthy, Write};
use bytes::Bytes;
use coracle_cli::causes;
use etcd_client::{
    Compare, CompareOp, EventType, GetOptions, Txn, TxnOp, TxnOpResponse, TxnResponse, WatchOptions,
};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long an endpoint may take for a write before another is asked.
const ATTEMPT: Duration = Duration::from_secs(1);
/// A write is sent again for this long.
const REPEAT: Duration = Duration::from_secs(8);
/// How long the history of a key may take.
const HISTORY: Duration = Duration::from_secs(2);

/// What etcd has instead of what a write expected.
struct Refusal {
    current: Option<KeyValue>,
    /// The revision of the session.
    session: i64,
    /// The fence that is not at its revision.
    fenced: Option<String>,
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        match refusal.fenced {
            Some(fence) => Self::Fenced(fence),
            None => Self::Conflict(refusal.current),
        }
    }
}

/// What happened first to a key after a revision, and in which revision of etcd.
enum FirstChange {
    Put(Bytes, i64),
    Delete(i64),
    /// It cannot be found out.
    Unknown,
}

impl Shared {
    pub async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        if write.expect == 0 && write.value.is_none() {
            return Err(StoreError::Conflict(self.get(&write.key).await?));
        }
        // Whatever this write changes is changed after it.
        let (before, begun) = (self.heard(), Instant::now());
        let (mut lost, mut limit) = (false, ATTEMPT);
        let number = Uuid::new_v4();
        loop {
            let session = (write.expect == 0).then(|| self.session.at());
            let txn = self.transaction(&write, session, number);
            let asked = self.endpoints.attempt(limit, |client| async move { kv(&client).txn(txn).await });
            match asked.await {
                Ok((answer, _)) if answer.succeeded() => {
                    return Ok(self.keys.seen(self.hear(answer.header())?));
                }
                Ok((answer, _)) => {
                    let refusal = self.refusal(&write, session.is_some(), &answer)?;
                    match (session, refusal.session) {
                        // Another creation has ended the session. This one was not made.
                        (Some(used), now) if used != now => self.session.found(now),
                        _ if lost => return self.settle(write, number, before, refusal).await,
                        _ => return Err(refusal.into()),
                    }
                }
                Err(error) if error.is_without_leader() && begun.elapsed() < REPEAT => {
                    limit = self.endpoints.pause(&error, limit).await;
                }
                Err(error) if error.is_transient() && begun.elapsed() < REPEAT => {
                    lost = true;
                    if let Some(used) = session
                        && self.session.end(&self.endpoints, used).await.is_err()
                    {
                        return Err(EtcdError::Ambiguous(write.key).into());
                    }
                    limit = self.endpoints.pause(&error, limit).await;
                }
                Err(error) if lost || (error.is_transient() && !error.is_without_leader()) => {
                    tracing::debug!(error = %causes::chain(&error), key = write.key, "answer to a write was lost");
                    return Err(EtcdError::Ambiguous(write.key).into());
                }
                Err(error) if error.is_exhausted() => return Err(self.exhausted(error).await),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The key at the expected revision, the session of a creation, or the number of another write, and the fence.
    fn transaction(&self, write: &Write, session: Option<i64>, number: Uuid) -> Txn {
        let key = self.keys.key(&write.key);
        let mut then = vec![match &write.value {
            Some(value) => TxnOp::put(key.as_str(), value.to_vec(), None),
            None => TxnOp::delete(key.as_str(), None),
        }];
        if write.expect > 0 {
            then.push(TxnOp::put(self.keys.key(WRITER), number.as_bytes().as_slice(), None));
        }
        let mut expected = vec![(key, self.keys.expected(write.expect))];
        expected.extend(session.map(|at| (self.session.key.clone(), at)));
        let fence = write.fence.as_ref();
        expected.extend(fence.map(|one| (self.keys.key(&one.key), self.keys.expected(one.modified))));
        let (when, otherwise): (Vec<_>, Vec<_>) = expected
            .into_iter()
            .map(|(key, at)| {
                let found = TxnOp::get(key.as_str(), None);
                (Compare::mod_revision(key, CompareOp::Equal, at), found)
            })
            .unzip();
        Txn::new().when(when).and_then(then).or_else(otherwise)
    }

    /// What etcd had instead of what the write expected.
    fn refusal(&self, write: &Write, session: bool, answer: &TxnResponse) -> Result<Refusal, StoreError> {
        let mut found = answer.op_responses().into_iter().map(|response| match response {
            TxnOpResponse::Get(mut found) => found.take_kvs().pop(),
            _ => None,
        });
        let current = found.next().flatten().map(|found| self.keys.key_value(found)).transpose()?;
        let mut revision = || found.next().flatten().map_or(0, |found| found.mod_revision());
        let session = if session { revision() } else { 0 };
        let fenced = match &write.fence {
            Some(fence) if self.keys.expected(fence.modified) != revision() => Some(fence.key.clone()),
            _ => None,
        };
        Ok(Refusal { current, session, fenced })
    }

    /// The result of a write that was refused after an earlier attempt may have succeeded.
    async fn settle(
        &self,
        write: Write,
        number: Uuid,
        before: i64,
        refusal: Refusal,
    ) -> Result<Revision, StoreError> {
        let Write { key, expect, value, .. } = write;
        if expect > 0 && refusal.current.as_ref().is_some_and(|now| now.modified == expect) {
            // Nobody has changed it, and no earlier attempt can do so any more.
            return Err(refusal.into());
        }
        let after = if expect == 0 { before } else { before.max(self.keys.expected(expect)) };
        let changed = match (self.first_change(&key, after).await, value) {
            (FirstChange::Put(found, etcd), Some(own)) if found == own => etcd,
            (FirstChange::Delete(etcd), None) => etcd,
            (FirstChange::Unknown, _) => return Err(EtcdError::Ambiguous(key).into()),
            _ => return Err(refusal.into()),
        };
        if expect == 0 {
            return Ok(self.keys.seen(changed));
        }
        match self.writer(changed).await {
            Ok(Some(found)) if found == number.as_bytes() => Ok(self.keys.seen(changed)),
            // Another server has written the same.
            Ok(_) => Err(refusal.into()),
            Err(error) => {
                tracing::debug!(error = %causes::chain(&error), key, "who made a write is not known");
                Err(EtcdError::Ambiguous(key).into())
            }
        }
    }

    /// The number of the write that made a revision of etcd, if it has one.
    async fn writer(&self, etcd: i64) -> Result<Option<Vec<u8>>, EtcdError> {
        let get = |client| {
            let (key, options) = (self.keys.key(WRITER), GetOptions::new().with_revision(etcd));
            async move { kv(&client).get(key, Some(options)).await }
        };
        let found = self.endpoints.read(QUICK, get).await?.take_kvs().pop();
        Ok(found.filter(|found| found.mod_revision() == etcd).map(|found| found.value().to_vec()))
    }

    /// What happened first to the key after a revision of etcd.
    async fn first_change(&self, key: &str, after: i64) -> FirstChange {
        let options = WatchOptions::new().with_start_revision(after + 1);
        let (name, begun) = (self.keys.key(key), Instant::now());
        while begun.elapsed() < HISTORY {
            let asked = self.endpoints.attempt(QUICK, |client| {
                let (name, options) = (name.clone(), options.clone());
                async move {
                    let mut client = client.watch_client();
                    let mut watch = client.watch(name, Some(options)).await?;
                    while let Some(answer) = watch.message().await? {
                        if answer.canceled() || answer.compact_revision() > 0 {
                            break;
                        }
                        if let Some(event) = answer.events().first() {
                            return Ok(Some(event.clone()));
                        }
                    }
                    Ok(None)
                }
            });
            match asked.await {
                Ok((Some(event), _)) => {
                    let Some(now) = event.kv() else { break };
                    return match event.event_type() {
                        EventType::Put => {
                            FirstChange::Put(Bytes::copy_from_slice(now.value()), now.mod_revision())
                        }
                        EventType::Delete => FirstChange::Delete(now.mod_revision()),
                    };
                }
                Ok((None, _)) => break,
                Err(error) => {
                    self.endpoints.pause(&error, QUICK).await;
                }
            }
        }
        FirstChange::Unknown
    }

    /// The error of a write that etcd had no room for.
    async fn exhausted(&self, error: EtcdError) -> StoreError {
        match self.check_alarms().await {
            Ok(()) => match self.alarm() {
                Some(why) => StoreError::Unavailable(why),
                None => error.into(),
            },
            // Who may not ask for alarms learns what etcd said.
            Err(_) => StoreError::Unavailable(Unhealthy::Quota { detail: error.to_string() }),
        }
    }
}
