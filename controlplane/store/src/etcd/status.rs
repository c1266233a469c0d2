//! State of etcd's members: sizes, leader, alarms.

use super::{attempt::QUICK, endpoints::Endpoint, error::EtcdError, shared::Shared};
use crate::{
    StoreError, Unhealthy,
    status::{Engine, MemberStatus, StoreStatus},
};
use etcd_client::{AlarmAction, AlarmType, StatusResponse};
use std::{sync::Arc, time::Duration};

/// How long one member may take.
pub(super) const MEMBER: Duration = Duration::from_secs(2);

impl Shared {
    /// The status of the member behind an endpoint.
    pub async fn member(&self, endpoint: &Endpoint) -> Result<StatusResponse, EtcdError> {
        let asked =
            async { Ok::<_, EtcdError>(endpoint.client(&self.endpoints.options).await?.status().await?) };
        tokio::time::timeout(MEMBER, asked).await.unwrap_or(Err(EtcdError::Timeout(MEMBER)))
    }

    /// The status of all endpoints, asked at the same time.
    pub async fn members(&self) -> Vec<(Arc<Endpoint>, Result<StatusResponse, EtcdError>)> {
        let asked = self.endpoints.all().into_iter().map(|endpoint| async move {
            let status = self.member(&endpoint).await;
            (endpoint, status)
        });
        futures::future::join_all(asked).await
    }

    pub async fn status(&self) -> Result<StoreStatus, StoreError> {
        let revision = self.newest().await?;
        let members = self.members().await;
        let newest = members.iter().filter_map(|(_, status)| Some(status.as_ref().ok()?.raft_index()));
        let newest = newest.max().unwrap_or(0);
        let members: Vec<_> = members
            .into_iter()
            .map(|(endpoint, status)| member_status(&endpoint.url, status, newest))
            .collect();
        let largest = |size: fn(&MemberStatus) -> u64| members.iter().map(size).max().unwrap_or(0);
        let mut problems = Vec::new();
        match self.check_alarms().await {
            Ok(()) => problems.extend(self.alarm().map(|alarm| alarm.to_string())),
            Err(error) => problems.push(error.to_string()),
        }
        Ok(StoreStatus {
            engine: Engine::Etcd,
            revision,
            size: largest(|one| one.size),
            in_use: largest(|one| one.in_use),
            problems,
            members,
        })
    }

    /// Asks for alarms and notes them.
    pub async fn check_alarms(&self) -> Result<(), EtcdError> {
        let ask = |mut client: etcd_client::Client| async move {
            client.alarm(AlarmAction::Get, AlarmType::None, None).await
        };
        let answer = self.endpoints.read(QUICK, ask).await?;
        let alarms = answer.alarms();
        let of = |alarm: AlarmType| {
            let members = alarms.iter().filter(|one| one.alarm() == alarm);
            members.map(|one| format!("{:x}", one.member_id())).collect::<Vec<_>>().join(", ")
        };
        let (full, corrupt) = (of(AlarmType::Nospace), of(AlarmType::Corrupt));
        let found = if !corrupt.is_empty() {
            Some(Unhealthy::Damaged { detail: format!("etcd reports corruption of member {corrupt}") })
        } else if !full.is_empty() {
            let detail = format!("member {full} has reached its space quota (alarm NOSPACE)");
            Some(Unhealthy::Quota { detail })
        } else {
            None
        };
        let before = std::mem::replace(&mut *self.alarm.lock(), found.clone());
        match found {
            Some(found) if before.as_ref() != Some(&found) => {
                tracing::error!(error = %found, "alarm of etcd")
            }
            None if before.is_some() => tracing::info!("etcd has no alarm any more"),
            _ => {}
        }
        Ok(())
    }

    /// The alarm that was found last.
    pub fn alarm(&self) -> Option<Unhealthy> {
        self.alarm.lock().clone()
    }
}

/// What an answer, or none, says about a member.
pub(super) fn member_status(
    url: &str,
    status: Result<StatusResponse, EtcdError>,
    newest: u64,
) -> MemberStatus {
    let endpoint = url.to_owned();
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            return MemberStatus { endpoint, problem: Some(error.to_string()), ..MemberStatus::default() };
        }
    };
    let id = status.header().map_or(0, |header| header.member_id());
    let no_leader = (status.leader() == 0).then(|| "it has no leader".to_owned());
    MemberStatus {
        endpoint,
        id: format!("{id:x}"),
        version: status.version().to_owned(),
        leader: id != 0 && status.leader() == id,
        learner: status.is_learner(),
        size: status.db_size().unsigned_abs(),
        in_use: in_use(&status),
        behind: newest.saturating_sub(status.raft_applied_index()),
        problem: no_leader.or_else(|| status.errors().first().cloned()),
    }
}

/// Bytes of the file that hold something.
pub(super) fn in_use(status: &StatusResponse) -> u64 {
    status.raft_used_db_size().unsigned_abs()
}
