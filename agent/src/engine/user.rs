//! Who a container runs as: numbers from the pod, names from the image's passwd and group files.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;

use coracle_proto::cri::{LinuxContainerSecurityContext, SupplementalGroupsPolicy};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::spec::User;

/// A user that the image does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such user.
    #[error("unable to find user {0}: no matching entries in passwd file")]
    User(String),
    /// A number that no user or group can have.
    #[error("{0} is not the number of a user or group")]
    Number(i64),
    /// Whose group it is must be said, too.
    #[error("user group is specified without user")]
    GroupAlone,
    /// No such group.
    #[error("unable to find group {0}: no matching entries in group file")]
    Group(String),
}

/// The account files of a root filesystem.
#[derive(Debug, Default)]
pub struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    /// Reads the files, never outside `rootfs`; absent or endless ones count as empty.
    pub fn read(rootfs: &Path) -> Self {
        Self { passwd: read_in(rootfs, "etc/passwd"), group: read_in(rootfs, "etc/group") }
    }

    fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
        text.lines().map(|line| line.split(':').collect())
    }

    /// Name, uid and gid by name or by uid.
    fn user(&self, wanted: &str) -> Option<(&str, u32, u32)> {
        let row = Self::rows(&self.passwd).find(|r| r.len() >= 4 && (r[0] == wanted || r[2] == wanted))?;
        Some((row[0], row[2].parse().ok()?, row[3].parse().ok()?))
    }

    fn group(&self, wanted: &str) -> Option<u32> {
        if let Ok(gid) = wanted.parse() {
            return Some(gid);
        }
        Self::rows(&self.group).find(|r| r.len() >= 3 && r[0] == wanted)?[2].parse().ok()
    }

    fn groups_of<'a>(&'a self, user: &'a str) -> impl Iterator<Item = u32> + 'a {
        Self::rows(&self.group)
            .filter(move |r| r.len() >= 4 && r[3].split(',').any(|member| member == user))
            .filter_map(|r| r[2].parse().ok())
    }
}

fn read_in(rootfs: &Path, file: &str) -> String {
    let read = || -> Option<String> {
        let root = File::open(rootfs).ok()?;
        // A link in the image must not lead to the host's files.
        let how =
            OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
        let found = openat2(&root, file, how).ok()?;
        debug_assert!(found.as_raw_fd() >= 0);
        let file = File::from(found);
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut text = String::new();
        file.take(1 << 20).read_to_string(&mut text).ok()?;
        Some(text)
    };
    read().unwrap_or_default()
}

/// Resolves the pod's wishes over the image's `user[:group]`.
pub fn resolve(
    accounts: &Accounts,
    security: &LinuxContainerSecurityContext,
    image_user: &str,
) -> Result<User, Error> {
    let (image_user, image_group) = match image_user.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (image_user, None),
    };
    if security.run_as_group.is_some()
        && security.run_as_user.is_none()
        && security.run_as_username.is_empty()
    {
        return Err(Error::GroupAlone);
    }
    let number = |value: i64| u32::try_from(value).map_err(|_| Error::Number(value));
    let (wanted, image_group) = match (&security.run_as_user, &*security.run_as_username) {
        (Some(uid), _) => (number(uid.value)?.to_string(), None),
        (None, "") => (image_user.to_owned(), image_group.filter(|g| !g.is_empty())),
        (None, name) => (name.to_owned(), None),
    };
    let wanted = if wanted.is_empty() { "0".to_owned() } else { wanted };
    let known = accounts.user(&wanted);
    let uid = match known {
        Some((_, uid, _)) => uid,
        None => wanted.parse().map_err(|_| Error::User(wanted.clone()))?,
    };
    let gid = match (&security.run_as_group, image_group) {
        (Some(gid), _) => number(gid.value)?,
        (None, Some(group)) => accounts.group(group).ok_or_else(|| Error::Group(group.to_owned()))?,
        (None, None) => known.map_or(0, |(_, _, gid)| gid),
    };
    let mut groups = vec![gid];
    if security.supplemental_groups_policy() == SupplementalGroupsPolicy::Merge
        && let Some((name, ..)) = known
    {
        groups.extend(accounts.groups_of(name));
    }
    for group in &security.supplemental_groups {
        groups.push(number(*group)?);
    }
    let mut seen = std::collections::BTreeSet::new();
    groups.retain(|g| seen.insert(*g));
    Ok(User { uid, gid, groups })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_proto::cri::Int64Value;

    fn accounts() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/sh\nnginx:x:101:102:n:/:/bin/false\nbad line\n".into(),
            group: "root:x:0:\nnginx:x:102:\nmail:x:8:nginx,other\n".into(),
        }
    }

    fn context(uid: Option<i64>, gid: Option<i64>, groups: &[i64]) -> LinuxContainerSecurityContext {
        LinuxContainerSecurityContext {
            run_as_user: uid.map(|value| Int64Value { value }),
            run_as_group: gid.map(|value| Int64Value { value }),
            supplemental_groups: groups.to_vec(),
            ..Default::default()
        }
    }

    #[test]
    fn numbers_and_names() {
        let user = |uid, gid, groups: &[u32]| Ok(User { uid, gid, groups: groups.to_vec() });
        for (security, image, expected) in [
            (context(None, None, &[]), "", user(0, 0, &[0])),
            (context(None, None, &[]), "nginx", user(101, 102, &[102, 8])),
            (context(None, None, &[]), "nginx:mail", user(101, 8, &[8])),
            (context(None, None, &[]), "101", user(101, 102, &[102, 8])),
            (context(None, None, &[]), "5000:6000", user(5000, 6000, &[6000])),
            (context(Some(101), None, &[9]), "ignored:ignored", user(101, 102, &[102, 8, 9])),
            (context(Some(7), Some(9), &[9, 11]), "nginx", user(7, 9, &[9, 11])),
            (context(None, None, &[]), "nobody-here", Err(Error::User("nobody-here".into()))),
            (context(None, None, &[]), "nginx:none", Err(Error::Group("none".into()))),
            (context(None, Some(9), &[]), "nginx", Err(Error::GroupAlone)),
            (context(Some(-1), None, &[]), "", Err(Error::Number(-1))),
            (context(Some(1), Some(1 << 32), &[]), "", Err(Error::Number(1 << 32))),
            (context(None, None, &[-2]), "", Err(Error::Number(-2))),
        ] {
            assert_eq!(resolve(&accounts(), &security, image), expected, "{image}");
        }
    }

    #[test]
    fn strict_groups_are_only_the_pod_s() {
        let mut security = context(Some(101), Some(5), &[7]);
        security.supplemental_groups_policy = SupplementalGroupsPolicy::Strict.into();
        assert_eq!(resolve(&accounts(), &security, "").unwrap().groups, [5, 7]);
    }

    #[test]
    fn account_files_are_read_inside_the_root_only() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "evil:x:1:1::/:\n").unwrap();
        let rootfs = dir.path().join("rootfs");
        std::fs::create_dir_all(rootfs.join("etc")).unwrap();
        std::os::unix::fs::symlink(&outside, rootfs.join("etc/passwd")).unwrap();
        assert!(Accounts::read(&rootfs).user("evil").is_none());
        std::fs::remove_file(rootfs.join("etc/passwd")).unwrap();
        std::fs::write(rootfs.join("real"), "good:x:1:2::/:\n").unwrap();
        std::os::unix::fs::symlink("/real", rootfs.join("etc/passwd")).unwrap();
        assert_eq!(Accounts::read(&rootfs).user("good"), Some(("good", 1, 2)));
    }
}
