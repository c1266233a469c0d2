//! Which members can be removed without the loss of a majority.

use coracle_store::MemberStatus;
use coracle_store::etcd::{ClusterMember, EtcdError, Membership};
use serde::Serialize;
use std::time::{Duration, Instant};

/// How long a cluster may take to settle after a change.
const SETTLE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(1);

/// A member, and what it says about itself.
#[derive(Debug, Clone, Serialize)]
pub struct KnownMember {
    /// As the cluster knows it.
    #[serde(flatten)]
    pub member: ClusterMember,
    /// Whether it leads.
    pub leader: bool,
    /// Its version; empty if it does not answer.
    pub version: String,
    /// Bytes on its disk.
    pub size: u64,
    /// What is wrong.
    pub problem: Option<String>,
}

impl KnownMember {
    fn new(member: ClusterMember, status: MemberStatus) -> Self {
        let MemberStatus { leader, version, size, problem, .. } = status;
        Self { member, leader, version, size, problem }
    }

    fn votes(&self) -> bool {
        !self.member.learner
    }

    /// Its name, or its identifier if it has none yet.
    pub fn name(&self) -> String {
        if self.member.name.is_empty() { format!("{:x}", self.member.id) } else { self.member.name.clone() }
    }
}

/// Lists the members, and asks each of them.
pub async fn known(cluster: &Membership) -> Result<Vec<KnownMember>, EtcdError> {
    let asked = cluster.list().await?.into_iter().map(|member| async move {
        let status = match member.client_urls.first() {
            Some(url) => cluster.status(url).await,
            None => {
                MemberStatus { problem: Some("it has not started".to_owned()), ..MemberStatus::default() }
            }
        };
        KnownMember::new(member, status)
    });
    let mut all = futures::future::join_all(asked).await;
    all.sort_by(|a, b| a.member.name.cmp(&b.member.name));
    Ok(all)
}

/// Why a member is not removed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    /// There is none of this name.
    #[error("there is no member {name}: the members are {}", all.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those that there are.
        all: Vec<String>,
    },
    /// Several have this name.
    #[error("several members have the name {0}: use an identifier")]
    Ambiguous(String),
    /// The cluster would have no voter.
    #[error("{0} is the only voting member: without it there is no cluster")]
    Last(String),
    /// Nothing can be changed.
    #[error(
        "the cluster has lost its majority: {well} of {voters} voting members answer, {needed} are needed. Start the others \
         again; if they are lost, `coracle server --cluster-reset` on one server makes a new cluster of its data"
    )]
    NoMajority {
        /// Voters that answer.
        well: usize,
        /// All voters.
        voters: usize,
        /// How many must answer.
        needed: usize,
    },
    /// The rest would have no majority.
    #[error(
        "without {name} the cluster would lose its majority: {well} of the {voters} other voting members answer, {needed} are \
         needed. Repair or remove those that do not answer first"
    )]
    WouldLose {
        /// The member.
        name: String,
        /// Voters that answer without it.
        well: usize,
        /// All voters without it.
        voters: usize,
        /// How many must answer.
        needed: usize,
    },
}

/// The member of this name or identifier, if the cluster works without it.
pub fn plan_removal<'a>(members: &'a [KnownMember], name: &str) -> Result<&'a KnownMember, Refusal> {
    let named = |known: &&KnownMember| known.member.name == name || format!("{:x}", known.member.id) == name;
    let mut found = members.iter().filter(named);
    let Some(known) = found.next() else {
        let all = members.iter().map(KnownMember::name).collect();
        return Err(Refusal::Unknown { name: name.to_owned(), all });
    };
    if found.next().is_some() {
        return Err(Refusal::Ambiguous(name.to_owned()));
    }
    let count = |without: Option<u64>| {
        let voters = members.iter().filter(|one| one.votes() && Some(one.member.id) != without);
        let (voters, well) = (voters.clone().count(), voters.filter(|one| one.problem.is_none()).count());
        (well, voters, voters / 2 + 1)
    };
    let (well, voters, needed) = count(None);
    if well < needed {
        return Err(Refusal::NoMajority { well, voters, needed });
    }
    if !known.votes() {
        return Ok(known);
    }
    let (well, voters, needed) = count(Some(known.member.id));
    match voters {
        0 => Err(Refusal::Last(known.name())),
        _ if well < needed => Err(Refusal::WouldLose { name: known.name(), well, voters, needed }),
        _ => Ok(known),
    }
}

/// Removes a member. Tries again for a while: a cluster that has just changed refuses until its members have been connected for
/// some seconds.
pub async fn remove(cluster: &Membership, id: u64) -> Result<(), EtcdError> {
    let begun = Instant::now();
    loop {
        match cluster.remove(id).await {
            Err(error) if error.is_transient() && begun.elapsed() < SETTLE => tokio::time::sleep(PAUSE).await,
            // An attempt whose answer was lost has succeeded.
            Err(error) if error.is_not_found() => return Ok(()),
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// `a` answers, `A` does not, `l` is a learner.
    fn cluster(members: &str) -> Vec<KnownMember> {
        let one = |(id, letter): (usize, char)| {
            let member = ClusterMember {
                id: id as u64 + 1,
                name: letter.to_ascii_lowercase().to_string(),
                peer_urls: Vec::new(),
                client_urls: Vec::new(),
                learner: letter.eq_ignore_ascii_case(&'l'),
            };
            let problem = letter.is_ascii_uppercase().then(|| "down".to_owned());
            KnownMember::new(member, MemberStatus { problem, ..MemberStatus::default() })
        };
        members.chars().enumerate().map(one).collect()
    }

    #[test]
    fn a_majority_of_the_rest_must_answer() {
        for (members, name, want) in [
            ("abc", "a", "ok"),
            ("abc", "2", "ok"),
            ("abC", "c", "ok"),
            ("abC", "a", "without a the cluster would lose its majority: 1 of the 2"),
            ("ab", "b", "ok"),
            ("aB", "b", "has lost its majority: 1 of 2"),
            ("a", "a", "a is the only voting member"),
            ("al", "a", "a is the only voting member"),
            ("al", "l", "ok"),
            ("abL", "l", "ok"),
            ("abcDE", "d", "ok"),
            ("abcDE", "a", "2 of the 4"),
            ("aBC", "b", "has lost its majority: 1 of 3"),
            ("abc", "x", "there is no member x: the members are a, b, c"),
            ("aab", "a", "several members have the name a"),
        ] {
            let members = cluster(members);
            match plan_removal(&members, name) {
                Ok(known) => assert!(want == "ok" && (known.name() == name || name == "2"), "{name}: {want}"),
                Err(refusal) => assert!(refusal.to_string().contains(want), "{want}: {refusal}"),
            }
        }
    }

    #[test]
    fn members_are_printed_with_hexadecimal_identifiers() {
        let mut known = cluster("a").remove(0);
        known.member.id = 0xabc;
        let json = serde_json::to_value(&known).unwrap();
        assert_eq!((json["id"].as_str(), json["name"].as_str()), (Some("abc"), Some("a")));
    }
}
