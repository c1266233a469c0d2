//! The files, in the layout other host-locals read and write:
//! `<dataDir>/<network>/<ip>` holds container id and interface name, `last_reserved_ip.<set>` where the search goes
//! on, `lock` is flocked.
//!
//! Address files are created atomically by link(2); a crash leaves at most a file whose name starts with a dot. An empty
//! address file was left by a killed host-local of another implementation and counts as free.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    net::IpAddr,
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};

use super::error::{HostLocalError, Result};

/// The directory of one network.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Opens or creates the directory.
    pub fn open(data_dir: &Path, network: &str) -> Result<Self> {
        let dir = data_dir.join(network);
        fs::create_dir_all(&dir).map_err(HostLocalError::io(&dir))?;
        Ok(Store { dir })
    }

    /// Opens the directory if it is there.
    pub fn existing(data_dir: &Path, network: &str) -> Result<Option<Self>> {
        let dir = data_dir.join(network);
        Ok(dir.is_dir().then_some(Store { dir }))
    }

    /// Takes the lock, which all other methods need; waits for other processes. It is released when the process exits at
    /// the latest.
    pub fn lock(&self) -> Result<Locked<'_>> {
        let path = self.dir.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(HostLocalError::io(&path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive);
        let lock = lock.map_err(|(_, errno)| HostLocalError::io(&path)(errno.into()))?;
        Ok(Locked { dir: &self.dir, _lock: lock })
    }
}

/// A locked directory.
#[derive(Debug)]
pub struct Locked<'a> {
    dir: &'a Path,
    _lock: Flock<File>,
}

impl Locked<'_> {
    /// Reserves an address; false if it is taken.
    pub fn reserve(&self, ip: IpAddr, id: &str, ifname: &str, set: usize) -> Result<bool> {
        let path = self.dir.join(ip.to_string());
        if fs::metadata(&path).is_ok_and(|m| m.len() == 0) {
            remove(&path)?;
        }
        let temporary = self.dir.join(".reserving");
        let content = format!("{id}\r\n{ifname}");
        fs::write(&temporary, content).map_err(HostLocalError::io(&temporary))?;
        let linked = fs::hard_link(&temporary, &path);
        remove(&temporary)?;
        match linked {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(e) => return Err(HostLocalError::io(&path)(e)),
        }
        // Only a hint for the next search: errors are ignored.
        let last = self.dir.join(format!("last_reserved_ip.{set}"));
        fs::write(&last, ip.to_string()).map_err(HostLocalError::io(&last))?;
        Ok(true)
    }

    /// Releases an address.
    pub fn free(&self, ip: IpAddr) -> Result<()> {
        remove(&self.dir.join(ip.to_string()))
    }

    /// Whether an address is reserved.
    pub fn taken(&self, ip: IpAddr) -> bool {
        fs::metadata(self.dir.join(ip.to_string())).is_ok_and(|m| m.len() > 0)
    }

    /// The last address reserved from a set.
    pub fn last(&self, set: usize) -> Option<IpAddr> {
        fs::read_to_string(self.dir.join(format!("last_reserved_ip.{set}"))).ok()?.trim().parse().ok()
    }

    /// The addresses of one attachment.
    pub fn held_by(&self, id: &str, ifname: &str) -> Result<Vec<IpAddr>> {
        let mut held = Vec::new();
        self.each(|ip, _, owner, interface| {
            if owner == id && (interface.is_empty() || interface == ifname) {
                held.push(ip);
            }
            Ok(())
        })?;
        Ok(held)
    }

    /// Releases all addresses of an attachment.
    pub fn release(&self, id: &str, ifname: &str) -> Result<()> {
        self.retain(|owner, interface| !(owner == id && (interface.is_empty() || interface == ifname)))
    }

    /// Releases the addresses of attachments for which `keep` is false.
    pub fn retain(&self, keep: impl Fn(&str, &str) -> bool) -> Result<()> {
        self.each(|_, path, owner, interface| if keep(owner, interface) { Ok(()) } else { remove(path) })
    }

    fn each(&self, mut visit: impl FnMut(IpAddr, &Path, &str, &str) -> Result<()>) -> Result<()> {
        let listing = fs::read_dir(self.dir).map_err(HostLocalError::io(self.dir))?;
        let mut content = String::new();
        for entry in listing {
            let entry = entry.map_err(HostLocalError::io(self.dir))?;
            let Some(ip) = entry.file_name().to_str().and_then(|name| name.parse::<IpAddr>().ok()) else {
                continue;
            };
            let path = entry.path();
            content.clear();
            match File::open(&path).and_then(|mut file| file.read_to_string(&mut content)) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(HostLocalError::io(&path)(e)),
            }
            // Very old files have no interface name, some writers end lines without a carriage return.
            let mut lines = content.trim().lines();
            let (owner, interface) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
            visit(ip, &path, owner.trim(), interface.trim())?;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(HostLocalError::io(path)(e)),
        _ => Ok(()),
    }
}
