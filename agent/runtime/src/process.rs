//! Settings of a process of the OCI configuration, in the form of the keeper.

use coracle_keeper::enter::{Capabilities, Request};
use libcontainer::capabilities::CapabilityExt;
use oci_spec::runtime::{self, LinuxCapabilities, Process};

use super::error::Error;

/// The request for a process: command, user, capabilities, labels. Where it runs is not in it.
pub fn request(process: &Process) -> Result<Request, Error> {
    let cwd = process.cwd();
    let cwd = cwd.to_str().ok_or_else(|| Error::Invalid { what: "cwd", value: cwd.display().to_string() })?;
    let user = process.user();
    let label = |label: &Option<String>| label.clone().filter(|text| !text.is_empty());
    Ok(Request {
        args: process.args().clone().unwrap_or_default(),
        env: process.env().clone().unwrap_or_default(),
        cwd: cwd.to_owned(),
        uid: user.uid(),
        gid: user.gid(),
        groups: user.additional_gids().clone().unwrap_or_default(),
        umask: user.umask(),
        capabilities: process.capabilities().as_ref().map(sets).unwrap_or_default(),
        no_new_privileges: process.no_new_privileges().unwrap_or(false),
        oom_score_adj: process.oom_score_adj(),
        apparmor: label(process.apparmor_profile()),
        selinux: label(process.selinux_label()),
        ..Request::default()
    })
}

fn sets(of: &LinuxCapabilities) -> Capabilities {
    let mask = |set: &Option<runtime::Capabilities>| {
        set.iter().flatten().fold(0, |mask, capability| mask | capability.to_cap().bitmask())
    };
    Capabilities {
        bounding: mask(of.bounding()),
        effective: mask(of.effective()),
        permitted: mask(of.permitted()),
        inheritable: mask(of.inheritable()),
        ambient: mask(of.ambient()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_process_keeps_its_settings() {
        let process: Process = serde_json::from_value(json!({
            "user": { "uid": 7, "gid": 8, "additionalGids": [9], "umask": 63 },
            "args": ["a", "b"], "env": ["A=b"], "cwd": "/srv", "noNewPrivileges": true, "oomScoreAdj": 5,
            "selinuxLabel": "", "apparmorProfile": "p",
            "capabilities": { "bounding": ["CAP_CHOWN", "CAP_KILL"], "effective": ["CAP_KILL"] },
        }))
        .unwrap();
        let request = request(&process).unwrap();
        assert_eq!((request.uid, request.gid, request.groups, request.umask), (7, 8, vec![9], Some(63)));
        assert_eq!((request.args.len(), &*request.cwd, request.oom_score_adj), (2, "/srv", Some(5)));
        assert_eq!((request.selinux, request.apparmor.as_deref()), (None, Some("p")));
        assert!(request.no_new_privileges);
        let sets = request.capabilities;
        assert_eq!((sets.bounding, sets.effective, sets.permitted), (0b10_0001, 0b10_0000, 0));
    }
}
