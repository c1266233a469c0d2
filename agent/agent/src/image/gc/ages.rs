//! When images came to the node and when they were last used. Pure.

use coracle_proto::cri;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use crate::config::image_gc::GcPolicy;

/// The images of the node, when each was detected and used. Shared: the disk is checked by garbage collection and by evictions.
#[derive(Clone, Debug)]
pub struct ImageAges(Arc<Mutex<Records>>);

impl ImageAges {
    /// No image is known yet; ages count from `began`.
    pub fn new(began: Instant) -> Self {
        ImageAges(Arc::new(Mutex::new(Records::new(began))))
    }

    /// Records which images are on the node now; those that are gone are forgotten.
    pub fn detect(&self, images: &[cri::Image], now: Instant) {
        self.0.lock().detect(images, now);
    }

    /// Records which images are on the node and which of their names are used now. Images that may be removed, those that
    /// were used longest ago first.
    pub(super) fn update(
        &self,
        images: &[cri::Image],
        used: &HashSet<String>,
        policy: &GcPolicy,
        now: Instant,
    ) -> Vec<Unused> {
        let mut records = self.0.lock();
        records.update(images, used, now);
        records.unused(policy, now)
    }
}

/// What is remembered of an image.
#[derive(Clone, Debug)]
struct Record {
    detected: Instant,
    used: Option<Instant>,
    size: u64,
    /// In use now, or pinned.
    kept: bool,
}

/// An image that may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unused {
    pub(super) id: String,
    pub(super) size: u64,
    /// Unused for longer than the maximum age.
    pub(super) is_old: bool,
    /// On the node for at least the minimum age.
    pub(super) is_ripe: bool,
}

#[derive(Debug)]
struct Records {
    began: Instant,
    images: HashMap<String, Record>,
}

impl Records {
    fn new(began: Instant) -> Self {
        Records { began, images: HashMap::new() }
    }

    fn detect(&mut self, images: &[cri::Image], now: Instant) {
        let present: HashSet<_> = images.iter().map(|image| image.id.as_str()).collect();
        self.images.retain(|id, _| present.contains(id.as_str()));
        for id in present {
            let new = Record { detected: now, used: None, size: 0, kept: false };
            self.images.entry(id.to_owned()).or_insert(new);
        }
    }

    fn update(&mut self, images: &[cri::Image], used: &HashSet<String>, now: Instant) {
        self.detect(images, now);
        for image in images {
            let Some(record) = self.images.get_mut(&image.id) else { continue };
            let is_used = names(image).any(|name| used.contains(name));
            if is_used {
                record.used = Some(now);
            }
            (record.size, record.kept) = (image.size, is_used || image.pinned);
        }
    }

    /// Images that may be removed, those that were used longest ago first.
    fn unused(&self, policy: &GcPolicy, now: Instant) -> Vec<Unused> {
        let mut all: Vec<_> = self.images.iter().filter(|(_, record)| !record.kept).collect();
        all.sort_by_key(|(id, record)| (record.used, record.detected, *id));
        // Before that, nobody knows what was used.
        let knows_age = !policy.max_age.is_zero() && now.duration_since(self.began) > policy.max_age;
        let unused = |(id, record): (&String, &Record)| Unused {
            id: id.clone(),
            size: record.size,
            is_old: knows_age && record.used.is_none_or(|used| now.duration_since(used) > policy.max_age),
            is_ripe: now.duration_since(record.detected) >= policy.min_age,
        };
        all.into_iter().map(unused).collect()
    }
}

fn names(image: &cri::Image) -> impl Iterator<Item = &str> {
    image.repo_tags.iter().chain(&image.repo_digests).chain([&image.id]).map(String::as_str)
}

#[cfg(test)]
mod tests;
