//! Other servers during one search. Those that do not answer in time are not asked any more.

use super::connection::{Peer, PeerError};
use super::{Failure, Failures};
use bytes::Bytes;
use coracle_cli::causes;
use coracle_timeline::{Elsewhere, StoredRecord, Wanted};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long a server may take to answer one question, connecting included.
const ANSWER: Duration = Duration::from_secs(1);
/// How long a search waits for other servers in all.
const IN_ALL: Duration = Duration::from_secs(2);

/// The servers that still answer.
pub(super) struct Asking {
    runtime: Handle,
    peers: Vec<Peer>,
    /// How long the search may still wait.
    left: Duration,
    /// Servers that did not answer everything, and why.
    missing: BTreeMap<String, String>,
    failures: Failures,
}

impl Asking {
    pub(super) fn new(failures: Failures) -> Self {
        let (runtime, missing) = (Handle::current(), BTreeMap::new());
        Self { runtime, peers: Vec::new(), left: IN_ALL, missing, failures }
    }

    /// Another server to ask, unless it failed a moment ago.
    pub(super) fn add(&mut self, peer: Peer) {
        match self.failures.lock().get(&peer.server) {
            Some(failure) => drop(self.missing.insert(peer.server, failure.why.clone())),
            None => self.peers.push(peer),
        }
    }

    /// Asks all servers at once. Blocks.
    fn ask(&mut self, question: &Bytes) -> Vec<StoredRecord> {
        if self.peers.is_empty() {
            return Vec::new();
        }
        let (began, limit) = (Instant::now(), self.left.min(ANSWER));
        let asked = std::mem::take(&mut self.peers).into_iter().map(|peer| async move {
            let server = peer.server.clone();
            let answer = tokio::time::timeout(limit, peer.ask(question.clone())).await;
            (server, answer.unwrap_or(Err(PeerError::Slow)))
        });
        let mut found = Vec::new();
        for (server, answer) in self.runtime.block_on(futures::future::join_all(asked)) {
            match answer {
                Ok((peer, mut answer)) => {
                    found.append(&mut answer.records);
                    if answer.incomplete {
                        self.missing.insert(server, "it has more than an answer may have".to_owned());
                    }
                    self.peers.push(peer);
                }
                // It has answered so far.
                Err(PeerError::Slow) if limit < ANSWER => self.is_too_late(server),
                Err(why) => self.failed(server, &why),
            }
        }
        self.left = self.left.saturating_sub(began.elapsed());
        if self.left.is_zero() {
            let late = std::mem::take(&mut self.peers);
            late.into_iter().for_each(|peer| self.is_too_late(peer.server));
        }
        found
    }

    fn is_too_late(&mut self, server: String) {
        self.missing.insert(server, "the search took too long".to_owned());
    }

    /// A server does not answer, and is left alone for a while.
    fn failed(&mut self, server: String, why: &PeerError) {
        tracing::debug!(server, why = %causes::chain(why), "API server not asked for spans any more");
        let failure = Failure { at: Instant::now(), why: why.to_string() };
        self.missing.insert(server.clone(), failure.why.clone());
        self.failures.lock().insert(server, failure);
    }
}

impl Elsewhere for Asking {
    fn open(&mut self) -> Vec<StoredRecord> {
        self.ask(&Bytes::new())
    }

    fn find(&mut self, wanted: &Wanted) -> Vec<StoredRecord> {
        self.ask(&wanted.bytes().into())
    }

    fn missing(&self) -> Vec<String> {
        let note = |(server, why)| format!("spans of server {server} are missing: {why}");
        self.missing.iter().map(note).collect()
    }
}
