//! What is wrong with a cluster, from its status. Pure.

use super::collect::ClusterStatus;
use crate::certificate::files::FileCertificate;
use jiff::Timestamp;

const DAY: i64 = 86_400;
/// Certificates that end within this time are reported, unless they are meant to live shortly.
const EXPIRES_SOON: i64 = 30 * DAY;
/// Members of etcd that are so many entries behind do not keep up.
const BEHIND: u64 = 5000;
/// How much later than agreed a Lease may be renewed before its holder counts as away: clocks differ.
const LENIENCE: i64 = 5;

/// One line for each problem, besides those that the servers know themselves.
pub(super) fn problems(cluster: &ClusterStatus, now: Timestamp) -> Vec<String> {
    let mut all = Vec::new();
    servers(cluster, now, &mut all);
    store(cluster, &mut all);
    for election in &cluster.elections {
        if election.leader.is_empty() || is_late(&election.renewed, election.holds, now) {
            all.push(format!("nobody leads {}", election.name));
        }
    }
    if let Some(backup) = &cluster.last_backup
        && let Some(error) = backup.error.as_deref().filter(|error| !error.is_empty())
    {
        all.push(format!("the last backup ({}) failed: {error}", backup.time));
    }
    all
}

fn servers(cluster: &ClusterStatus, now: Timestamp, all: &mut Vec<String>) {
    let mut versions: Vec<&str> = Vec::new();
    for server in &cluster.servers {
        let shown = if server.address.is_empty() { &server.name } else { &server.address };
        if cluster.shared && is_late(&server.renewed, server.holds, now) {
            all.push(format!("server {shown} does not renew its Lease: last at {}", server.renewed));
        } else if let Some(error) = &server.error {
            all.push(format!("server {shown}: {error}"));
        }
        if server.writes_paused {
            all.push(format!("server {shown} refuses writes: its store was copied"));
        }
        if !server.version.is_empty() && !versions.contains(&server.version.as_str()) {
            versions.push(&server.version);
        }
        for certificate in &server.certificates {
            all.extend(expiry(certificate, now).map(|why| format!("server {shown}: {why}")));
        }
    }
    if versions.len() > 1 {
        all.push(format!("servers have different versions: {}", versions.join(", ")));
    }
}

fn store(cluster: &ClusterStatus, all: &mut Vec<String>) {
    let Some(store) = &cluster.store else { return };
    all.extend(store.problems.iter().map(|problem| format!("store: {problem}")));
    for member in &store.members {
        let shown = &member.endpoint;
        if let Some(problem) = &member.problem {
            all.push(format!("member {shown}: {problem}"));
        }
        if member.behind > BEHIND {
            all.push(format!("member {shown} is {} entries behind", member.behind));
        }
    }
}

/// Whether a Lease should have been renewed by now. One without a duration is not renewed.
pub(super) fn is_late(renewed: &str, holds: i64, now: Timestamp) -> bool {
    match renewed.parse::<Timestamp>() {
        Ok(renewed) => holds > 0 && now.as_second() > renewed.as_second() + holds + LENIENCE,
        Err(_) => holds > 0,
    }
}

/// Why a certificate has to be looked at, if it has.
pub(super) fn expiry(certificate: &FileCertificate, now: Timestamp) -> Option<String> {
    let info = &certificate.info;
    let left = info.not_after - now.as_second();
    // Certificates are renewed after two thirds of their life.
    let soon = EXPIRES_SOON.min(info.life() / 4);
    let file = &certificate.file;
    match left {
        _ if left < 0 => Some(format!("certificate {file} has expired {} days ago", -left / DAY)),
        _ if left < soon => Some(format!("certificate {file} expires in {} days", left / DAY)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::collect::{Election, ServerRow};
    use super::*;
    use crate::operations::status::LastBackup;
    use coracle_pki::inspect::CertificateInfo;
    use coracle_store::{Engine, MemberStatus, StoreStatus};

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn certificate(lived: i64, left: i64) -> FileCertificate {
        let at = now().as_second();
        FileCertificate {
            file: "apiserver.crt".into(),
            used_for: String::new(),
            info: CertificateInfo {
                subject: String::new(),
                names: Vec::new(),
                issuer: String::new(),
                serial: String::new(),
                authority: false,
                not_before: at - lived,
                not_after: at + left,
            },
        }
    }

    fn well() -> ClusterStatus {
        let renewed = "2026-01-01T11:59:58.000000Z".to_owned();
        let member = MemberStatus { endpoint: "m1".into(), leader: true, ..MemberStatus::default() };
        ClusterStatus {
            shared: true,
            servers: vec![ServerRow {
                name: "apiserver-a".into(),
                address: "192.0.2.1:6443".into(),
                renewed: renewed.clone(),
                holds: 8,
                version: "1".into(),
                certificates: vec![certificate(100 * DAY, 265 * DAY)],
                ..ServerRow::default()
            }],
            store: Some(StoreStatus {
                engine: Engine::Etcd,
                revision: 1,
                size: 1,
                in_use: 1,
                problems: Vec::new(),
                members: vec![member],
            }),
            elections: vec![Election {
                name: "kube-scheduler".into(),
                leader: "a".into(),
                renewed,
                holds: 15,
            }],
            last_backup: Some(LastBackup { time: "2026-01-01T00:00:00Z".into(), ..LastBackup::default() }),
            ..ClusterStatus::default()
        }
    }

    #[test]
    fn every_trouble_is_one_line_and_a_cluster_that_is_well_has_none() {
        assert_eq!(problems(&well(), now()), Vec::<String>::new());
        let trouble = |change: &dyn Fn(&mut ClusterStatus)| {
            let mut cluster = well();
            change(&mut cluster);
            let found = problems(&cluster, now());
            assert_eq!(found.len(), 1, "{found:?}");
            found.into_iter().next().unwrap()
        };
        let old = "2026-01-01T11:59:00.000000Z";
        type Change<'a> = &'a dyn Fn(&mut ClusterStatus);
        let all: [(Change<'_>, &str); 12] = [
            (&|c| c.servers[0].renewed = old.into(), "server 192.0.2.1:6443 does not renew its Lease"),
            (&|c| c.servers[0].error = Some("connection refused".into()), "connection refused"),
            (&|c| c.servers[0].writes_paused = true, "refuses writes"),
            (
                &|c| c.servers.push(ServerRow { version: "2".into(), ..c.servers[0].clone() }),
                "versions: 1, 2",
            ),
            (&|c| c.servers[0].certificates = vec![certificate(336 * DAY, 29 * DAY)], "expires in 29 days"),
            (&|c| c.servers[0].certificates = vec![certificate(365 * DAY, -DAY)], "expired 1 days ago"),
            (&|c| c.elections[0].leader.clear(), "nobody leads kube-scheduler"),
            (&|c| c.elections[0].renewed = old.into(), "nobody leads kube-scheduler"),
            (&|c| c.store.as_mut().unwrap().members[0].problem = Some("gone".into()), "member m1: gone"),
            (&|c| c.store.as_mut().unwrap().members[0].behind = 10_000, "m1 is 10000 entries behind"),
            (&|c| c.store.as_mut().unwrap().problems.push("full".into()), "store: full"),
            (&|c| c.last_backup.as_mut().unwrap().error = Some("no space".into()), "failed: no space"),
        ];
        for (change, expected) in all {
            let said = trouble(change);
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }

    #[test]
    fn short_lives_are_not_taken_for_neglect_and_a_store_of_one_server_has_no_renewals() {
        assert_eq!(expiry(&certificate(30, 30), now()), None);
        assert!(expiry(&certificate(50, 10), now()).is_some());
        assert!(!is_late("2020-01-01T00:00:00Z", 0, now()));
        assert!(is_late("", 8, now()));
        let never = ClusterStatus { last_backup: None, ..well() };
        assert_eq!(problems(&never, now()), Vec::<String>::new());
    }
}
