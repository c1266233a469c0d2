//! Events that watchers got, with upstream's names.

use coracle_kinds::registry::kinds::Kind;
use coracle_proto::exposition::Page;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Events by group, version and resource.
#[derive(Default)]
pub struct WatchEvents(Mutex<BTreeMap<(String, String, String), Arc<AtomicU64>>>);

impl WatchEvents {
    /// The counter of a kind, for a watch to count its events with.
    pub(crate) fn counter(&self, kind: &Kind) -> Arc<AtomicU64> {
        let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.0.lock().entry(key).or_default().clone()
    }

    /// All of them.
    pub(crate) fn render(&self, page: &mut Page) {
        let name = "apiserver_watch_events_total";
        page.family(name, "counter", "Events sent to watchers, by group, version and resource.");
        for ((group, version, resource), count) in self.0.lock().iter() {
            let labels =
                [("group", group.as_str()), ("resource", resource.as_str()), ("version", version.as_str())];
            page.value(name, &labels, count.load(Relaxed));
        }
    }
}
