//! The status of a cluster as text.

use super::assess::is_late;
use super::collect::ClusterStatus;
use crate::output::table;
use jiff::Timestamp;
use std::fmt::Write as _;

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
        writeln!(text, "Kubernetes {}\n", cluster.kubernetes_version)?;
        text.push_str(&servers(cluster, now));
        writeln!(text, "\nendpoints of default/kubernetes: {}\n", or_none(&cluster.endpoints.join(", ")))?;
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

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
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
    match &cluster.last_backup {
        Some(last) => writeln!(
            text,
            "last backup: {} at revision {}, {}, {}\n",
            last.time,
            last.revision,
            size(last.bytes),
            last.location
        ),
        None => writeln!(text, "last backup: never\n"),
    }
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
