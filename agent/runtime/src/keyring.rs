//! The session keyring that a container and its commands share, as those of runc do.

use coracle_keeper::enter::confine;
use nix::errno::Errno;

/// What a new session keyring allows, and searching for its owner: commands find it by its name.
const PERMISSIONS: libc::c_ulong = 0x3f13_0000 | 0x0008_0000;

/// The name of the keyring of a container.
pub fn name(id: &str) -> String {
    format!("_ses.{id}")
}

/// Joins the keyring of this name, which is made if it is not there. It belongs to the user namespace of this process.
pub fn join(name: &str) -> Result<(), Errno> {
    confine::join_keyring(Some(name))?;
    match share() {
        // The kernel has no keyrings, or the keyring is another user's.
        Ok(()) | Err(Errno::ENOSYS | Errno::EACCES) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn share() -> Result<(), Errno> {
    const KEYCTL_SETPERM: libc::c_int = 5;
    const KEY_SPEC_SESSION_KEYRING: libc::c_long = -3;
    // SAFETY: a system call of numbers.
    #[allow(unsafe_code)]
    let result =
        unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_SETPERM, KEY_SPEC_SESSION_KEYRING, PERMISSIONS) };
    Errno::result(result).map(drop)
}
