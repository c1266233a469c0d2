//! Owner, mode, time and extended attributes of unpacked files.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::AtFlags,
    sys::{
        stat::{FchmodatFlags, Mode, UtimensatFlags, fchmod, fchmodat, futimens, utimensat},
        time::TimeSpec,
    },
    unistd::{Gid, Uid, fchown, fchownat},
};
use tar::Entry;

/// Allows capabilities, ACLs and user attributes. Others (`trusted.overlay`, `security.selinux`) would control the
/// overlay mount or a security module of the host.
fn may_be_set(name: &[u8]) -> bool {
    let listed: [&[u8]; 3] =
        [b"security.capability", b"system.posix_acl_access", b"system.posix_acl_default"];
    listed.contains(&name) || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
}

/// Metadata of a tar entry.
pub(super) struct Attributes {
    uid: Uid,
    gid: Gid,
    pub mode: u32,
    pub mtime: i64,
    xattrs: Vec<(OsString, Vec<u8>)>,
}

impl Attributes {
    pub(super) fn of<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<Self> {
        let mut xattrs = Vec::new();
        if let Some(extensions) = entry.pax_extensions()? {
            for extension in extensions {
                let extension = extension?;
                if let Some(name) = extension.key_bytes().strip_prefix(b"SCHILY.xattr.")
                    && may_be_set(name)
                {
                    xattrs.push((OsString::from_vec(name.to_vec()), extension.value_bytes().to_vec()));
                }
            }
        }
        let header = entry.header();
        let id = |value: u64| u32::try_from(value).map_err(|_| io::Error::other("owner out of range"));
        Ok(Attributes {
            uid: Uid::from_raw(id(header.uid()?)?),
            gid: Gid::from_raw(id(header.gid()?)?),
            mode: header.mode()? & 0o7777,
            mtime: i64::try_from(header.mtime().unwrap_or(0)).unwrap_or(0),
            xattrs,
        })
    }

    /// Owner first: changing it clears setuid bits and capabilities.
    pub(super) fn apply_fd(&self, fd: &(impl AsFd + AsRawFd), is_root: bool) -> io::Result<()> {
        fchown(fd, Some(self.uid), Some(self.gid))?;
        fchmod(fd, Mode::from_bits_truncate(self.mode))?;
        if !self.xattrs.is_empty() {
            self.apply_xattrs(Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd())), true)?;
        }
        if !is_root {
            let time = TimeSpec::new(self.mtime, 0);
            futimens(fd, &time, &time)?;
        }
        Ok(())
    }

    /// For links and devices, which must not be opened. Links have no mode.
    pub(super) fn apply_at(&self, directory: &OwnedFd, name: &OsStr, with_mode: bool) -> io::Result<()> {
        fchownat(directory, name, Some(self.uid), Some(self.gid), AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if with_mode {
            fchmodat(directory, name, Mode::from_bits_truncate(self.mode), FchmodatFlags::FollowSymlink)?;
        }
        self.apply_xattrs(&fd_path(directory).join(name), false)?;
        let time = TimeSpec::new(self.mtime, 0);
        Ok(utimensat(directory, name, &time, &time, UtimensatFlags::NoFollowSymlink)?)
    }

    fn apply_xattrs(&self, path: &Path, follow: bool) -> io::Result<()> {
        for (name, value) in &self.xattrs {
            let set =
                if follow { xattr::set_deref(path, name, value) } else { xattr::set(path, name, value) };
            match set {
                // Attributes that the file system does not support are skipped, as tar does.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTSUP | libc::EPERM)) => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// A descriptor by path.
pub(super) fn fd_path(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_own_attributes_stay_its_own() {
        for (name, may) in [
            ("user.flavour", true),
            ("security.capability", true),
            ("system.posix_acl_access", true),
            ("user.overlay.opaque", false),
            ("trusted.overlay.redirect", false),
            ("trusted.anything", false),
            ("security.selinux", false),
            ("security.ima", false),
            ("system.nfs4_acl", false),
        ] {
            assert_eq!(may_be_set(name.as_bytes()), may, "{name}");
        }
    }
}
