//! A kind whose objects announcements read and write, and word of the changes that concern them.

use coracle_client::Client;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::{Cache, Cursor};
use std::sync::Arc;

/// A kind and its objects.
pub struct Objects {
    pub kind: Arc<Kind>,
    pub cache: Arc<Cache>,
    news: Cursor,
}

impl Objects {
    /// Changes from now on are news.
    pub fn new(client: &Client, group: &str, plural: &str) -> Self {
        let kind = client.kind(group, plural);
        let cache = client.cache(&kind);
        Self { news: from_now_on(&cache), cache, kind }
    }

    /// Returns once an object that `concerns` the caller has changed since the last time. Dropping the future loses nothing.
    pub async fn changed(&mut self, concerns: impl Fn(&Object) -> bool) {
        loop {
            match self.news.next_batch().await {
                Ok(events) => {
                    let mut objects =
                        events.iter().flat_map(|event| event.previous.iter().chain([&event.object]));
                    if objects.any(|object| concerns(object)) {
                        return;
                    }
                }
                Err(_) => {
                    self.news = from_now_on(&self.cache);
                    return;
                }
            }
        }
    }
}

fn from_now_on(cache: &Arc<Cache>) -> Cursor {
    // A cursor always comes with objects; no namespace has this name, so there are none.
    let (_, _, news) = cache.list_and_watch(Some("/"));
    news
}
