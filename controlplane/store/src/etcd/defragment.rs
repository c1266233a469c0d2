//! Defragmentation. It blocks a member while its live data is copied, so it is done to one member after the other, to the
//! leader last and only when it has handed leadership over. Requests go to other members meanwhile.

use super::{
    attempt::QUICK,
    endpoints::Endpoint,
    error::EtcdError,
    shared::{Shared, kv},
    status::in_use,
};
use crate::StoreError;
use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, Compare, CompareOp, PutOptions, StatusResponse, Txn, TxnOp,
};
use std::{sync::Arc, time::Duration};

/// Waste below which a member is left alone: half of the file, and this many bytes.
pub(super) const WORTH_IT: u64 = 128 << 20;
/// How long one member may take.
const ONE: Duration = Duration::from_secs(120);
/// How long the lock outlives a server that was killed.
const LOCK_SECONDS: i64 = 300;
/// Held by the server that defragments.
const LOCK: &str = "/coracle/store/defragmentation";
const PAUSE: Duration = Duration::from_millis(500);

/// A member and its state.
struct Candidate {
    endpoint: Arc<Endpoint>,
    id: u64,
    leads: bool,
    status: StatusResponse,
}

/// Defragments the members of whose file at least half and `worth_it` bytes are unused. Does nothing while a member is not well or
/// another server is doing it.
pub(super) async fn defragment(etcd: &Shared, worth_it: u64) -> Result<(), StoreError> {
    let candidates = candidates(etcd).await?;
    let wasteful = |one: &Candidate| {
        let (size, used) = (one.status.db_size().unsigned_abs(), in_use(&one.status));
        size.saturating_sub(used) >= worth_it.max(size / 2)
    };
    if !candidates.iter().any(wasteful) {
        return Ok(());
    }
    let Some(lease) = lock(etcd).await? else { return Ok(()) };
    let mut result = Ok(());
    for one in candidates.iter().filter(|one| wasteful(one)) {
        result = one_member(etcd, one, &candidates).await;
        if result.is_err() {
            break;
        }
    }
    let unlock = |mut client: Client| async move { client.lease_revoke(lease).await };
    let unlocked = etcd.endpoints.attempt(QUICK, unlock).await;
    result?;
    unlocked?;
    Ok(())
}

/// After a quota was reached: forgets history, gives the space back, and takes the alarm away if there was any. etcd raises it
/// again when the quota is reached again.
pub(super) async fn free_space(etcd: &Shared) -> Result<(), StoreError> {
    etcd.compact(etcd.newest().await?, true).await?;
    let candidates = candidates(etcd).await?;
    let mut freed = false;
    for one in &candidates {
        one_member(etcd, one, &candidates).await?;
        let after = etcd.member(&one.endpoint).await?;
        let before = one.status.db_size();
        freed |= after.db_size() <= before - before / 10;
    }
    if !freed {
        tracing::error!("etcd has no space left: delete objects or raise its quota");
        return Ok(());
    }
    let disarm = |mut client: Client| async move {
        let alarms = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await?;
        for alarm in alarms.alarms() {
            let mut member = AlarmOptions::new();
            member.with_member(alarm.member_id());
            client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(member)).await?;
        }
        Ok(())
    };
    etcd.endpoints.attempt(ONE, disarm).await?;
    etcd.check_alarms().await?;
    Ok(())
}

/// All members, the leader last. Fails if one of them is not well: the others could not do without the one that is blocked.
async fn candidates(etcd: &Shared) -> Result<Vec<Candidate>, EtcdError> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for (endpoint, status) in etcd.members().await {
        let status = status?;
        let id = status.header().map_or(0, |header| header.member_id());
        let leads = status.leader() == id;
        // Endpoints may be several names of one member.
        if candidates.iter().all(|one| one.id != id) {
            candidates.push(Candidate { endpoint, id, leads, status });
        }
    }
    candidates.sort_by_key(|one| one.leads);
    Ok(candidates)
}

/// Takes the lock. Returns its lease, or `None` if another server has it.
async fn lock(etcd: &Shared) -> Result<Option<i64>, EtcdError> {
    let key = etcd.keys.key(LOCK);
    let take = |mut client: Client| async move {
        let lease = client.lease_grant(LOCK_SECONDS, None).await?.id();
        let put = TxnOp::put(key.as_str(), "", Some(PutOptions::new().with_lease(lease)));
        let absent = Compare::mod_revision(key.as_str(), CompareOp::Equal, 0);
        let taken = kv(&client).txn(Txn::new().when([absent]).and_then([put])).await?.succeeded();
        if !taken {
            client.lease_revoke(lease).await?;
        }
        Ok(taken.then_some(lease))
    };
    Ok(etcd.endpoints.attempt(ONE, take).await?.0)
}

async fn one_member(etcd: &Shared, one: &Candidate, all: &[Candidate]) -> Result<(), EtcdError> {
    let client = one.endpoint.client(&etcd.endpoints.options).await?;
    // Leadership may have moved since.
    let leads = etcd.member(&one.endpoint).await?.leader() == one.id;
    let successor = all.iter().find(|other| other.id != one.id && !other.status.is_learner());
    if let Some(successor) = successor {
        if leads {
            client.clone().move_leader(successor.id).await?;
        }
        etcd.endpoints.avoid(&one.endpoint, ONE, "it is being defragmented".to_owned());
    }
    // Of its own: the connection of requests was given up.
    let mut client = one.endpoint.client(&etcd.endpoints.options).await?;
    let done = tokio::time::timeout(ONE, client.defragment()).await;
    let well = wait_until_well(etcd, &one.endpoint).await;
    etcd.endpoints.allow(&one.endpoint);
    match done {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(EtcdError::Timeout(ONE)),
    }
    let after = well?;
    let (before, after) = (one.status.db_size(), after.db_size());
    tracing::info!(endpoint = %one.endpoint.url, before, after, "member of etcd defragmented");
    Ok(())
}

/// Waits until the member answers and has a leader.
async fn wait_until_well(etcd: &Shared, endpoint: &Endpoint) -> Result<StatusResponse, EtcdError> {
    let mut tries = ONE.as_millis() / PAUSE.as_millis();
    loop {
        tries -= 1;
        match etcd.member(endpoint).await {
            Ok(status) if status.leader() != 0 || tries == 0 => return Ok(status),
            Err(error) if tries == 0 || !error.is_transient() => return Err(error),
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}
