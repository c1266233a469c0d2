//! Routing table of aggregated group versions. Readers never block; an empty table costs one load.

use super::target::Target;
use crate::request_info::RequestInfo;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Discovery of an aggregated group version.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiscoveredApi {
    /// Its resources, as aggregated discovery shows them.
    pub resources: Vec<Value>,
    /// Whether the last discovery succeeded.
    pub fresh: bool,
    /// Its OpenAPI 3 documents: from their names, such as `apis/demo.io/v1`, to where they are.
    pub openapi: BTreeMap<String, Value>,
}

/// An aggregated group version.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Group, version and Service.
    pub target: Target,
    /// Of the group, and of the version within it.
    pub priority: (i64, i64),
    /// Whether the APIService is `Available`.
    pub available: bool,
    /// Its discovery.
    pub discovered: Arc<DiscoveredApi>,
}

/// All aggregated group versions.
#[derive(Default)]
pub struct RouteTable {
    entries: ArcSwap<Vec<Arc<Entry>>>,
    writing: Mutex<()>,
    generation: AtomicU64,
}

impl RouteTable {
    /// Every entry.
    pub fn all(&self) -> Arc<Vec<Arc<Entry>>> {
        self.entries.load_full()
    }

    /// Grows with every change.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The server of a path: the group version, a path below it, or its OpenAPI document.
    pub fn route(&self, info: &RequestInfo) -> Option<Arc<Entry>> {
        let entries = self.entries.load();
        if entries.is_empty() {
            return None;
        }
        if info.is_resource {
            let serves = |entry: &&Arc<Entry>| {
                (&entry.target.group, &entry.target.version) == (&info.group, &info.version)
            };
            return entries.iter().find(serves).cloned();
        }
        let path = info.path.as_str();
        if let Some(document) = path.strip_prefix("/openapi/v3/") {
            return entries.iter().find(|entry| entry.discovered.openapi.contains_key(document)).cloned();
        }
        let within = |entry: &&Arc<Entry>| {
            let rest = path.strip_prefix(&entry.target.root());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        entries.iter().find(within).cloned()
    }

    /// Puts an entry in place of the one of the same group and version; its discovery is kept.
    pub fn put(&self, target: Target, priority: (i64, i64), available: bool) {
        self.change(|entries| {
            let at = entries.iter().position(|entry| same(&entry.target, &target));
            let discovered = at.map(|at| entries[at].discovered.clone()).unwrap_or_default();
            let entry = Arc::new(Entry { target, priority, available, discovered });
            match at {
                Some(at) if entries[at] == entry => return false,
                Some(at) => entries[at] = entry,
                None => entries.push(entry),
            }
            true
        });
    }

    /// Sets the discovery of a group version that is still registered.
    pub fn set_discovered(&self, target: &Target, discovered: DiscoveredApi) {
        self.change(|entries| {
            let found = entries.iter_mut().find(|entry| entry.target == *target);
            let Some(entry) = found.filter(|entry| *entry.discovered != discovered) else { return false };
            *entry = Arc::new(Entry { discovered: Arc::new(discovered), ..Entry::clone(entry) });
            true
        });
    }

    /// Removes an entry.
    pub fn remove(&self, target: &Target) {
        self.change(|entries| {
            let before = entries.len();
            entries.retain(|entry| !same(&entry.target, target));
            entries.len() != before
        });
    }

    fn change(&self, edit: impl FnOnce(&mut Vec<Arc<Entry>>) -> bool) {
        let _one_at_a_time = self.writing.lock();
        let mut entries = Vec::clone(&self.entries.load());
        if edit(&mut entries) {
            self.entries.store(Arc::new(entries));
            self.generation.fetch_add(1, Ordering::Release);
        }
    }
}

fn same(a: &Target, b: &Target) -> bool {
    (&a.group, &a.version) == (&b.group, &b.version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::Schema as _;
    use coracle_fields::apiregistration::v1::APIService;
    use serde_json::json;

    #[test]
    fn paths_lead_to_their_servers() {
        let table = RouteTable::default();
        let get = |path: &str| RequestInfo::parse(&http::Method::GET, path, &[]);
        assert!(table.route(&get("/apis/demo.io/v1")).is_none());
        let registration = json!({"spec": {"group": "demo.io", "version": "v1",
            "service": {"namespace": "apart", "name": "boats"}}});
        let target = Target::of(APIService::of(&registration)).unwrap();
        table.put(target.clone(), (1000, 15), false);
        let openapi = BTreeMap::from([("apis/demo.io/v1".to_owned(), json!({}))]);
        table.set_discovered(&target, DiscoveredApi { fresh: true, openapi, ..DiscoveredApi::default() });
        let generation = table.generation();
        table.put(target.clone(), (1000, 15), true);
        assert!(
            table.generation() > generation && table.all()[0].discovered.fresh,
            "what was discovered stays"
        );
        let generation = table.generation();
        table.put(target.clone(), (1000, 15), true);
        assert_eq!(table.generation(), generation, "nothing changed");
        for (path, there) in [
            ("/apis/demo.io/v1", true),
            ("/apis/demo.io/v1/namespaces/a/boats", true),
            ("/apis/%64emo.io/v1/boats", true),
            ("/apis/demo.io%2fv1/boats", false),
            ("/openapi/v3/apis/demo.io/v1", true),
            ("/apis/demo.io/v1beta1", false),
            ("/apis/demo.io", false),
            ("//apis/demo.io/v1", false),
            ("/openapi/v3/apis/apps/v1", false),
        ] {
            assert_eq!(table.route(&get(path)).is_some(), there, "{path}");
        }
        table.remove(&target);
        assert!(table.route(&get("/apis/demo.io/v1")).is_none());
    }
}
