//! Garbage collection by disk thresholds.

use std::time::{SystemTime, UNIX_EPOCH};

pub use super::disk::DiskUse;
use super::{Error, ImageRecord, ImageStore, Result, manifest::hex_of};

/// When to start and where to stop, as the kubelet's configuration says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Nothing is removed below this use of the disk, in percent.
    pub high_percent: u8,
    /// Removal goes on until the use is below this.
    pub low_percent: u8,
    /// An image is kept at least so long after its last use, in seconds.
    pub min_age: i64,
    /// An image unused for so long is removed regardless of the disk; 0 is never.
    pub max_age: i64,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { high_percent: 85, low_percent: 80, min_age: 120, max_age: 0 }
    }
}

/// Result of a garbage collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// Ids of removed images.
    pub removed: Vec<String>,
    /// Bytes their layers had, shared ones counted each time.
    pub bytes: u64,
    /// Bytes that should have been freed but were all in use.
    pub missed: u64,
}

/// Input of [`plan_gc`] for an image.
pub struct Candidate {
    /// Its id.
    pub id: String,
    /// Its size.
    pub size: u64,
    /// Seconds since 1970.
    pub last_used: i64,
    /// In use by containers, or pinned.
    pub in_use: bool,
}

/// Images to remove, in order: least recently used first. Images in use are never removed.
pub fn plan_gc(disk: DiskUse, mut images: Vec<Candidate>, policy: Policy, now: i64) -> Vec<String> {
    let used = disk.capacity.saturating_sub(disk.available);
    let over = disk.capacity > 0 && used * 100 >= disk.capacity * u64::from(policy.high_percent);
    let target = disk.capacity / 100 * u64::from(policy.low_percent);
    let mut to_free = if over { used.saturating_sub(target) } else { 0 };
    images.retain(|image| !image.in_use);
    images.sort_by_key(|image| image.last_used);
    let mut doomed = Vec::new();
    for image in images {
        let age = now - image.last_used;
        let expired = policy.max_age > 0 && age > policy.max_age;
        if expired || (to_free > 0 && age >= policy.min_age) {
            to_free = to_free.saturating_sub(image.size);
            doomed.push(image.id);
        }
    }
    doomed
}

impl ImageStore {
    /// Use of the file system the store is on.
    pub fn disk_use(&self) -> Result<DiskUse> {
        let root = std::fs::File::open(&self.root).map_err(Error::io("reading", &self.root))?;
        DiskUse::of(root).map_err(Error::io("reading", &self.root))
    }

    /// Fails if `bytes` do not fit without using the reserve.
    pub(super) fn check_free_space(&self, bytes: u64) -> Result<()> {
        let disk = self.disk_use()?;
        let room = disk.available.saturating_sub(disk.reserve());
        if bytes <= room { Ok(()) } else { Err(Error::NoRoom { bytes, room }) }
    }

    /// Bytes and files the store itself takes, by its records: every layer once.
    pub fn used_bytes(&self) -> Result<u64> {
        let layers =
            self.list()?.into_iter().flat_map(|r| r.layers).map(|l| ((l.chain_id, l.diff_id), l.size));
        Ok(layers.collect::<std::collections::BTreeMap<_, _>>().values().sum())
    }

    /// Removes unused images according to the policy. An image that comes into use meanwhile is kept.
    pub fn collect_garbage(&self, policy: Policy) -> Result<Collected> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        self.collect_with(self.disk_use()?, policy, now)
    }

    pub(super) fn collect_with(&self, disk: DiskUse, policy: Policy, now: i64) -> Result<Collected> {
        let images = self.list()?;
        let mut candidates = Vec::new();
        for image in &images {
            let in_use = image.pinned || !self.holds.of(hex_of(&image.id)?)?.is_empty();
            let (id, size, last_used) = (image.id.clone(), image.size, image.last_used);
            candidates.push(Candidate { id, size, last_used, in_use });
        }
        let mut done = Collected { removed: Vec::new(), bytes: 0, missed: 0 };
        for id in plan_gc(disk, candidates, policy, now) {
            let lock = self.exclusive()?;
            let Some(record) = self.find(&id)? else { continue };
            match self.remove_locked(&record) {
                Ok(()) => {
                    done.bytes += record.size;
                    done.removed.push(id);
                }
                Err(Error::InUse { .. }) => {}
                Err(error) => return Err(error),
            }
            drop(lock);
        }
        self.trash.empty();
        let used = disk.capacity.saturating_sub(disk.available);
        if used * 100 >= disk.capacity * u64::from(policy.high_percent) {
            let target = disk.capacity / 100 * u64::from(policy.low_percent);
            done.missed = used.saturating_sub(target).saturating_sub(done.bytes);
        }
        Ok(done)
    }
}

/// The names an image is known by, for people.
pub fn display_name(image: &ImageRecord) -> &str {
    image.repo_tags.first().or(image.repo_digests.first()).map_or("<none>", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_unused_first_and_only_as_many_as_needed() {
        let disk = |used: u64| DiskUse { capacity: 1000, available: 1000 - used, inodes: 1, inodes_free: 1 };
        let images = || {
            [
                ("old", 100, 10, false),
                ("used", 500, 5, true),
                ("mid", 30, 20, false),
                ("new", 100, 950, false),
            ]
            .map(|(id, size, last_used, in_use)| Candidate { id: id.into(), size, last_used, in_use })
            .into()
        };
        let policy = Policy { high_percent: 85, low_percent: 80, min_age: 100, max_age: 0 };
        for (used, policy, expected) in [
            (849, policy, vec![]),
            (850, policy, vec!["old"]),
            (920, policy, vec!["old", "mid"]),
            (999, policy, vec!["old", "mid"]),
            (0, Policy { max_age: 985, ..policy }, vec!["old"]),
            (999, Policy { min_age: 0, ..policy }, vec!["old", "mid", "new"]),
        ] {
            assert_eq!(plan_gc(disk(used), images(), policy, 1000), expected, "{used} {policy:?}");
        }
    }
}
