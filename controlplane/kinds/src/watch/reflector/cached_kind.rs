//! The caches of a kind. With initializers there are two: everybody sees nothing of an object until its last initializer has
//! finished.

use crate::object::Object;
use crate::registry::kinds::Kind;
use crate::watch::cache::Cache;
use crate::watch::event::{Event, EventType};
use crate::watch::progress::Progress;
use crate::watch::render;
use coracle_store::Revision;
use std::sync::Arc;

/// A kind and its caches.
#[derive(Clone)]
pub(super) struct CachedKind {
    pub(super) kind: Arc<Kind>,
    /// What everybody sees.
    pub(super) cache: Arc<Cache>,
    /// The same with objects whose initializers are pending; none without the feature.
    pub(super) whole: Option<Arc<Cache>>,
}

impl CachedKind {
    pub(super) fn new(
        kind: Arc<Kind>,
        progress: &Arc<Progress>,
        revision: Revision,
        initializers: bool,
    ) -> Self {
        let cache = || Arc::new(Cache::new(progress.clone(), revision));
        Self { kind, cache: cache(), whole: initializers.then(cache) }
    }

    /// The cache of all objects, which changes are compared with.
    pub(super) fn all(&self) -> &Arc<Cache> {
        self.whole.as_ref().unwrap_or(&self.cache)
    }

    pub(super) fn load(&self, objects: impl Iterator<Item = Arc<Object>>, revision: Revision) {
        let Some(whole) = &self.whole else { return self.cache.load(objects, revision) };
        let objects: Vec<Arc<Object>> = objects.collect();
        let visible = objects.iter().filter(|object| !object.meta.uninitialized).cloned();
        self.cache.load(visible, revision);
        whole.load(objects, revision);
    }

    pub(super) fn push(&self, key: &str, event: Event) {
        if let Some(whole) = &self.whole {
            if let Some(seen) = visible(&self.cache, key, &event) {
                self.cache.push(key, seen);
            }
            whole.push(key, event);
        } else {
            self.cache.push(key, event);
        }
    }

    pub(super) fn push_all(&self, events: Vec<(Box<str>, Event)>) {
        let Some(whole) = &self.whole else { return self.cache.push_all(events) };
        let seen =
            events.iter().filter_map(|(key, event)| Some((key.clone(), visible(&self.cache, key, event)?)));
        let seen = seen.collect();
        self.cache.push_all(seen);
        whole.push_all(events);
    }

    pub(super) fn announce(&self) {
        self.cache.announce();
        if let Some(whole) = &self.whole {
            whole.announce();
        }
    }
}

/// A change as those see it who do not see uninitialized objects; `cache` has what they saw before. `None` when they see nothing
/// of it: an object appears with the change that ends its initialization.
fn visible(cache: &Cache, key: &str, event: &Event) -> Option<Event> {
    let previous = cache.find(key);
    let is_hidden = event.what == EventType::Deleted || event.object.meta.uninitialized;
    let what = match (&previous, is_hidden) {
        (None, true) => return None,
        (None, false) => EventType::Added,
        (Some(_), false) => EventType::Modified,
        (Some(_), true) => EventType::Deleted,
    };
    if what == event.what {
        return Some(Event { what, object: event.object.clone(), previous, line: event.line.clone() });
    }
    let object: Arc<Object> = match (what, &previous) {
        // The last state that they saw, at the revision of the change.
        (EventType::Deleted, Some(previous)) => {
            let (object, line) = render::removal(previous, event.object.revision).ok()?;
            return Some(Event { what, object: Arc::new(object), previous: Some(previous.clone()), line });
        }
        _ => event.object.clone(),
    };
    let line = render::line(what.word(), &object.json);
    Some(Event { what, object, previous, line })
}
