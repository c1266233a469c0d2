//! Disk usage of the writable layers of containers. A layer is measured in the background, only if it may have changed,
//! and less often the longer it takes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use coracle_host_dir::{HostDir, Size, measure};

/// Minimum interval between measurements of a layer.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// The interval is at least this many times the duration of the last measurement: at most 1 % of a CPU.
const INTERVAL_FACTOR: u32 = 100;

/// Activity of a container, to tell whether it may have written since the last measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// CPU time used so far: a container that used none since has written nothing.
    Used(u64),
    /// It has exited.
    Ended,
    /// Unknown.
    Unknown,
}

#[derive(Debug, Clone, Copy)]
struct Layer {
    /// None until the first measurement is complete.
    size: Option<Size>,
    mark: Mark,
    at: Instant,
    took: Duration,
    under_way: bool,
}

impl Layer {
    fn is_due(&self, mark: Mark, now: Instant) -> bool {
        let rest = MIN_INTERVAL.max(self.took * INTERVAL_FACTOR);
        let changed = mark == Mark::Unknown || mark != self.mark;
        !self.under_way && changed && now.saturating_duration_since(self.at) >= rest
    }
}

/// Measurements by container id.
#[derive(Debug, Clone, Default)]
pub(super) struct LayerUsage(Arc<Mutex<HashMap<String, Layer>>>);

impl LayerUsage {
    /// The last measured size. Starts a measurement in the background if one is due; `mark` must have been read before
    /// the call.
    pub(super) fn size(&self, id: &str, dir: &Path, mark: Mark) -> Option<Size> {
        let mut layers = self.0.lock();
        let now = Instant::now();
        let fresh = Layer { size: None, mark, at: now, took: Duration::ZERO, under_way: false };
        let is_new = !layers.contains_key(id);
        let layer = layers.entry(id.to_owned()).or_insert(fresh);
        if is_new || layer.is_due(mark, now) {
            layer.under_way = true;
            let (all, id, dir) = (self.clone(), id.to_owned(), dir.to_owned());
            tokio::task::spawn_blocking(move || all.measure(&id, &dir, mark));
        }
        layer.size
    }

    /// As [`LayerUsage::size`], but waits for the first measurement.
    pub(super) fn size_now(&self, id: &str, dir: &Path, mark: Mark) -> Size {
        let known = self.0.lock().get(id).is_some_and(|layer| layer.size.is_some());
        let size = if known { self.size(id, dir, mark) } else { None };
        size.unwrap_or_else(|| self.measure(id, dir, mark))
    }

    fn measure(&self, id: &str, dir: &Path, mark: Mark) -> Size {
        let begun = Instant::now();
        let size = HostDir::open(dir).map(measure).unwrap_or_default();
        let layer =
            Layer { size: Some(size), mark, at: Instant::now(), took: begun.elapsed(), under_way: false };
        self.0.lock().insert(id.to_owned(), layer);
        size
    }

    /// Drops measurements of removed containers.
    pub(super) fn retain(&self, live: impl Fn(&str) -> bool) {
        self.0.lock().retain(|id, _| live(id));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn a_layer_is_measured_again_only_when_it_may_have_changed() {
        let at = Instant::now();
        let layer = |took: u64, mark: Mark| Layer {
            size: None,
            mark,
            at,
            took: Duration::from_millis(took),
            under_way: false,
        };
        let later = |seconds: u64| at + Duration::from_secs(seconds);
        for (was, took, mark, after, due) in [
            (Mark::Used(5), 1, Mark::Used(6), 10, true),
            (Mark::Used(5), 1, Mark::Used(6), 9, false),
            (Mark::Used(5), 1, Mark::Used(5), 3600, false),
            (Mark::Used(5), 1000, Mark::Used(6), 99, false),
            (Mark::Used(5), 1000, Mark::Used(6), 100, true),
            (Mark::Used(5), 1, Mark::Ended, 10, true),
            (Mark::Ended, 1, Mark::Ended, 3600, false),
            (Mark::Unknown, 1, Mark::Unknown, 10, true),
        ] {
            assert_eq!(layer(took, was).is_due(mark, later(after)), due, "{was:?} {took} {mark:?} {after}");
        }
        let under_way = Layer { under_way: true, ..layer(1, Mark::Used(5)) };
        assert!(!under_way.is_due(Mark::Used(6), later(3600)));
    }

    #[tokio::test]
    async fn the_first_figure_comes_beside_or_at_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/file"), vec![1; 10_000]).unwrap();
        let layers = LayerUsage::default();
        let now = layers.size_now("b", dir.path(), Mark::Used(1));
        assert_eq!(now.files, 2);
        assert!(now.bytes >= 10_000);
        assert_eq!(layers.size("a", dir.path(), Mark::Used(1)), None);
        while layers.size("a", dir.path(), Mark::Used(1)).is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // What is written while the container does nothing is not looked for.
        fs::write(dir.path().join("more"), "").unwrap();
        assert_eq!(layers.size("a", dir.path(), Mark::Used(1)), Some(now));
        layers.retain(|id| id == "b");
        assert_eq!(layers.size("a", dir.path(), Mark::Used(1)), None);
    }
}
