//! The files, in the layout other host-locals read and write:
//! `<dataDir>/<network>/<ip>` holds container id and interface name, `last_reserved_ip.<set>` where the search goes
//! on, `lock` is flocked.
//!
//! An address file appears whole, by link(2); a crash leaves at most a file whose name starts with a dot. An empty
//! address file is what a killed host-local of another make leaves: it is nobody's.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    net::IpAddr,
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};

use crate::protocol::{Error, Result};

/// The directory of one network.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Opens or creates the directory.
    pub fn open(data_dir: &Path, network: &str) -> Result<Self> {
        let dir = data_dir.join(network);
        fs::create_dir_all(&dir).map_err(Error::io(&dir))?;
        Ok(Store { dir })
    }

    /// Opens the directory if it is there.
    pub fn existing(data_dir: &Path, network: &str) -> Result<Option<Self>> {
        let dir = data_dir.join(network);
        Ok(dir.is_dir().then_some(Store { dir }))
    }

    /// Waits until no other process is at it. Everything is done under the lock; it ends with the process.
    pub fn lock(&self) -> Result<Locked<'_>> {
        let path = self.dir.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::io(&path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive);
        let lock = lock.map_err(|(_, errno)| Error::io(&path)(errno.into()))?;
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
    /// Takes an address; false when somebody has it.
    pub fn reserve(&self, ip: IpAddr, id: &str, ifname: &str, set: usize) -> Result<bool> {
        let path = self.dir.join(ip.to_string());
        if fs::metadata(&path).is_ok_and(|m| m.len() == 0) {
            remove(&path)?;
        }
        let temporary = self.dir.join(".reserving");
        let content = format!("{id}\r\n{ifname}");
        fs::write(&temporary, content).map_err(Error::io(&temporary))?;
        let linked = fs::hard_link(&temporary, &path);
        remove(&temporary)?;
        match linked {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(e) => return Err(Error::io(&path)(e)),
        }
        // Only where to go on searching: losing it costs nothing.
        let last = self.dir.join(format!("last_reserved_ip.{set}"));
        fs::write(&last, ip.to_string()).map_err(Error::io(&last))?;
        Ok(true)
    }

    /// Gives an address back.
    pub fn free(&self, ip: IpAddr) -> Result<()> {
        remove(&self.dir.join(ip.to_string()))
    }

    /// Whether somebody has an address.
    pub fn taken(&self, ip: IpAddr) -> bool {
        fs::metadata(self.dir.join(ip.to_string())).is_ok_and(|m| m.len() > 0)
    }

    /// The address given out last from a set.
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

    /// Gives all addresses of an attachment back.
    pub fn release(&self, id: &str, ifname: &str) -> Result<()> {
        self.retain(|owner, interface| !(owner == id && (interface.is_empty() || interface == ifname)))
    }

    /// Gives back the addresses whose attachment is not to be kept.
    pub fn retain(&self, keep: impl Fn(&str, &str) -> bool) -> Result<()> {
        self.each(|_, path, owner, interface| if keep(owner, interface) { Ok(()) } else { remove(path) })
    }

    fn each(&self, mut visit: impl FnMut(IpAddr, &Path, &str, &str) -> Result<()>) -> Result<()> {
        let listing = fs::read_dir(self.dir).map_err(Error::io(self.dir))?;
        let mut content = String::new();
        for entry in listing {
            let entry = entry.map_err(Error::io(self.dir))?;
            let Some(ip) = entry.file_name().to_str().and_then(|name| name.parse::<IpAddr>().ok()) else {
                continue;
            };
            let path = entry.path();
            content.clear();
            match File::open(&path).and_then(|mut file| file.read_to_string(&mut content)) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(Error::io(&path)(e)),
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
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io(path)(e)),
        _ => Ok(()),
    }
}
