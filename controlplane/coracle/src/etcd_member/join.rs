//! Becoming a member of a cluster: added as a learner, started, promoted to a voter when it has caught up.

use super::process::Process;
use super::state::State;
use super::{MemberConfig, MemberError};
use coracle_cli::causes;
use coracle_store::etcd::{ClusterMember, EtcdError, Membership};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long the cluster may take to accept a member: others may be joining, one at a time.
const ADD: Duration = Duration::from_secs(300);
/// How long a member may take to catch up: it copies the whole database.
const CATCH_UP: Duration = Duration::from_secs(1800);
/// How long members may not know one that was added.
const UNKNOWN: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);
/// How often the log says what is waited for.
const TELL: Duration = Duration::from_secs(15);

/// Adds this server's member, and notes it in the state. A stale one in its place is removed first: its data is gone. Nothing
/// is changed for a member that runs.
pub(super) async fn add(
    cluster: &Membership,
    config: &MemberConfig,
    state: &mut State,
) -> Result<(), MemberError> {
    let known = config.existing.as_ref().unwrap_or(&state.others);
    if is_loopback(&state.peer_url) && !known.iter().all(|url| is_loopback(url)) {
        return Err(MemberError::Loopback { own: state.peer_url.clone() });
    }
    let (begun, mut told) = (Instant::now(), None::<Instant>);
    loop {
        let error = match attempt(cluster, state).await {
            Ok(()) => return Ok(()),
            // Not found: members that were asked differ in whom they know while one is being replaced.
            Err(MemberError::Etcd(error))
                if error.is_refused() || error.is_transient() || error.is_not_found() =>
            {
                error
            }
            Err(error) => return Err(error),
        };
        if begun.elapsed() >= ADD {
            return Err(MemberError::NotAdded { name: state.name.clone(), limit: ADD, source: error });
        }
        if told.is_none_or(|told| told.elapsed() >= TELL) {
            told = Some(Instant::now());
            tracing::warn!(error = %causes::chain(&error), member = state.name, "the cluster does not take the member yet, will retry");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn attempt(cluster: &Membership, state: &mut State) -> Result<(), MemberError> {
    let all = cluster.list().await?;
    let mut stale = Vec::new();
    for member in all.iter().filter(|member| is_own(member, state)) {
        // Added by an attempt that did not go on: it has not run.
        if member.name.is_empty() && member.learner {
            state.added(member.id, &all);
            return Ok(());
        }
        for url in &member.client_urls {
            if cluster.status(url).await.problem.is_none() {
                let (name, peer_url) = (member.name.clone(), state.peer_url.clone());
                return Err(MemberError::Taken { name, peer_url });
            }
        }
        stale.push(member);
    }
    for member in stale {
        let id = format!("{:x}", member.id);
        tracing::info!(member = member.name, id, "removing the member whose data is gone");
        match cluster.remove(member.id).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    let (own, all) = cluster.add_learner(&state.peer_url).await?;
    tracing::info!(member = state.name, id = format!("{:x}", own.id), "added to the cluster as a learner");
    state.added(own.id, &all);
    Ok(())
}

/// Whether a member is the one of this server.
fn is_own(member: &ClusterMember, state: &State) -> bool {
    member.name == state.name || member.peer_urls.contains(&state.peer_url)
}

/// Waits until a member that was added votes.
pub(super) async fn promote(
    others: &Membership,
    own: &Membership,
    (config, state): (&MemberConfig, &State),
    process: &mut Process,
) -> Result<(), MemberError> {
    let Some(id) = state.id else { return Ok(()) };
    let (begun, mut told) = (Instant::now(), Instant::now());
    while own.status(&state.client_url).await.learner {
        let error = match others.promote(id).await {
            Ok(()) => {
                tracing::info!(member = state.name, "promoted to a voting member");
                return Ok(());
            }
            Err(error) => error,
        };
        // One that was asked may not have heard of it yet.
        if error.is_not_found() && begun.elapsed() >= UNKNOWN {
            return Err(MemberError::removed(&state.name, &config.data_dir));
        }
        if let Some(ended) = process.ended().await {
            return Err(ended);
        }
        if begun.elapsed() >= CATCH_UP {
            return Err(not_promoted(state, error));
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            tracing::info!(error = %causes::chain(&error), member = state.name, "the member copies the data of the leader");
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn not_promoted(state: &State, source: EtcdError) -> MemberError {
    MemberError::NotPromoted { name: state.name.clone(), limit: CATCH_UP, source }
}

/// Tells the cluster where this member is, if that has changed since it was added.
pub(super) async fn update_address(own: &Membership, id: u64, peer_url: &str) -> Result<(), MemberError> {
    let all = own.list().await?;
    let known = all.iter().find(|member| member.id == id);
    if known.is_some_and(|member| member.peer_urls != [peer_url]) {
        tracing::info!(peer_url, "the address of this member has changed");
        own.update(id, peer_url).await?;
    }
    Ok(())
}

fn is_loopback(url: &str) -> bool {
    let host = url.split("://").last().and_then(|rest| rest.rsplit_once(':')).map_or("", |(host, _)| host);
    host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_in_urls() {
        for (url, want) in [
            ("https://127.0.0.2:2379", true),
            ("https://[::1]:2379", true),
            ("https://localhost:2379", true),
            ("https://10.0.0.1:2379", false),
            ("https://server-1:2379", false),
        ] {
            assert_eq!(is_loopback(url), want, "{url}");
        }
    }
}
