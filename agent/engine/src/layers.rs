//! How much containers wrote to their own layers, measured rarely: only what may have changed, beside those who ask, and
//! the less often the longer it takes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use coracle_host_dir::{HostDir, Size, measure};

/// A layer is not measured again before this is over.
const LEAST: Duration = Duration::from_secs(10);
/// Nor before so many times the time that measuring it took: a hundredth of a cpu at most.
const SHARE: u32 = 100;

/// Tells whether a container can have written since it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// It used so much cpu so far: who did nothing wrote nothing.
    Used(u64),
    /// It ended.
    Ended,
    /// Nobody knows.
    Unknown,
}

#[derive(Debug, Clone, Copy)]
struct Layer {
    /// None while it is measured for the first time.
    size: Option<Size>,
    mark: Mark,
    at: Instant,
    took: Duration,
    under_way: bool,
}

impl Layer {
    fn is_due(&self, mark: Mark, now: Instant) -> bool {
        let rest = LEAST.max(self.took * SHARE);
        let changed = mark == Mark::Unknown || mark != self.mark;
        !self.under_way && changed && now.saturating_duration_since(self.at) >= rest
    }
}

/// Layers by container.
#[derive(Debug, Clone, Default)]
pub(super) struct Layers(Arc<Mutex<HashMap<String, Layer>>>);

impl Layers {
    /// What is known of a layer. When it is time to look again, that is done beside; `mark` must have been read before.
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

    /// The same for those who want a figure now: the first time it waits for it.
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

    /// Forgets layers of containers that are gone.
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
        let layers = Layers::default();
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
