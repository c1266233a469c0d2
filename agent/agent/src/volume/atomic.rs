//! Writes a volume's files so that a reader sees either all old or all new ones.
//!
//! Files live in a dated directory, `..data` is a symlink to it that is replaced by a rename, and each visible name
//! is a symlink through `..data`. A crash at any point leaves the old view or the new one.
//!
//! A container can have put anything in place of any of these: nothing here follows a link.

use coracle_cli::causes;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::content::{File, Payload};
use super::{FileError, io};
use coracle_host_dir::{HostDir, Limits, names};

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";
/// What begins like this is not visible to programs that list the volume's files.
const HIDDEN: &str = "..";

/// Makes `path` show exactly `payload`; says whether anything changed. Safe to repeat.
///
/// `nested` are directories that other volumes of the pod are mounted on: containers cannot make them, the volume is
/// read-only to them.
pub fn write(
    path: &Path,
    payload: &Payload,
    group: Option<u32>,
    nested: &BTreeSet<PathBuf>,
) -> Result<bool, FileError> {
    let dir = HostDir::create(path).map_err(io("create", path))?;
    update(&dir, payload, group, nested).map_err(io("write", path))
}

fn update(
    dir: &HostDir,
    payload: &Payload,
    group: Option<u32>,
    nested: &BTreeSet<PathBuf>,
) -> io::Result<bool> {
    let mode = if group.is_some() { 0o2755 } else { 0o755 };
    own(dir, group, mode)?;
    for path in nested {
        visible(names(path)?.first().copied())?;
        dir.make_dirs(path, 0o755)?;
    }
    let old = dir.read_link(DATA).ok().and_then(|old| dir.open_dir(old).ok());
    if old.is_some_and(|old| same(old, payload, group).unwrap_or(false)) {
        links(dir, payload, nested)?;
        return Ok(false);
    }
    let stamp = jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S").to_string();
    let name = format!("{HIDDEN}{stamp}.{}", rand::random::<u32>());
    let fresh = dir.make_new_dir(&name, mode)?;
    own(&fresh, group, mode)?;
    for (path, file) in payload {
        let names = names(Path::new(path))?;
        visible(names.first().copied())?;
        let (name, parents) = names.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let owner = (file.owner, group);
        match parents {
            [] => fresh.write_new(name, &file.data, owner, bits(file, group))?,
            parents => {
                let parent = fresh.make_dirs(&parents.iter().collect::<PathBuf>(), 0o755)?;
                parent.write_new(name, &file.data, owner, bits(file, group))?;
            }
        }
    }
    dir.remove_tree(DATA_NEW)?;
    dir.symlink(&name, DATA_NEW)?;
    if dir.rename(DATA_NEW, DATA).is_err() {
        // Something that is not a link has its name.
        dir.remove_tree(DATA)?;
        dir.rename(DATA_NEW, DATA)?;
    }
    links(dir, payload, nested)?;
    remove_stale(dir, &name)?;
    Ok(true)
}

/// Mode of a file: a pod's group may read what its owner may.
fn bits(file: &File, group: Option<u32>) -> u32 {
    if group.is_some() { file.mode | 0o440 } else { file.mode }
}

/// A file must not take a name that this module uses.
fn visible(name: Option<&OsStr>) -> io::Result<()> {
    match name {
        Some(name) if !name.as_encoded_bytes().starts_with(HIDDEN.as_bytes()) => Ok(()),
        _ => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} cannot be the name of a file")))
        }
    }
}

fn own(dir: &HostDir, group: Option<u32>, mode: u32) -> io::Result<()> {
    let stat = dir.stat()?;
    if group.is_some_and(|group| group != stat.st_gid) {
        dir.chown(None, group)?;
    }
    // A change of group clears the set-group bit.
    if stat.st_mode & 0o7777 != mode || group.is_some_and(|group| group != stat.st_gid) {
        dir.chmod(mode)?;
    }
    Ok(())
}

/// Visible names: the first component of each path, linked through `..data`.
fn links(dir: &HostDir, payload: &Payload, nested: &BTreeSet<PathBuf>) -> io::Result<()> {
    let first = |path: &Path| path.iter().next().map(OsStr::to_owned);
    let wanted: BTreeSet<_> = payload.keys().filter_map(|path| first(Path::new(path))).collect();
    let mounted: BTreeSet<_> = nested.iter().filter_map(|path| first(path)).collect();
    for name in wanted.difference(&mounted) {
        let to = Path::new(DATA).join(name);
        if dir.read_link(name).is_ok_and(|old| old == to) {
            continue;
        }
        dir.remove_tree(name)?;
        dir.symlink(&to, name)?;
    }
    for name in dir.names()? {
        let name = name?;
        let hidden = name.as_encoded_bytes().starts_with(HIDDEN.as_bytes());
        if !hidden && !wanted.contains(&name) && !mounted.contains(&name) {
            // Directories stay: parts of the volume that a container was given.
            let _ = dir.remove_file(&name);
        }
    }
    Ok(())
}

/// Old dated directories, of this update or of one that a crash interrupted.
fn remove_stale(dir: &HostDir, current: &str) -> io::Result<()> {
    for name in dir.names()? {
        let name = name?;
        let hidden = name.as_encoded_bytes().starts_with(HIDDEN.as_bytes());
        if hidden
            && name != DATA
            && name != current
            && let Err(error) = dir.remove_tree(&name)
        {
            tracing::warn!(?name, error = %causes::chain(&error), "old files of a volume stay until its next update");
        }
    }
    Ok(())
}

/// Whether a directory has exactly these files.
fn same(dir: HostDir, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let mut files = 0;
    // Each file has its directories, at most, and an honest directory has nothing else.
    let parents: usize = payload.keys().map(|path| path.split('/').count()).sum();
    let limits = Limits { entries: parents as u64, ..Limits::default() };
    dir.try_clone()?.walk(limits, |dir, name| {
        let entry = dir.entry(name)?;
        files += usize::from(!entry.is_dir());
        if entry.is_dir() { entry.into_dir().map(Some) } else { Ok(None) }
    })?;
    if files != payload.len() {
        return Ok(false);
    }
    for (path, file) in payload {
        let mut found = dir.open_file_below(Path::new(path))?;
        if !is_as_wanted(&found.metadata()?, file, group) {
            return Ok(false);
        }
        let mut data = Vec::with_capacity(file.data.len());
        found.by_ref().take(file.data.len() as u64 + 1).read_to_end(&mut data)?;
        if data != file.data {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_as_wanted(meta: &std::fs::Metadata, file: &File, group: Option<u32>) -> bool {
    use std::os::unix::fs::MetadataExt;
    meta.mode() & 0o7777 == bits(file, group)
        && meta.len() == file.data.len() as u64
        && file.owner.is_none_or(|owner| owner == meta.uid())
        && group.is_none_or(|group| group == meta.gid())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn write(dir: &Path, payload: &Payload, group: Option<u32>) -> Result<bool, FileError> {
        super::write(dir, payload, group, &BTreeSet::new())
    }

    fn payload(files: &[(&str, &str, u32)]) -> Payload {
        files
            .iter()
            .map(|(path, data, mode)| {
                ((*path).to_owned(), File { data: data.as_bytes().to_vec(), mode: *mode, owner: None })
            })
            .collect()
    }

    #[test]
    fn replaces_everything_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("v");
        assert!(write(&dir, &payload(&[("a", "1", 0o644), ("d/e/f", "2", 0o400)]), None).unwrap());
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(dir.join("d/e/f")).unwrap(), "2");
        assert_eq!(fs::metadata(dir.join("d/e/f")).unwrap().mode() & 0o777, 0o400);
        let first = fs::read_link(dir.join(DATA)).unwrap();
        assert!(
            !write(&dir, &payload(&[("a", "1", 0o644), ("d/e/f", "2", 0o400)]), None).unwrap(),
            "unchanged"
        );
        assert_eq!(fs::read_link(dir.join(DATA)).unwrap(), first);
        let open = fs::File::open(dir.join("a")).unwrap();
        assert!(write(&dir, &payload(&[("a", "3", 0o644)]), None).unwrap());
        drop(open);
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "3");
        assert!(!dir.join("d").exists() && !dir.join(&first).exists());
        assert!(write(&dir, &Payload::new(), None).unwrap());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "only ..data and its directory");
    }

    #[test]
    fn clears_what_a_crash_left() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        fs::create_dir(dir.join("..2020_01_01_00_00_00.7")).unwrap();
        symlink("nowhere", dir.join(DATA_NEW)).unwrap();
        write(dir, &payload(&[("a", "1", 0o600)]), None).unwrap();
        assert_eq!(fs::read_dir(dir).unwrap().count(), 3);
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
    }

    /// A directory outside the volume, with a file, and what is there.
    fn outside(temp: &Path) -> (PathBuf, impl Fn() -> (usize, String)) {
        let outside = temp.join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("a"), "kept").unwrap();
        let look = {
            let outside = outside.clone();
            move || {
                let text = fs::read_to_string(outside.join("a")).unwrap();
                (fs::read_dir(&outside).unwrap().count(), text)
            }
        };
        (outside, look)
    }

    #[test]
    fn planted_links_and_directories_lead_nowhere() {
        for planted in ["..data", "..data_tmp", "a", "d", "..2020_01_01_00_00_00.7", "other"] {
            for directory in [false, true] {
                let temp = tempfile::tempdir().unwrap();
                let (outside, look) = outside(temp.path());
                let dir = temp.path().join("v");
                let (old, new) =
                    (payload(&[("a", "1", 0o644)]), payload(&[("a", "2", 0o644), ("d/e", "3", 0o600)]));
                write(&dir, &old, None).unwrap();
                let _ = fs::remove_file(dir.join(planted));
                if directory {
                    fs::create_dir(dir.join(planted)).unwrap();
                    symlink(&outside, dir.join(planted).join("link")).unwrap();
                } else {
                    symlink(&outside, dir.join(planted)).unwrap();
                }
                assert!(write(&dir, &new, None).unwrap(), "{planted}");
                assert_eq!(look(), (1, "kept".to_owned()), "{planted}");
                assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "2", "{planted}");
                assert_eq!(fs::read_to_string(dir.join("d/e")).unwrap(), "3", "{planted}");
                assert!(!write(&dir, &new, None).unwrap(), "{planted}: nothing is left to do");
            }
        }
    }

    #[test]
    fn files_of_the_current_view_that_became_links_are_replaced() {
        for (name, target) in [("a", "outside/a"), ("d", "outside")] {
            let temp = tempfile::tempdir().unwrap();
            let (_, look) = outside(temp.path());
            let dir = temp.path().join("v");
            // What is behind the link looks as wanted.
            let files = payload(&[("a", "kept", 0o644), ("d/a", "kept", 0o644)]);
            write(&dir, &files, None).unwrap();
            let current = dir.join(fs::read_link(dir.join(DATA)).unwrap());
            fs::rename(current.join(name), temp.path().join("aside")).unwrap();
            symlink(temp.path().join(target), current.join(name)).unwrap();
            assert!(write(&dir, &files, None).unwrap(), "{name}");
            assert_eq!(look(), (1, "kept".to_owned()));
            assert!(!dir.join(DATA).join(name).is_symlink(), "{name}");
        }
    }

    #[test]
    fn names_that_would_leave_the_volume_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("v");
        for name in ["../x", "a/../../x", "/x", "..data", "..data/x", ""] {
            assert!(write(&dir, &payload(&[(name, "1", 0o644)]), None).is_err(), "{name}");
            let nested = BTreeSet::from([PathBuf::from(name)]);
            assert!(super::write(&dir, &payload(&[]), None, &nested).is_err(), "{name}");
        }
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }

    #[test]
    fn other_volumes_can_be_mounted_inside() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("v");
        let nested = BTreeSet::from([PathBuf::from("in/side")]);
        for text in ["1", "2"] {
            super::write(&dir, &payload(&[("a", text, 0o644)]), None, &nested).unwrap();
            assert_eq!(fs::metadata(dir.join("in/side")).unwrap().mode() & 0o7777, 0o755);
            assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), text);
        }
    }
}
