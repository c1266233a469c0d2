//! What a server needs to run a member of etcd: the program, in a version that knows learners.

use super::finding::Finding;
use crate::etcd_member::{MemberError, Program, STATE_FILE};
use coracle_cli::causes;
use std::path::Path;

const PART: &str = "program";
const ADVICE: &str =
    "apt-get install etcd-server (and `systemctl disable --now etcd`: the server starts its own)";

/// Whether the server of this data directory runs, or is to run, a member.
pub fn is_needed(datastore: Option<&str>, data_dir: &Path) -> bool {
    match datastore {
        Some(datastore) => datastore == "etcd",
        None => data_dir.join(STATE_FILE).exists(),
    }
}

/// Whether the program is there.
pub fn findings() -> Vec<Finding> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let found = runtime.map(|runtime| runtime.block_on(Program::find()));
    vec![match found {
        Ok(found) => judge(found),
        Err(error) => Finding::missing(PART, "etcd", error.to_string(), ADVICE),
    }]
}

fn judge(found: Result<Program, MemberError>) -> Finding {
    match found {
        Ok(program) => {
            Finding::ok(PART, "etcd", format!("{}, version {}", program.path.display(), program.version))
        }
        Err(error) => Finding::missing(PART, "etcd", causes::chain(&error).to_string(), ADVICE),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Outcome;
    use super::*;

    #[test]
    fn a_server_needs_it_when_it_runs_a_member() {
        let dir = tempfile::tempdir().unwrap();
        assert!(is_needed(Some("etcd"), dir.path()));
        assert!(!is_needed(Some("etcd://a:1"), dir.path()) && !is_needed(None, dir.path()));
        std::fs::write(dir.path().join(STATE_FILE), "").unwrap();
        assert!(is_needed(None, dir.path()) && !is_needed(Some("embedded"), dir.path()));
    }

    #[test]
    fn what_is_missing_comes_with_advice() {
        let missing = judge(Err(MemberError::NoProgram));
        assert_eq!(missing.outcome, Outcome::Missing);
        assert!(missing.seen.contains("not installed") && missing.advice.contains("etcd-server"));
    }
}
