//! Groups and versions, in discovery order.

use crate::aggregation::routes::Entry;
use crate::apiservices::priority;
use coracle_kinds::registry::kinds::Kind;
use std::cmp::Reverse;
use std::sync::Arc;

/// A group with its versions, the preferred one first.
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its versions.
    pub versions: Vec<Version>,
}

/// A version of a group.
pub struct Version {
    /// Its name.
    pub name: String,
    /// Where it is served.
    pub served: Served,
}

/// Where a version is served.
pub enum Served {
    /// By this server: its kinds.
    Local(Vec<Arc<Kind>>),
    /// By an aggregated API server.
    Aggregated(Arc<Entry>),
}

/// Every group. What others serve stands in place of what is served here; with others there, groups and versions stand by
/// the priorities of their APIServices.
pub fn all(rows: &[Arc<Kind>], aggregated_apis: &[Arc<Entry>]) -> Vec<Group> {
    let mut groups = local_groups(rows);
    if aggregated_apis.is_empty() {
        return groups;
    }
    for entry in aggregated_apis {
        let target = &entry.target;
        let at = groups.iter().position(|group| group.name == target.group).unwrap_or_else(|| {
            groups.push(Group { name: target.group.clone(), versions: Vec::new() });
            groups.len() - 1
        });
        let versions = &mut groups[at].versions;
        versions.retain(|version| version.name != target.version);
        versions.push(Version { name: target.version.clone(), served: Served::Aggregated(entry.clone()) });
    }
    let of = |group: &str, version: &Version| match &version.served {
        Served::Local(kinds) => {
            priority(group, &version.name, kinds.iter().any(|kind| kind.custom.is_some()))
        }
        Served::Aggregated(entry) => entry.priority,
    };
    for group in &mut groups {
        let name = group.name.clone();
        group.versions.sort_by_key(|version| Reverse((of(&name, version).1, rank(&version.name))));
    }
    groups.sort_by_cached_key(|group| {
        let highest = group.versions.iter().map(|version| of(&group.name, version).0).max();
        (Reverse(highest), group.name.clone())
    });
    groups
}

/// The kinds of a version, by its name.
type Kinds = (String, Vec<Arc<Kind>>);

/// Groups in the order of the table, versions by maturity and number.
fn local_groups(rows: &[Arc<Kind>]) -> Vec<Group> {
    let mut groups: Vec<(String, Vec<Kinds>)> = Vec::new();
    for row in rows {
        let at = groups.iter().position(|(name, _)| *name == row.group).unwrap_or_else(|| {
            groups.push((row.group.clone(), Vec::new()));
            groups.len() - 1
        });
        let versions = &mut groups[at].1;
        match versions.iter_mut().find(|(version, _)| *version == row.version) {
            Some((_, kinds)) => kinds.push(row.clone()),
            None => versions.push((row.version.clone(), vec![row.clone()])),
        }
    }
    let version = |(name, mut kinds): Kinds| {
        kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
        Version { name, served: Served::Local(kinds) }
    };
    let group = |(name, mut versions): (String, Vec<Kinds>)| {
        versions.sort_by_key(|(version, _)| Reverse(rank(version)));
        Group { name, versions: versions.into_iter().map(version).collect() }
    };
    groups.into_iter().map(group).collect()
}

/// `v2` before `v1` before `v1beta1` before `v1alpha1`; anything else after that.
pub(crate) fn rank(version: &str) -> (u8, u32, u32, Reverse<String>) {
    let other = (0, 0, 0, Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return other };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(digits);
    let Ok(major) = major.parse() else { return other };
    let (stage, minor) = match rest {
        "" => return (3, major, 0, Reverse(String::new())),
        _ if rest.starts_with("beta") => (2, &rest[4..]),
        _ if rest.starts_with("alpha") => (1, &rest[5..]),
        _ => return other,
    };
    minor.parse().map_or(other, |minor| (stage, major, minor, Reverse(String::new())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::aggregation::target::Target;
    use coracle_fields::Schema as _;
    use coracle_fields::apiregistration::v1::APIService;
    use coracle_kinds::registry::index::Registry;
    use serde_json::json;

    #[test]
    fn versions_are_ordered_by_maturity() {
        let mut versions = ["v1alpha1", "foo1", "v1", "v2beta2", "v10", "v2", "v2beta10", "v1beta1"];
        versions.sort_by_key(|v| Reverse(rank(v)));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta10", "v2beta2", "v1beta1", "v1alpha1", "foo1"]);
    }

    #[test]
    fn groups_of_others_stand_where_their_priorities_say() {
        let registry = Registry::builtin();
        registry.register(Kind::new("demo.io", "v2", "Boat", "boats"));
        let entry = |group: &str, version: &str, priority| {
            let service = json!({"namespace": "apart", "name": "boats"});
            let spec = json!({"group": group, "version": version, "service": service});
            let target = Target::of(APIService::of(&json!({"spec": spec}))).unwrap();
            Arc::new(Entry { target, priority, available: true, discovered: Arc::default() })
        };
        let before: Vec<String> = all(&registry.all(), &[]).into_iter().map(|group| group.name).collect();
        let others = [
            entry("late.io", "v1", (10, 10)),
            entry("demo.io", "v1", (17_790, 200)),
            entry("demo.io", "v1beta1", (10, 200)),
        ];
        let groups = all(&registry.all(), &others);
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names[..4], ["apiregistration.k8s.io", "", "apps", "demo.io"]);
        assert_eq!(names.last(), Some(&"late.io"));
        assert_eq!(names.len(), before.len() + 1);
        let demo: Vec<&str> = groups[3].versions.iter().map(|version| version.name.as_str()).collect();
        assert_eq!(demo, ["v1", "v1beta1", "v2"]);
        let instead = all(&registry.all(), &[entry("demo.io", "v2", (1000, 100))]);
        let demo = instead.iter().find(|group| group.name == "demo.io").unwrap();
        assert!(matches!(&demo.versions[..], [Version { served: Served::Aggregated(_), .. }]));
    }
}
