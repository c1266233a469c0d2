//! Gives a command the AppArmor profile and SELinux label of its container; it does not run without them.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use super::Request;

const APPARMOR: &str = "thread-self/attr/apparmor/exec";
/// SELinux, and AppArmor of kernels before 5.1.
const FIRST: &str = "thread-self/attr/exec";

/// Why a label could not be set.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// The kernel rejected the SELinux label.
    #[error("SELinux label {label:?}")]
    Selinux {
        /// The container's.
        label: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The kernel rejected the AppArmor profile.
    #[error("AppArmor profile {profile:?}")]
    Apparmor {
        /// The container's.
        profile: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The host's `/proc`. The container's `/proc` is not trusted.
pub struct Labels {
    proc: Option<File>,
}

impl Labels {
    /// Opens the host's `/proc`; call it before joining the container's mount namespace.
    pub fn open(request: &Request) -> io::Result<Self> {
        if request.apparmor.is_none() && request.selinux.is_none() {
            return Ok(Self { proc: None });
        }
        let proc = File::open("/proc")?;
        if fstatfs(&proc)?.filesystem_type() != PROC_SUPER_MAGIC {
            return Err(io::Error::other("not a proc file system"));
        }
        Ok(Self { proc: Some(proc) })
    }

    /// Sets the labels that the kernel applies at the next exec.
    pub fn take(&self, request: &Request) -> Result<(), LabelError> {
        let Some(proc) = &self.proc else { return Ok(()) };
        if let Some(label) = &request.selinux {
            let refused = |source| LabelError::Selinux { label: label.clone(), source };
            write(proc, FIRST, label).map_err(refused)?;
        }
        if let Some(profile) = &request.apparmor {
            let text = format!("exec {profile}");
            let written = match write(proc, APPARMOR, &text) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => write(proc, FIRST, &text),
                other => other,
            };
            written.map_err(|source| LabelError::Apparmor { profile: profile.clone(), source })?;
        }
        Ok(())
    }
}

/// One write: the kernel takes each write as a complete label.
fn write(dir: &impl AsFd, path: &str, text: &str) -> io::Result<()> {
    let file = openat(dir, path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    match File::from(file).write(text.as_bytes())? {
        n if n == text.len() => Ok(()),
        _ => Err(Errno::EIO.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn labels_are_written_whole_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let attributes = dir.path().join("thread-self/attr");
        fs::create_dir_all(&attributes).unwrap();
        let request =
            Request { apparmor: Some("mine".into()), selinux: Some("u:r:t:s0".into()), ..Request::default() };
        let labels = Labels { proc: Some(File::open(dir.path()).unwrap()) };
        assert!(
            labels.take(&request).unwrap_err().to_string().contains("SELinux label \"u:r:t:s0\""),
            "this kernel has none"
        );
        fs::create_dir(attributes.join("apparmor")).unwrap();
        for file in ["exec", "apparmor/exec"] {
            fs::write(attributes.join(file), "").unwrap();
        }
        labels.take(&request).unwrap();
        assert_eq!(fs::read_to_string(attributes.join("exec")).unwrap(), "u:r:t:s0");
        assert_eq!(fs::read_to_string(attributes.join("apparmor/exec")).unwrap(), "exec mine");
    }

    #[test]
    fn without_labels_nothing_is_opened() {
        assert!(Labels::open(&Request::default()).unwrap().proc.is_none());
        let request = Request { apparmor: Some("x".into()), ..Request::default() };
        assert!(Labels::open(&request).unwrap().proc.is_some());
    }
}
