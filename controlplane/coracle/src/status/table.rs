//! The status of a cluster as text.

use super::assess::is_late;
use super::collect::{ClusterStatus, ServerRow};
use crate::operations::status::LastBackup;
use crate::output::table;
use jiff::Timestamp;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// A number of bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Everything that is known, problems last.
pub(super) fn text(cluster: &ClusterStatus, now: Timestamp) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    if !cluster.servers.is_empty() {
        writeln!(text, "Kubernetes {}\n", or_unknown(&cluster.kubernetes_version))?;
        text.push_str(&servers(cluster, now));
        writeln!(text, "\nendpoints of default/kubernetes: {}\n", endpoints(cluster))?;
        store(cluster, &mut text)?;
        backup(cluster, &mut text)?;
        text.push_str(&certificates(cluster, now));
        text.push('\n');
    }
    if cluster.problems.is_empty() {
        writeln!(text, "nothing is wrong")?;
    }
    for problem in &cluster.problems {
        writeln!(text, "problem: {problem}")?;
    }
    Ok(text)
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

/// The addresses that pods reach. A cluster whose servers have none can serve clients of its machine all the same.
fn endpoints(cluster: &ClusterStatus) -> String {
    let is_loopback = |server: &&ServerRow| {
        server.address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
    };
    match cluster.servers.iter().find(is_loopback) {
        Some(server) if cluster.endpoints.is_empty() => {
            format!("none: pods do not reach {}, see server --advertise", server.address)
        }
        _ => or_none(&cluster.endpoints.join(", ")).to_owned(),
    }
}

fn servers(cluster: &ClusterStatus, now: Timestamp) -> String {
    let mut rows = vec![row(["SERVER", "ADDRESS", "STATE", "VERSION"])];
    for server in &cluster.servers {
        let state = match (&server.error, cluster.shared && is_late(&server.renewed, server.holds, now)) {
            (_, true) => "away",
            (Some(_), false) => "unreachable",
            (None, false) if server.writes_paused => "read-only",
            (None, false) => "running",
        };
        rows.push(row([&server.name, &server.address, state, or_none(&server.version)]));
    }
    table(&rows)
}

fn store(cluster: &ClusterStatus, text: &mut String) -> std::fmt::Result {
    writeln!(text, "store: {}", cluster.datastore)?;
    if let Some(store) = &cluster.store {
        let (all, used) = (size(store.size), size(store.in_use));
        writeln!(text, "  revision {}, {all} on disk, {used} in use", store.revision)?;
        if !store.members.is_empty() {
            let mut rows = vec![row(["MEMBER", "ENDPOINT", "ROLE", "VERSION", "SIZE", "BEHIND"])];
            for member in &store.members {
                let role = match (member.leader, member.learner, &member.problem) {
                    (true, ..) => "leader",
                    (false, true, _) => "learner",
                    (false, false, None) => "follower",
                    (false, false, Some(_)) => "unhealthy",
                };
                let (disk, behind) = (size(member.size), member.behind.to_string());
                rows.push(row([
                    or_none(&member.id),
                    &member.endpoint,
                    role,
                    or_none(&member.version),
                    &disk,
                    &behind,
                ]));
            }
            text.push_str(&table(&rows));
        }
    }
    for election in &cluster.elections {
        writeln!(text, "leader of {}: {}", election.name, or_none(&election.leader))?;
    }
    Ok(())
}

fn backup(cluster: &ClusterStatus, text: &mut String) -> std::fmt::Result {
    let last = match &cluster.last_backup {
        // It cannot be read.
        None if cluster.store.is_none() => return writeln!(text, "last backup: unknown\n"),
        None => return writeln!(text, "last backup: never\n"),
        Some(last) => last,
    };
    if last.error.as_deref().is_none_or(str::is_empty) {
        return writeln!(text, "last backup: {}\n", described(last));
    }
    writeln!(text, "last backup: {} failed", last.time)?;
    match &cluster.last_good_backup {
        Some(good) => writeln!(text, "last good backup: {}\n", described(good)),
        None => writeln!(text, "last good backup: none\n"),
    }
}

fn described(backup: &LastBackup) -> String {
    let LastBackup { time, revision, bytes, location, .. } = backup;
    format!("{time} at revision {revision}, {}, {location}", size(*bytes))
}

fn certificates(cluster: &ClusterStatus, now: Timestamp) -> String {
    let mut rows = vec![row(["CERTIFICATE", "SERVER", "DAYS LEFT", "EXPIRES"])];
    for server in &cluster.servers {
        for certificate in &server.certificates {
            let until = Timestamp::from_second(certificate.info.not_after);
            let until = until.map(|until| until.to_string()).unwrap_or_default();
            let left = certificate.info.days_left(now.as_second()).to_string();
            rows.push(row([&certificate.file, &server.address, &left, &until]));
        }
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_store::{Engine, StoreStatus};

    fn shown(cluster: ClusterStatus) -> String {
        let servers = vec![ServerRow { address: "10.0.0.1:6443".into(), ..ServerRow::default() }];
        text(&ClusterStatus { servers, ..cluster }, Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn the_last_good_backup_is_shown_beside_one_that_failed() {
        let good = LastBackup {
            time: "monday".into(),
            revision: 7,
            location: "/b/1".into(),
            ..LastBackup::default()
        };
        let failed =
            LastBackup { time: "tuesday".into(), error: Some("full".into()), ..LastBackup::default() };
        let (problems, members) = (Vec::new(), Vec::new());
        let store = StoreStatus { engine: Engine::Etcd, revision: 9, size: 0, in_use: 0, problems, members };
        let with = |last: Option<&LastBackup>, good: Option<&LastBackup>| {
            let (last_backup, last_good_backup) = (last.cloned(), good.cloned());
            shown(ClusterStatus {
                last_backup,
                last_good_backup,
                store: Some(store.clone()),
                ..ClusterStatus::default()
            })
        };
        assert!(with(None, None).contains("last backup: never\n"));
        assert!(with(Some(&good), Some(&good)).contains("last backup: monday at revision 7, 0 B, /b/1\n"));
        let both = with(Some(&failed), Some(&good));
        assert!(
            both.contains("last backup: tuesday failed\nlast good backup: monday at revision 7"),
            "{both}"
        );
        assert!(with(Some(&failed), None).contains("last good backup: none\n"));
    }

    #[test]
    fn loopback_is_no_endpoint() {
        let said = |address: &str, endpoints: &[&str]| {
            let servers = vec![ServerRow { address: address.into(), ..ServerRow::default() }];
            let endpoints = endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect();
            super::endpoints(&ClusterStatus { servers, endpoints, ..ClusterStatus::default() })
        };
        let loopback = "none: pods do not reach 127.0.0.1:6443, see server --advertise";
        assert_eq!(said("127.0.0.1:6443", &[]), loopback);
        assert_eq!(said("127.0.0.1:6443", &["10.0.0.1"]), "10.0.0.1");
        assert_eq!(said("10.0.0.1:6443", &[]), "none");
    }

    #[test]
    fn without_a_store_the_rest_is_shown() {
        let shown = shown(ClusterStatus { problems: vec!["no majority".into()], ..ClusterStatus::default() });
        for part in ["Kubernetes unknown", "10.0.0.1:6443", "last backup: unknown", "problem: no majority"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
