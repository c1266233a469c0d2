//! The user who ran a command through sudo, for files that are theirs: they are written with the rights of that user, so that
//! nothing in the user's home directory can lead root elsewhere.

use anyhow::Context as _;
use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setgid, setuid};
use std::ffi::CString;
use std::path::PathBuf;

/// A user who became root by sudo.
#[derive(Debug, Clone)]
pub(crate) struct Invoker {
    name: CString,
    uid: Uid,
    gid: Gid,
    /// Home directory.
    pub(crate) home: PathBuf,
}

/// The user who ran sudo; `None` without sudo, and if root did.
pub(crate) fn invoker() -> Option<Invoker> {
    let uid = std::env::var("SUDO_UID").ok()?.parse().ok()?;
    if !geteuid().is_root() || uid == 0 {
        return None;
    }
    let user = User::from_uid(Uid::from_raw(uid)).ok()??;
    Some(Invoker { name: CString::new(user.name).ok()?, uid: user.uid, gid: user.gid, home: user.dir })
}

impl Invoker {
    /// Gives up root for good, in this process.
    pub(crate) fn assume(&self) -> anyhow::Result<()> {
        let become_user = || {
            initgroups(&self.name, self.gid)?;
            setgid(self.gid)?;
            setuid(self.uid)
        };
        become_user().with_context(|| format!("become user {}", self.uid))
    }

    /// Runs a program with the rights of the user.
    pub(crate) fn runs(&self, command: &mut std::process::Command) {
        use std::os::unix::process::CommandExt;
        command.uid(self.uid.as_raw()).gid(self.gid.as_raw()).env("HOME", &self.home);
        command.env("XDG_RUNTIME_DIR", format!("/run/user/{}", self.uid));
    }
}
