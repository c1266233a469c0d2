//! Changes of a kubeconfig that has entries of others too. Only entries that this program wrote are replaced or removed.

use super::entry::{Entry, MARK};
use serde_json::{Map, Value, json};

/// Why a kubeconfig is not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum MergeError {
    /// It is a list or a word.
    #[error("it is not a kubeconfig: want a mapping with clusters, users and contexts")]
    NoMapping,
    /// One of its lists is something else.
    #[error("it is not a kubeconfig: {0} is no list")]
    NoList(&'static str),
    /// Another program's entry.
    #[error("it has a {kind} {name} that coracle did not write: choose another name with --context")]
    Foreign { kind: &'static str, name: String },
}

/// The kubeconfig with the entry: new, or in place of one that was written before. `there` is null for a file that does not
/// exist or is empty.
pub(super) fn add(there: Value, entry: &Entry, select: bool) -> Result<Value, MergeError> {
    let mut config = mapping(there)?;
    for (name, value) in [("apiVersion", "v1"), ("kind", "Config")] {
        config.entry(name).or_insert_with(|| json!(value));
    }
    check_ours(&config, &entry.context)?;
    let places = [
        position(&config, "clusters", entry),
        position(&config, "users", entry),
        position(&config, "contexts", entry),
    ];
    remove_entries(&mut config, &entry.context)?;
    for ((list, part), place) in entry.parts().into_iter().zip(places) {
        let entries = list_mut(&mut config, list)?;
        entries.insert(place.unwrap_or(entries.len()).min(entries.len()), part);
    }
    let current = config.entry("current-context").or_insert_with(|| json!(""));
    if select || current.as_str().is_none_or(str::is_empty) {
        *current = json!(entry.context);
    }
    Ok(config.into())
}

/// The kubeconfig without the context, its cluster and its users.
pub(super) fn remove(there: Value, context: &str) -> Result<Value, MergeError> {
    let mut config = match there {
        Value::Null => return Ok(Value::Null),
        other => mapping(other)?,
    };
    if !named(&config, "clusters", context).is_some_and(is_ours) {
        return match named(&config, "contexts", context) {
            Some(_) => Err(MergeError::Foreign { kind: "context", name: context.to_owned() }),
            None => Ok(config.into()),
        };
    }
    remove_entries(&mut config, context)?;
    if config.get("current-context").is_some_and(|current| current == context) {
        config.insert("current-context".into(), json!(""));
    }
    Ok(config.into())
}

fn mapping(there: Value) -> Result<Map<String, Value>, MergeError> {
    match there {
        Value::Null => Ok(Map::new()),
        Value::Object(map) => Ok(map),
        _ => Err(MergeError::NoMapping),
    }
}

/// An entry of the name of ours must be ours: the cluster has a mark, and users and contexts belong to it.
fn check_ours(config: &Map<String, Value>, context: &str) -> Result<(), MergeError> {
    let foreign = |kind| Err(MergeError::Foreign { kind, name: context.to_owned() });
    match (named(config, "clusters", context), named(config, "contexts", context)) {
        (Some(cluster), _) if !is_ours(cluster) => foreign("cluster"),
        (None, Some(_)) => foreign("context"),
        _ => Ok(()),
    }
}

fn is_ours(cluster: &Value) -> bool {
    let marks = cluster.pointer("/cluster/extensions").and_then(Value::as_array);
    marks.is_some_and(|marks| marks.iter().any(|mark| mark["name"] == MARK))
}

fn named<'a>(config: &'a Map<String, Value>, list: &str, name: &str) -> Option<&'a Value> {
    config.get(list)?.as_array()?.iter().find(|entry| entry["name"] == name)
}

fn position(config: &Map<String, Value>, list: &str, entry: &Entry) -> Option<usize> {
    let (_, part) = entry.parts().into_iter().find(|(name, _)| *name == list)?;
    config.get(list)?.as_array()?.iter().position(|there| there["name"] == part["name"])
}

/// Removes the cluster and the context of a name, and users with the name behind an `@`.
fn remove_entries(config: &mut Map<String, Value>, context: &str) -> Result<(), MergeError> {
    let suffix = format!("@{context}");
    for list in ["clusters", "contexts"] {
        list_mut(config, list)?.retain(|entry| entry["name"] != context);
    }
    let is_user = |entry: &Value| entry["name"].as_str().is_some_and(|name| name.ends_with(&suffix));
    list_mut(config, "users")?.retain(|entry| !is_user(entry));
    Ok(())
}

fn list_mut<'a>(
    config: &'a mut Map<String, Value>,
    list: &'static str,
) -> Result<&'a mut Vec<Value>, MergeError> {
    let value = config.entry(list).or_insert_with(|| json!([]));
    // kubectl writes null for an empty list.
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().ok_or(MergeError::NoList(list))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn foreign() -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "preferences": {"colors": true},
            "clusters": [{"name": "work", "cluster": {"server": "https://work", "proxy-url": "http://p"}}],
            "users": [{"name": "me", "user": {"exec": {"command": "login", "args": ["-x"]}}}],
            "contexts": [{"name": "work", "context": {"cluster": "work", "user": "me", "namespace": "n"}}],
            "current-context": "work",
        })
    }

    fn names(config: &Value, list: &str) -> Vec<String> {
        let entries = config[list].as_array().unwrap().iter();
        entries.map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn entries_of_others_stay_and_ours_are_replaced() {
        let first = add(foreign(), &Entry::example("coracle", "https://one"), true).unwrap();
        assert_eq!(names(&first, "users"), ["me", "admin@coracle"]);
        assert_eq!(first["current-context"], "coracle");
        let second = add(first, &Entry::example("coracle", "https://two"), true).unwrap();
        let both = add(second, &Entry::example("coracle-a", "https://a"), false).unwrap();
        assert_eq!(names(&both, "clusters"), ["work", "coracle", "coracle-a"]);
        assert_eq!(both["clusters"][1]["cluster"]["server"], "https://two");
        assert_eq!(both["current-context"], "coracle", "--keep-current");
        let rest = remove(remove(both, "coracle-a").unwrap(), "coracle").unwrap();
        let mut expected = foreign();
        expected["current-context"] = json!("");
        assert_eq!(rest, expected);
    }

    #[test]
    fn a_file_that_is_empty_or_has_null_lists_is_filled() {
        let null = json!({"clusters": null, "users": null, "contexts": null, "current-context": ""});
        for there in [Value::Null, json!({}), null] {
            let config = add(there, &Entry::example("coracle", "https://one"), false).unwrap();
            assert_eq!((&config["kind"], &config["current-context"]), (&json!("Config"), &json!("coracle")));
        }
        assert_eq!(remove(Value::Null, "coracle").unwrap(), Value::Null);
    }

    #[test]
    fn what_coracle_did_not_write_is_not_touched() {
        let work = Entry::example("work", "https://one");
        assert!(matches!(add(foreign(), &work, true), Err(MergeError::Foreign { kind: "cluster", .. })));
        assert!(matches!(remove(foreign(), "work"), Err(MergeError::Foreign { kind: "context", .. })));
        assert_eq!(remove(foreign(), "coracle").unwrap(), foreign());
        let only_context = json!({"contexts": [{"name": "coracle", "context": {"cluster": "work"}}]});
        let ours = Entry::example("coracle", "https://one");
        assert!(matches!(add(only_context, &ours, true), Err(MergeError::Foreign { kind: "context", .. })));
        assert!(matches!(add(json!([]), &ours, true), Err(MergeError::NoMapping)));
        assert!(matches!(add(json!({"users": 3}), &ours, true), Err(MergeError::NoList("users"))));
    }
}
