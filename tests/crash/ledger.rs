//! What was written, what must be there after a crash, and what every watcher must have seen. Each key has one writer,
//! so that its writes are a sequence of which at most the last one is in doubt.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A kind of object that is written.
pub struct Sort {
    pub path: &'static str,
    /// Whether a crash may take acknowledged writes of it: Leases only.
    pub lazy: bool,
    body: fn() -> Value,
}

const NAMESPACE: &str = "/namespaces/default/";

/// Several, so that caches, defaults, address allocation and both API roots take part.
pub const SORTS: [Sort; 5] = [
    Sort { path: "/api/v1/namespaces/default/configmaps", lazy: false, body: || json!({"data": {"a": "b"}}) },
    Sort { path: "/api/v1/namespaces/default/secrets", lazy: false, body: || json!({"type": "Opaque"}) },
    Sort {
        path: "/apis/apps/v1/namespaces/default/deployments",
        lazy: false,
        body: || {
            json!({"spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            }})
        },
    },
    Sort {
        path: "/api/v1/namespaces/default/services",
        lazy: false,
        body: || json!({"spec": {"ports": [{"port": 80}]}}),
    },
    Sort {
        path: "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        lazy: true,
        body: || json!({"spec": {"leaseDurationSeconds": 5}}),
    },
];

impl Sort {
    /// An object that carries a mark.
    pub fn object(&self, name: &str, mark: &str) -> Value {
        let mut object = (self.body)();
        object["metadata"] = json!({"name": name, "annotations": {"mark": mark}});
        object
    }

    pub fn name(&self) -> &'static str {
        self.path.split_once(NAMESPACE).unwrap().1
    }
}

/// The mark that an object carries.
pub fn mark_of(object: &Value) -> Option<String> {
    object["metadata"]["annotations"]["mark"].as_str().map(str::to_owned)
}

pub fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Sort and name.
pub type Key = (usize, String);
/// The mark of an object, `None` when there is none.
pub type State = Option<String>;

#[derive(Default)]
struct History {
    /// As last checked.
    checked: State,
    /// Acknowledged since, in order.
    done: Vec<State>,
    /// Sent, without an answer.
    doubtful: Option<State>,
}

impl History {
    fn now(&self) -> &State {
        self.done.last().unwrap_or(&self.checked)
    }
}

/// The books.
#[derive(Default)]
pub struct Ledger {
    keys: HashMap<Key, History>,
    versions: BTreeSet<u64>,
    /// The newest revision that anybody was told of.
    pub newest: u64,
    pub acknowledged: usize,
}

impl Ledger {
    /// The state of a key, for its writer.
    pub fn now(&self, key: &Key) -> State {
        self.keys.get(key).and_then(|history| history.now().clone())
    }

    /// A write is about to be sent.
    pub fn sent(&mut self, key: &Key, state: State) {
        let history = self.keys.entry(key.clone()).or_default();
        assert!(history.doubtful.is_none(), "{key:?} has one writer");
        history.doubtful = Some(state);
    }

    /// It was acknowledged; removals of most kinds are answered without a revision.
    pub fn acknowledged(&mut self, key: &Key, version: Option<u64>) {
        let history = self.keys.get_mut(key).unwrap();
        history.done.extend(history.doubtful.take());
        self.acknowledged += 1;
        if let Some(version) = version {
            assert!(self.versions.insert(version), "revision {version} was given out twice");
            self.newest = self.newest.max(version);
        }
    }

    /// All of a key's writes were compared already.
    pub fn seen(&mut self, key: &Key) {
        let history = self.keys.get_mut(key).unwrap();
        history.checked = history.now().clone();
        history.done.clear();
    }

    /// Compares a list that was read after a crash, and settles what was in doubt. Returns what watchers must have seen
    /// of each key since the last time.
    pub fn check(&mut self, sort: usize, list: &Value) -> BTreeMap<String, Vec<State>> {
        let version = version_of(list);
        assert!(version >= self.newest, "a list at {version} after {}", self.newest);
        self.newest = version;
        let found: HashMap<&str, &Value> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|object| mark_of(object).is_some())
            .map(|object| (object["metadata"]["name"].as_str().unwrap(), object))
            .collect();
        let mut seen = BTreeMap::new();
        for ((_, name), history) in self.keys.iter_mut().filter(|((of, _), _)| *of == sort) {
            let now = found.get(name.as_str()).and_then(|object| mark_of(object));
            let doubtful = history.doubtful.take();
            if SORTS[sort].lazy {
                let known = [&history.checked].into_iter().chain(&history.done).chain(&doubtful);
                assert!(known.into_iter().any(|state| *state == now), "{name} is {now:?}");
            } else if *history.now() != now {
                let expected = (history.now().clone(), doubtful.clone());
                assert_eq!(doubtful.as_ref(), Some(&now), "{sort} {name} must be one of {expected:?}");
                history.done.push(now.clone());
            }
            history.checked = now;
            seen.insert(name.clone(), std::mem::take(&mut history.done));
        }
        for name in found.keys() {
            assert!(self.keys.contains_key(&(sort, (*name).to_owned())), "nobody made {name}");
        }
        seen
    }
}
