//! Archives the writable layer of a running container, which can replace any file meanwhile.
//!
//! Every entry is archived from the descriptor that was checked: no link is followed, and nothing but regular files is
//! opened.

use nix::unistd::{Whence, fchown, lseek};
use nix::{errno::Errno, sys::stat::FileStat};
use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};
use tar::{Builder, EntryType, Header};

use coracle_host_dir::{Entry, HostDir, Limits};

/// Appends everything in a directory. Files, directories, links and whiteouts are kept; FIFOs, sockets and devices have no
/// contents and are left out. `scratch` is a file that nobody else uses.
pub(super) fn append<W: Write>(tar: &mut Builder<W>, dir: HostDir, scratch: &Path) -> io::Result<()> {
    let mut header = header_of(&dir.stat()?, EntryType::Directory);
    tar.append_data(&mut header, "./", io::empty())?;
    let walked = dir.walk_paths(Limits::default(), |dir, parent, name| {
        let path = parent.join(name);
        let entry = match dir.entry(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        append_entry(tar, &path, &entry, scratch)?;
        if !entry.is_dir() {
            return Ok(None);
        }
        match entry.into_dir() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    });
    Ok(walked?)
}

fn append_entry<W: Write>(
    tar: &mut Builder<W>,
    path: &Path,
    entry: &Entry,
    scratch: &Path,
) -> io::Result<()> {
    let header = |kind| header_of(entry.stat(), kind);
    if entry.is_dir() {
        tar.append_data(&mut header(EntryType::Directory), path, io::empty())
    } else if entry.is_symlink() {
        tar.append_link(&mut header(EntryType::Symlink), path, entry.read_link()?)
    } else if entry.is_whiteout() {
        let mut header = header(EntryType::Char);
        header.set_device_major(0)?;
        header.set_device_minor(0)?;
        tar.append_data(&mut header, path, io::empty())
    } else if entry.is_file() {
        append_file(tar, path, header(EntryType::Regular), &entry.open_file()?, scratch)
    } else {
        Ok(())
    }
}

fn append_file<W: Write>(
    tar: &mut Builder<W>,
    path: &Path,
    mut header: Header,
    file: &File,
    scratch: &Path,
) -> io::Result<()> {
    let meta = file.metadata()?;
    if meta.blocks().saturating_mul(512) < meta.len() {
        // Sparse files stay sparse. The list of holes is only stable for a file that does not change: a copy.
        return tar.append_file(path, &mut copy_with_holes(file, &meta, scratch)?);
    }
    // The container may change the length at any time, and the archive must have as many bytes as the header says.
    header.set_size(meta.len());
    tar.append_data(&mut header, path, file.chain(io::repeat(0)).take(meta.len()))
}

/// A copy with the same owner, mode, time and holes.
fn copy_with_holes(mut file: &File, meta: &std::fs::Metadata, scratch: &Path) -> io::Result<File> {
    let mut copy = File::options().read(true).write(true).create(true).truncate(true).open(scratch)?;
    let mut at = 0;
    while let Some(data) = seek(file, at, Whence::SeekData)?.filter(|data| *data < meta.len()) {
        let hole = seek(file, data, Whence::SeekHole)?.unwrap_or(data);
        // The container may have made a hole of it meanwhile.
        at = hole.clamp(data + 1, meta.len());
        file.seek(SeekFrom::Start(data))?;
        copy.seek(SeekFrom::Start(data))?;
        io::copy(&mut file.take(at - data), &mut copy)?;
    }
    copy.set_len(meta.len())?;
    fchown(&copy, Some(meta.uid().into()), Some(meta.gid().into()))?;
    copy.set_permissions(Permissions::from_mode(meta.mode() & 0o7777))?;
    copy.set_modified(UNIX_EPOCH + Duration::from_secs(u64::try_from(meta.mtime()).unwrap_or(0)))?;
    copy.rewind()?;
    Ok(copy)
}

/// Where the next data or hole begins; nothing at the end of the file.
fn seek(file: &File, from: u64, whence: Whence) -> io::Result<Option<u64>> {
    let from = i64::try_from(from).map_err(io::Error::other)?;
    match lseek(file, from, whence) {
        Ok(at) => Ok(u64::try_from(at).ok()),
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn header_of(stat: &FileStat, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Type and link target or contents of every entry, by path.
    fn archived(upper: &Path, scratch: &Path) -> BTreeMap<String, (EntryType, String)> {
        let (upper, scratch) = (upper.to_owned(), scratch.to_owned());
        let (done, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut tar = Builder::new(Vec::new());
            append(&mut tar, HostDir::open(&upper).unwrap(), &scratch).unwrap();
            done.send(tar.into_inner().unwrap())
        });
        let bytes = wait.recv_timeout(Duration::from_secs(20)).expect("nothing makes it wait");
        assert!(bytes.len() < 1 << 20, "{} bytes", bytes.len());
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let kind = entry.header().entry_type();
            let mut text = String::new();
            match entry.link_name().unwrap() {
                Some(target) => text = target.display().to_string(),
                None => drop((&mut entry).take(100).read_to_string(&mut text).unwrap()),
            }
            (path.trim_end_matches('/').to_owned(), (kind, text))
        });
        entries.collect()
    }

    #[test]
    fn links_are_archived_as_links_and_special_files_are_not_opened() {
        let temp = tempfile::tempdir().unwrap();
        let upper = temp.path().join("upper");
        fs::create_dir_all(upper.join("a/b")).unwrap();
        fs::create_dir(temp.path().join("outside")).unwrap();
        fs::write(temp.path().join("outside/secret"), "secret").unwrap();
        fs::write(upper.join("a/b/file"), "text").unwrap();
        symlink("../outside", upper.join("dir")).unwrap();
        symlink("../outside/secret", upper.join("a/secret")).unwrap();
        nix::unistd::mkfifo(&upper.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(upper.join("socket")).unwrap();
        // Half of it is a hole, and its size is more than the archive may have.
        let sparse = File::create(upper.join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        (&sparse).write_all(b"begin").unwrap();
        let found = archived(&upper, &temp.path().join("scratch"));
        let names: Vec<&str> =
            found.keys().map(String::as_str).filter(|name| !name.starts_with('.')).collect();
        assert_eq!(names, ["a", "a/b", "a/b/file", "a/secret", "dir", "sparse"]);
        assert_eq!(found["a/b/file"], (EntryType::Regular, "text".into()));
        assert_eq!(found["dir"], (EntryType::Symlink, "../outside".into()));
        assert_eq!(found["a/secret"], (EntryType::Symlink, "../outside/secret".into()));
        assert!(found["sparse"].1.starts_with("begin"));
    }

    #[test]
    fn a_file_that_changes_its_length_does_not_spoil_the_archive() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        fs::write(&path, vec![b'x'; 8192]).unwrap();
        let file = File::open(&path).unwrap();
        for length in [100_000, 10] {
            let mut tar = Builder::new(Resize { bytes: Vec::new(), path: path.clone(), length });
            let header = Header::new_gnu();
            append_file(&mut tar, Path::new("file"), header, &file, &temp.path().join("scratch")).unwrap();
            let archive = tar.into_inner().unwrap().bytes;
            assert_eq!(archive.len() % 512, 0, "{length}");
            let mut archive = tar::Archive::new(archive.as_slice());
            assert_eq!(archive.entries().unwrap().map(|entry| entry.unwrap().size()).sum::<u64>(), 8192);
            fs::write(&path, vec![b'x'; 8192]).unwrap();
            (&file).rewind().unwrap();
        }
    }

    /// Changes the length of the file as soon as its header is written.
    struct Resize {
        bytes: Vec<u8>,
        path: std::path::PathBuf,
        length: usize,
    }

    impl Write for Resize {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.bytes.is_empty() {
                fs::write(&self.path, vec![b'y'; self.length])?;
            }
            self.bytes.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
