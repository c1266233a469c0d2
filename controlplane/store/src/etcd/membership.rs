//! The members of an etcd cluster, for whoever runs them: list, add, promote, remove.

use super::{
    attempt::{LARGE, QUICK},
    endpoints::{Endpoint, Endpoints},
    error::EtcdError,
    options::EtcdOptions,
    shared::kv,
    status::{MEMBER, member_status},
};
use crate::{DatastoreError, status::MemberStatus};
use etcd_client::{Client, GetOptions, Member, MemberAddOptions};
use serde::Serialize;

/// A member, as the cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterMember {
    /// Its identifier.
    #[serde(serialize_with = "hexadecimal")]
    pub id: u64,
    /// Its name; empty until it has started.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; empty until it has started.
    pub client_urls: Vec<String>,
    /// Whether it does not vote yet.
    pub learner: bool,
}

impl From<&Member> for ClusterMember {
    fn from(member: &Member) -> Self {
        Self {
            id: member.id(),
            name: member.name().to_owned(),
            peer_urls: member.peer_urls().to_vec(),
            client_urls: member.client_urls().to_vec(),
            learner: member.is_learner(),
        }
    }
}

fn hexadecimal<S: serde::Serializer>(id: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{id:x}"))
}

/// Asks about members and changes them, through whichever endpoint answers. A change whose answer is lost may have happened:
/// list again.
pub struct Membership {
    endpoints: Endpoints,
}

impl Membership {
    /// For the cluster behind the endpoints. Nothing is connected yet.
    pub fn new(options: &EtcdOptions) -> Result<Self, DatastoreError> {
        Ok(Self { endpoints: Endpoints::new(options.clone().checked()?) })
    }

    /// All members, as the member that answers knows them.
    pub async fn list(&self) -> Result<Vec<ClusterMember>, EtcdError> {
        let list = |mut client: Client| async move { client.member_list().await };
        let answer = self.endpoints.read(QUICK, list).await?;
        Ok(answer.members().iter().map(ClusterMember::from).collect())
    }

    /// Adds a member that does not vote yet. Returns it, and all members. Refused while there is another learner.
    pub async fn add_learner(
        &self,
        peer_url: &str,
    ) -> Result<(ClusterMember, Vec<ClusterMember>), EtcdError> {
        let urls = vec![peer_url.to_owned()];
        let add = |mut client: Client| async move {
            client.member_add(urls, Some(MemberAddOptions::new().with_is_learner())).await
        };
        let (answer, _) = self.endpoints.attempt(LARGE, add).await?;
        let added = answer.member().map(ClusterMember::from).ok_or(EtcdError::NoMember)?;
        Ok((added, answer.member_list().iter().map(ClusterMember::from).collect()))
    }

    /// Makes a learner a voter. Refused while it is behind the leader.
    pub async fn promote(&self, id: u64) -> Result<(), EtcdError> {
        let promote = |mut client: Client| async move { client.member_promote(id).await };
        self.endpoints.attempt(LARGE, promote).await.map(|_| ())
    }

    /// Changes where other members reach a member.
    pub async fn update(&self, id: u64, peer_url: &str) -> Result<(), EtcdError> {
        let urls = vec![peer_url.to_owned()];
        let update = |mut client: Client| async move { client.member_update(id, urls).await };
        self.endpoints.attempt(LARGE, update).await.map(|_| ())
    }

    /// Removes a member.
    pub async fn remove(&self, id: u64) -> Result<(), EtcdError> {
        let remove = |mut client: Client| async move { client.member_remove(id).await };
        self.endpoints.attempt(LARGE, remove).await.map(|_| ())
    }

    /// Asks the member behind a URL, and no other, how it is.
    pub async fn status(&self, url: &str) -> MemberStatus {
        let endpoint = Endpoint::new(url);
        let asked =
            async { Ok::<_, EtcdError>(endpoint.client(&self.endpoints.options).await?.status().await?) };
        let answer = tokio::time::timeout(MEMBER, asked).await.unwrap_or(Err(EtcdError::Timeout(MEMBER)));
        let newest = answer.as_ref().map_or(0, |status| status.raft_index());
        member_status(url, answer, newest)
    }

    /// The newest revision of etcd, by a read that needs a majority.
    pub async fn revision(&self) -> Result<i64, EtcdError> {
        let count = |client: Client| async move {
            kv(&client).get("/", Some(GetOptions::new().with_count_only())).await
        };
        let answer = self.endpoints.read(LARGE, count).await?;
        Ok(answer.header().ok_or(EtcdError::NoRevision)?.revision())
    }
}
