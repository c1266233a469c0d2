//! Programs that are run, and where they are to be had.

use super::finding::Finding;
use super::role::Role;
use crate::executables::{dirs, find};
use std::path::PathBuf;

const PART: &str = "program";

struct Program {
    /// Any of these will do.
    names: &'static [&'static str],
    advice: &'static str,
    purpose: &'static str,
    optional: bool,
    roles: &'static [Role],
}

const PROGRAMS: [Program; 8] = [
    Program {
        names: &["runc", "crun", "youki"],
        advice: "apt-get install runc",
        purpose: "starts containers",
        optional: false,
        roles: &[Role::Up, Role::Agent],
    },
    Program {
        names: &["coracle-runtime"],
        advice: "scripts/install places it beside coracle-agent",
        purpose: "starts containers of RuntimeClasses with the handler `coracle`",
        optional: true,
        roles: &[Role::Up, Role::Agent],
    },
    Program {
        names: &["nsenter"],
        advice: "apt-get install util-linux",
        purpose: "namespaces of nodes",
        optional: false,
        roles: &[Role::Up],
    },
    Program {
        names: &["unshare"],
        advice: "apt-get install util-linux",
        purpose: "namespaces of nodes",
        optional: false,
        roles: &[Role::Up],
    },
    Program {
        names: &["slirp4netns"],
        advice: "apt-get install slirp4netns",
        purpose: "the nodes' way out, to pull images",
        optional: true,
        roles: &[Role::Up],
    },
    Program {
        names: &["nft"],
        advice: "apt-get install nftables",
        purpose: "the nodes' way out of `coracle up`, and to look at the rules of services",
        optional: true,
        roles: &[Role::Up, Role::Agent],
    },
    Program {
        names: &["conntrack"],
        advice: "apt-get install conntrack",
        purpose: "to look at connections",
        optional: true,
        roles: &[Role::Agent],
    },
    Program {
        names: &["kubectl"],
        advice: "scripts/kubectl fetches one; or apt-get install kubectl, from Debian 13 on (1.27 or later is needed)",
        purpose: "to use the cluster",
        optional: true,
        roles: &[Role::Up],
    },
];

/// What is there and what is not.
pub fn findings(role: Role) -> Vec<Finding> {
    // The agent finds programs of ours beside its own.
    let own = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
    let dirs: Vec<PathBuf> = dirs().into_iter().chain(own).collect();
    let wanted = PROGRAMS.iter().filter(|program| program.roles.contains(&role));
    wanted.map(|program| judge(program, find(program.names, &dirs))).collect()
}

/// Where a program is to be had.
pub fn advice(name: &str) -> &'static str {
    PROGRAMS.iter().find(|program| program.names.contains(&name)).map_or("", |program| program.advice)
}

fn judge(program: &Program, found: Option<PathBuf>) -> Finding {
    let name = program.names.join(" or ");
    let advice = program.advice;
    let seen = format!("not in PATH: {}", program.purpose);
    match found {
        Some(path) => Finding::ok(PART, name, path.display().to_string()),
        None if program.optional => Finding::limited(PART, name, seen, advice),
        None => Finding::missing(PART, name, seen, advice),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Outcome;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_what_can_be_run_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crun");
        std::fs::write(&path, "").unwrap();
        let dirs = [dir.path().to_owned()];
        let runtime = &PROGRAMS[0];
        let missing = judge(runtime, find(runtime.names, &dirs));
        assert_eq!((missing.outcome, missing.advice.as_str()), (Outcome::Missing, "apt-get install runc"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(judge(runtime, find(runtime.names, &dirs)).seen, path.display().to_string());
    }
}
