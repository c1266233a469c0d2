//! Resolves the user of a container: ids from the pod, names from the image's passwd and group files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use coracle_proto::cri::{LinuxContainerSecurityContext, SupplementalGroupsPolicy};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::spec::User;
use coracle_host_dir::open_regular;

/// Larger account files count as empty: a truncated last row would be misread.
const MAX_FILE: u64 = 1 << 20;

/// What errors call the user in the configuration of an image.
const IMAGE_USER: &str = "user of the image";

/// A user that the image does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such user.
    #[error("unable to find user {0}: no matching entries in passwd file")]
    User(String),
    /// A number that no user or group can have.
    #[error("{field}: {value} is not the number of a user or group")]
    Number {
        /// Where it is given.
        field: &'static str,
        /// The number.
        value: i64,
    },
    /// A group without a user.
    #[error("user group is specified without user")]
    GroupAlone,
    /// No such group.
    #[error("unable to find group {0}: no matching entries in group file")]
    Group(String),
}

/// Name and gid of a uid in the image.
type Known<'a> = (&'a str, u32);

/// The account files of a root filesystem.
#[derive(Debug, Default)]
pub struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    /// Reads the files, never outside `rootfs`; missing, oversized and special ones count as empty.
    pub fn read(rootfs: &Path) -> Self {
        Self { passwd: read_in(rootfs, "etc/passwd"), group: read_in(rootfs, "etc/group") }
    }

    fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
        text.lines().map(|line| line.split(':').collect())
    }

    /// Name, uid and gid of every user.
    fn users(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        Self::rows(&self.passwd)
            .filter(|r| r.len() >= 4)
            .filter_map(|r| Some((r[0], r[2].parse().ok()?, r[3].parse().ok()?)))
    }

    /// The uid that `wanted` stands for, and the name and gid of the user that has it. A number is always that uid,
    /// even if the image has a user of that name.
    fn user(&self, field: &'static str, wanted: &str) -> Result<(u32, Option<Known<'_>>), Error> {
        if let Some(uid) = numeric(field, wanted)? {
            let known = self.users().find(|(_, id, _)| *id == uid);
            return Ok((uid, known.map(|(name, _, gid)| (name, gid))));
        }
        let known = self.users().find(|(name, ..)| *name == wanted);
        let (name, uid, gid) = known.ok_or_else(|| Error::User(wanted.to_owned()))?;
        Ok((uid, Some((name, gid))))
    }

    /// The gid that `wanted` stands for. A number is always that gid.
    fn group(&self, wanted: &str) -> Result<u32, Error> {
        if let Some(gid) = numeric(IMAGE_USER, wanted)? {
            return Ok(gid);
        }
        let mut rows = Self::rows(&self.group).filter(|r| r.len() >= 3 && r[0] == wanted);
        rows.find_map(|r| r[2].parse().ok()).ok_or_else(|| Error::Group(wanted.to_owned()))
    }

    fn groups_of<'a>(&'a self, user: &'a str) -> impl Iterator<Item = u32> + 'a {
        Self::rows(&self.group)
            .filter(move |r| {
                r.len() >= 4 && r[3].split(',').any(|member| !member.is_empty() && member == user)
            })
            .filter_map(|r| r[2].parse().ok())
    }
}

/// The id that a text is, or nothing if it is a name. Image status reports any 64-bit number as a uid, so such a text must
/// never be looked up as a name here.
fn numeric(field: &'static str, text: &str) -> Result<Option<u32>, Error> {
    text.parse().ok().map(|value| id(field, value)).transpose()
}

/// A number of the field as a uid or gid. The largest one is none: to the kernel it means that the id stays as it is.
pub(crate) fn id(field: &'static str, value: i64) -> Result<u32, Error> {
    let id = u32::try_from(value).ok().filter(|id| *id != u32::MAX);
    id.ok_or(Error::Number { field, value })
}

fn read_in(rootfs: &Path, file: &str) -> String {
    let read = || -> Option<String> {
        let root = File::open(rootfs).ok()?;
        // A link in the image must not lead to the host's files. Opening a FIFO would wait, and opening a device would
        // reach the host's: only a regular file is opened.
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let found = openat2(&root, file, how).ok()?;
        let mut text = String::new();
        let file = open_regular(&found, OFlag::O_RDONLY).ok()?;
        file.take(MAX_FILE + 1).read_to_string(&mut text).ok()?;
        (text.len() as u64 <= MAX_FILE).then_some(text)
    };
    read().unwrap_or_default()
}

/// Resolves the pod's security context, with the image's `user[:group]` as default.
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
    let (field, wanted, image_group) = match (&security.run_as_user, &*security.run_as_username) {
        (Some(uid), _) => ("run_as_user", id("run_as_user", uid.value)?.to_string(), None),
        (None, "") => (IMAGE_USER, image_user.to_owned(), image_group.filter(|g| !g.is_empty())),
        (None, name) => ("run_as_username", name.to_owned(), None),
    };
    let wanted = if wanted.is_empty() { "0".to_owned() } else { wanted };
    let (uid, known) = accounts.user(field, &wanted)?;
    let gid = match (&security.run_as_group, image_group) {
        (Some(gid), _) => id("run_as_group", gid.value)?,
        (None, Some(group)) => accounts.group(group)?,
        (None, None) => known.map_or(0, |(_, gid)| gid),
    };
    let mut groups = vec![gid];
    if security.supplemental_groups_policy() == SupplementalGroupsPolicy::Merge
        && let Some((name, _)) = known
    {
        groups.extend(accounts.groups_of(name));
    }
    for group in &security.supplemental_groups {
        groups.push(id("supplemental_groups", *group)?);
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
        let number = |field, value| Err(Error::Number { field, value });
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
            (context(Some(-1), None, &[]), "", number("run_as_user", -1)),
            (context(Some((1 << 32) - 1), None, &[]), "", number("run_as_user", (1 << 32) - 1)),
            (context(Some(1), Some(1 << 32), &[]), "", number("run_as_group", 1 << 32)),
            (context(None, None, &[-2]), "", number("supplemental_groups", -2)),
            (context(None, None, &[]), "4294967296", number(IMAGE_USER, 1 << 32)),
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
        assert!(Accounts::read(&rootfs).user(IMAGE_USER, "evil").is_err());
        std::fs::remove_file(rootfs.join("etc/passwd")).unwrap();
        std::fs::write(rootfs.join("real"), "good:x:1:2::/:\n").unwrap();
        std::os::unix::fs::symlink("/real", rootfs.join("etc/passwd")).unwrap();
        assert_eq!(Accounts::read(&rootfs).user(IMAGE_USER, "good"), Ok((1, Some(("good", 2)))));
    }

    #[test]
    fn a_number_is_never_the_name_of_another_user_or_group() {
        let accounts = Accounts {
            passwd: "1000:x:0:0::/:/bin/sh\n4294967296:x:0:0::/:\n-1:x:0:0::/:\nreal:x:1000:5::/:\n\
                     :x:1001:6::/:\n"
                .into(),
            group: "7:x:0:\nwheel:x:9:1000\nown:x:10:real\nempty:x:11:\n".into(),
        };
        let user = |uid, gid, groups: &[u32]| Ok(User { uid, gid, groups: groups.to_vec() });
        let none = context(None, None, &[]);
        let number = |value| Err(Error::Number { field: IMAGE_USER, value });
        for (security, image, expected) in [
            (context(Some(1000), None, &[]), "", user(1000, 5, &[5, 10])),
            (none.clone(), "1000", user(1000, 5, &[5, 10])),
            (none.clone(), "1000:7", user(1000, 7, &[7, 10])),
            (none.clone(), "real:07", user(1000, 7, &[7, 10])),
            (none.clone(), "01000", user(1000, 5, &[5, 10])),
            (none.clone(), "1001", user(1001, 6, &[6])),
            (none.clone(), "4294967296", number(1 << 32)),
            (none.clone(), "-1", number(-1)),
            (none, "real:4294967296", number(1 << 32)),
        ] {
            assert_eq!(resolve(&accounts, &security, image), expected, "{image}");
        }
    }

    #[test]
    fn account_files_that_are_no_files_or_too_large_count_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let etc = dir.path().join("etc");
        std::fs::create_dir(&etc).unwrap();
        nix::unistd::mkfifo(&etc.join("passwd"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let row = "good:x:1:2::/:\n";
        std::fs::write(etc.join("group"), row.repeat(MAX_FILE as usize / row.len() + 1)).unwrap();
        let (done, wait) = std::sync::mpsc::channel();
        let root = dir.path().to_owned();
        std::thread::spawn(move || done.send(Accounts::read(&root)));
        let read = wait.recv_timeout(std::time::Duration::from_secs(20)).expect("a FIFO makes nobody wait");
        assert_eq!((read.passwd.as_str(), read.group.as_str()), ("", ""));
    }
}
