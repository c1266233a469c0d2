//! Lookup of rows of the table, by resource or by kind. Rows of custom resources are added and removed at run time; readers
//! never block.

use super::features::Features;
use super::kinds::Kind;
use super::older::{self, OlderVersion};
use super::table;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

type Key = (String, String, String);

#[derive(Default)]
struct Tables {
    rows: Vec<Arc<Kind>>,
    by_resource: HashMap<Key, Arc<Kind>>,
    by_kind: HashMap<Key, Arc<Kind>>,
}

impl Tables {
    fn of(rows: Vec<Arc<Kind>>) -> Self {
        let key = |row: &Kind, third: &str| (row.group.clone(), row.version.clone(), third.to_owned());
        let by_resource = rows.iter().map(|row| (key(row, &row.plural), row.clone())).collect();
        let by_kind = rows.iter().map(|row| (key(row, &row.kind), row.clone())).collect();
        Self { rows, by_resource, by_kind }
    }
}

/// Every kind the server serves at this moment.
///
/// ```
/// use coracle_kinds::registry::index::Registry;
///
/// let registry = Registry::builtin();
/// let row = registry.resource("apps", "v1", "deployments").expect("a built-in kind");
/// assert_eq!((row.kind.as_str(), row.short_names.as_slice()), ("Deployment", ["deploy".to_owned()].as_slice()));
/// assert!(registry.resource("apps", "v1", "ships").is_none());
/// ```
pub struct Registry {
    tables: ArcSwap<Tables>,
    writer: Mutex<()>,
    changes: watch::Sender<u64>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Registry {
    /// With the built-in kinds.
    pub fn builtin() -> Self {
        Self::with(Features::default())
    }

    /// The same with features that are off by default.
    pub fn with(features: Features) -> Self {
        Self::serving(features, |_| false)
    }

    /// The same with older versions.
    pub fn serving(features: Features, is_on: impl Fn(&OlderVersion) -> bool) -> Self {
        let mut rows = table::builtin();
        features.apply(&mut rows);
        let views: Vec<Kind> = older::VERSIONS
            .iter()
            .filter(|version| is_on(version))
            .flat_map(|version| older::rows(version, &rows))
            .collect();
        rows.extend(views);
        let rows = rows.into_iter().map(Arc::new).collect();
        Self {
            tables: ArcSwap::from_pointee(Tables::of(rows)),
            writer: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// The row of a resource such as (`apps`, `v1`, `deployments`).
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.tables.load().by_resource.get(&(group.into(), version.into(), plural.into())).cloned()
    }

    /// The row of a kind such as (`apps`, `v1`, `Deployment`).
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.tables.load().by_kind.get(&(group.into(), version.into(), kind.into())).cloned()
    }

    /// The row of a resource in the group's first version that has it and stores it as it is.
    pub fn preferred(&self, group: &str, plural: &str) -> Option<Arc<Kind>> {
        let tables = self.tables.load();
        let matching = || tables.rows.iter().filter(|row| row.group == group && row.plural == plural);
        let as_stored = |row: &&Arc<Kind>| {
            row.stored_as.is_none()
                && row.custom.as_ref().is_none_or(|custom| custom.storage_version == row.version)
        };
        matching().find(as_stored).or_else(|| matching().next()).cloned()
    }

    /// Every row of a resource of this name, whatever its group and version.
    pub fn rows_of(&self, plural: &str) -> Vec<Arc<Kind>> {
        self.tables.load().rows.iter().filter(|row| row.plural == plural).cloned().collect()
    }

    /// Every row, in the order of the table; run-time rows last.
    pub fn all(&self) -> Vec<Arc<Kind>> {
        self.tables.load().rows.clone()
    }

    /// Adds a row, or replaces the one of the same resource.
    pub fn register(&self, kind: Kind) -> Arc<Kind> {
        let row = Arc::new(kind);
        let same = row.clone();
        self.change(|rows| match rows.iter_mut().find(|old| same_resource(old, &same)) {
            Some(old) => *old = same.clone(),
            None => rows.push(same.clone()),
        });
        row
    }

    /// Removes a row; nothing happens when there is none.
    pub fn unregister(&self, group: &str, version: &str, plural: &str) {
        self.change(|rows| {
            rows.retain(|row| (&*row.group, &*row.version, &*row.plural) != (group, version, plural));
        });
    }

    /// A receiver that wakes up whenever rows came or went (discovery and OpenAPI are rebuilt then).
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn change(&self, edit: impl FnOnce(&mut Vec<Arc<Kind>>)) {
        let _one_at_a_time = self.writer.lock();
        let mut rows = self.tables.load().rows.clone();
        edit(&mut rows);
        self.tables.store(Arc::new(Tables::of(rows)));
        self.changes.send_modify(|count| *count += 1);
    }
}

fn same_resource(a: &Kind, b: &Kind) -> bool {
    (&a.group, &a.version, &a.plural) == (&b.group, &b.version, &b.plural)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rows_come_and_go() {
        let registry = Registry::builtin();
        let mut changes = registry.changes();
        assert!(registry.resource("demo.io", "v1", "boats").is_none());
        registry.register(Kind::new("demo.io", "v1", "Boat", "boats"));
        registry.register(Kind::new("demo.io", "v1", "Boat", "boats").short(&["bt"]));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        let row = registry.kind("demo.io", "v1", "Boat").unwrap();
        assert_eq!(row.short_names, ["bt"]);
        assert_eq!(registry.all().iter().filter(|row| row.group == "demo.io").count(), 1);
        registry.unregister("demo.io", "v1", "boats");
        assert!(registry.resource("demo.io", "v1", "boats").is_none());
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn views_share_the_keys_of_what_is_stored() {
        let registry = Registry::builtin();
        let core = registry.resource("", "v1", "events").unwrap();
        let view = registry.resource("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(core.key("default", "a"), "/registry/events/default/a");
        assert_eq!(core.key("default", "a"), view.key("default", "a"));
        assert_eq!(registry.preferred("autoscaling", "horizontalpodautoscalers").unwrap().version, "v2");
    }
}
