//! What etcd needs from time to time: compaction, defragmentation, and attention to its alarms. Every server does it; keys in
//! etcd make sure that what is done once is not done by all of them.

use super::{
    attempt::QUICK,
    defragment,
    error::EtcdError,
    shared::{Shared, kv},
};
use crate::StoreError;
use coracle_cli::causes;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How often members and alarms are looked at.
const TICK: Duration = Duration::from_secs(15);
/// History is kept for at least this long.
const KEEP: Duration = Duration::from_secs(300);
/// How often sizes are looked at.
const SIZES: Duration = Duration::from_secs(600);
/// After a quota was reached, how long to wait before space is looked for again.
const FULL: Duration = Duration::from_secs(120);

/// Holds the revision that will be compacted next.
const COMPACTION: &str = "/coracle/store/compaction";

/// Runs forever.
pub(super) async fn maintain(etcd: Arc<Shared>) {
    let mut compaction = Compaction::default();
    let (mut compacted, mut sized, mut emptied) = (Instant::now(), Instant::now(), None::<Instant>);
    loop {
        if etcd.endpoints.options.follow_members {
            report("list the members", etcd.follow_members().await);
        }
        etcd.endpoints.prefer_first().await;
        report("ask for alarms", etcd.check_alarms().await);
        if compacted.elapsed() >= KEEP {
            compacted = Instant::now();
            report("compact", compaction.step(&etcd).await);
        }
        let full = etcd.is_full();
        if full && emptied.is_none_or(|last| last.elapsed() >= FULL) {
            emptied = Some(Instant::now());
            report("free space", defragment::free_space(&etcd).await);
        } else if !full && sized.elapsed() >= SIZES {
            sized = Instant::now();
            report("defragment", defragment::defragment(&etcd, defragment::WORTH_IT).await);
        }
        tokio::time::sleep(jittered(TICK)).await;
    }
}

/// Servers that start together do not ask together.
fn jittered(time: Duration) -> Duration {
    let random = u32::from(uuid::Uuid::new_v4().as_bytes()[0]);
    time + time / 1024 * random
}

fn report(what: &str, result: Result<(), impl Into<StoreError>>) {
    match result.map_err(Into::into) {
        Ok(()) => {}
        // Whoever gave this user its rights takes care of etcd, too.
        Err(StoreError::Etcd(error)) if error.is_denied() => {
            tracing::debug!(error = %causes::chain(&error), what, "not allowed in etcd");
        }
        Err(error) => {
            tracing::warn!(error = %causes::chain(&error), what, "maintenance of etcd failed, will retry");
        }
    }
}

impl Shared {
    /// Uses the members as endpoints that have client URLs. Those that were configured come first, in their order.
    pub async fn follow_members(&self) -> Result<(), EtcdError> {
        let list = |mut client: etcd_client::Client| async move { client.member_list().await };
        let answer = self.endpoints.read(QUICK, list).await?;
        let members = answer.members().iter().filter(|one| !one.is_learner());
        let mut urls: Vec<String> = members.filter_map(|one| one.client_urls().first().cloned()).collect();
        let configured = &self.endpoints.options.endpoints;
        urls.sort_by_key(|url| configured.iter().position(|one| one == url).unwrap_or(usize::MAX));
        self.endpoints.replace(&urls);
        Ok(())
    }
}

/// Compaction by one of the servers. Each looks at a key once per interval: if nobody has written it since the last look, this
/// server writes the newest revision to it and compacts up to the one that was there, which is at least an interval old.
#[derive(Default)]
pub(super) struct Compaction {
    /// The revision of the key at the last look.
    looked: Option<i64>,
}

impl Compaction {
    pub async fn step(&mut self, etcd: &Shared) -> Result<(), StoreError> {
        let found = etcd.find(COMPACTION).await?;
        let at = found.as_ref().map_or(0, |found| found.mod_revision());
        if self.looked.replace(at) != Some(at) {
            return Ok(());
        }
        let (key, newest) = (etcd.keys.key(COMPACTION), etcd.newest().await?);
        let claim = Txn::new()
            .when([Compare::mod_revision(key.as_str(), CompareOp::Equal, at)])
            .and_then([TxnOp::put(key, newest.to_string(), None)]);
        let claimed = etcd.endpoints.attempt(QUICK, |client| async move { kv(&client).txn(claim).await });
        let (claimed, _) = claimed.await?;
        if !claimed.succeeded() {
            return Ok(());
        }
        self.looked = claimed.header().map(|header| header.revision());
        let old = found.and_then(|found| found.value_str().ok()?.parse().ok());
        match old {
            Some(old) => etcd.compact(old, false).await,
            None => Ok(()),
        }
    }
}
