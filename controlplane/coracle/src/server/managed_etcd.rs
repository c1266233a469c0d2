//! The etcd member of this server, from the server's options.

use super::addresses::{host_of, reachable};
use crate::config::Config;
use crate::etcd_member::{self, Member, MemberConfig, MemberError};
use crate::join::{self, JoinError, JoinedDatastore};
use anyhow::{Context as _, bail};
use coracle_cli::health::{CheckError, Checks, Scope};
use coracle_store::Datastore;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use tokio_util::sync::CancellationToken;

/// Starts the member. Its health is reported as `etcd-member`: while it is down the server works with other members.
pub(super) async fn start(
    member: MemberConfig,
    checks: &Checks,
    stop: &CancellationToken,
) -> anyhow::Result<Member> {
    let started = tokio::select! {
        started = etcd_member::start(member) => started,
        () = stop.cancelled() => bail!("the server was stopped before its etcd member answered"),
    };
    let member = started.context("--datastore etcd")?;
    let health = member.health();
    let check = move || health.check().map_err(|error| CheckError::Failed(error));
    checks.add("etcd-member", Scope::Ready, check);
    Ok(member)
}

/// The member of a server that listens there. A server that joined a cluster joins its members.
pub(super) fn member_config(config: &Config, bound: SocketAddr) -> Result<MemberConfig, JoinError> {
    let reached = reachable(config, bound);
    let host = host_of(&reached).trim_matches(['[', ']']);
    let existing = match join::joined(&config.data_dir)?.map(|joined| joined.datastore) {
        Some(JoinedDatastore::Managed { members }) => Some(members),
        _ => None,
    };
    Ok(MemberConfig {
        existing,
        client_port: config.etcd_ports.client,
        peer_port: config.etcd_ports.peer,
        certificate_life: config.security.certificate_life(),
        ..MemberConfig::new(&config.data_dir, host)
    })
}

/// Fails if a server that is to join has an address that its member cannot have: before it has the keys of the cluster.
pub(super) fn check_address(config: &Config) -> Result<(), MemberError> {
    let (Datastore::ManagedEtcd, Some(join)) = (&config.datastore, &config.join) else { return Ok(()) };
    let reached = reachable(config, config.bind);
    let own = host_of(&reached).trim_matches(['[', ']']);
    let Ok(address) = own.parse::<IpAddr>() else { return Ok(()) };
    let other = join.server.host().map(|host| host.trim_matches(['[', ']'])).unwrap_or_default();
    let is_near = other == "localhost" || other.parse::<IpAddr>().is_ok_and(|other| other.is_loopback());
    if address.is_loopback() && !is_near {
        return Err(MemberError::Loopback { own: own.to_owned() });
    }
    match std::net::UdpSocket::bind((address, 0)) {
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => Err(MemberError::Foreign(address)),
        _ => Ok(()),
    }
}

/// `coracle server --cluster-reset`: makes this server's member the only one, and says what to do next.
pub async fn reset_cluster(config: &Config) -> anyhow::Result<()> {
    let dir = &config.data_dir;
    let reset = etcd_member::reset(dir, &dir.join("pki")).await.context("--cluster-reset")?;
    println!(
        "The cluster has one etcd member now: {}, with all data of this server up to revision {}.\n\
         The data as it was before is in {}; delete it when all is well.\n\
         \n\
         Next:\n\
         1. Start this server again, without --cluster-reset.\n\
         2. On every other server of the old cluster, before it is started: delete the directory etcd in its data directory.\n\
         3. Start the other servers, one after the other. Each joins as a new member.",
        reset.name,
        reset.revision,
        reset.copy.display(),
    );
    Ok(())
}
