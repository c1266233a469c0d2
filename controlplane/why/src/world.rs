//! What is known about a cluster so far. The analysis is synchronous and pure: it reads from here. What is not known yet is
//! recorded, asked from the cluster, and the analysis runs again, until nothing is missing.

use crate::cluster::{Access, Answer, Cluster, Need};
use crate::finding::{Finding, ObjectRef, metadata};
use crate::kinds::Resource;
use coracle_fields::core::v1::Event;
use coracle_fields::meta::ObjectMeta;
use coracle_fields::{Json, Kind, Schema as _, View};
use coracle_proto::time::parse_time;
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// How often the analysis may ask for more.
const ROUNDS: usize = 12;
/// How many questions are under way at a time.
const CONCURRENT: usize = 8;

/// Finds the causes of an object's trouble. The references that led to it are the last argument, and end with the object.
pub type Inspect = fn(&World, &ObjectRef, &[ObjectRef]) -> Vec<Finding>;

/// Answers of a cluster.
#[derive(Debug)]
pub struct World {
    answers: BTreeMap<Need, Answer>,
    wanted: RefCell<BTreeSet<Need>>,
    now: Timestamp,
    wide: bool,
    inspect: Inspect,
}

/// Objects of a list.
pub struct Listed<'a, K> {
    /// The objects, none when the list is not known.
    pub items: Vec<View<'a, K>>,
    /// Whether all objects are there: nothing may be concluded from what is missing otherwise.
    pub complete: bool,
}

/// The answer to a question for one object.
pub enum Found<'a, K> {
    /// It exists.
    Yes(View<'a, K>),
    /// It does not exist.
    No,
    /// Not known: not asked yet, not allowed, or failed.
    Unknown,
}

impl<'a, K> Found<'a, K> {
    /// The object, when it exists.
    pub fn view(self) -> Option<View<'a, K>> {
        match self {
            Self::Yes(view) => Some(view),
            Self::No | Self::Unknown => None,
        }
    }

    /// Whether it is certain that it does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::No)
    }
}

impl World {
    /// A world of which nothing is known. `wide` reads lists of all namespaces at once, for an analysis of the whole cluster.
    /// `inspect` explains the objects that others refer to.
    pub fn new(now: Timestamp, wide: bool, inspect: Inspect) -> Self {
        Self { answers: BTreeMap::new(), wanted: RefCell::default(), now, wide, inspect }
    }

    /// Runs an analysis until it asks for nothing more.
    pub async fn explore<C: Cluster, T>(&mut self, cluster: &C, analyse: impl Fn(&World) -> T) -> T {
        for _ in 0..ROUNDS {
            let result = analyse(self);
            let wanted = self.wanted.take();
            if wanted.is_empty() {
                return result;
            }
            let requests = wanted.into_iter().map(|need| async move {
                let answer = cluster.answer(&need).await;
                (need, answer)
            });
            let answers: Vec<(Need, Answer)> =
                futures::stream::iter(requests).buffer_unordered(CONCURRENT).collect().await;
            self.answers.extend(answers);
        }
        let result = analyse(self);
        self.wanted.borrow_mut().clear();
        result
    }

    /// The time of the analysis.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Seconds since a time of the API.
    pub fn age(&self, time: &str) -> Option<i64> {
        Some(self.now.as_second() - parse_time(time)?.as_second())
    }

    /// Whether a time of the API is at least so many seconds ago; a missing time is.
    pub fn older(&self, time: &str, seconds: i64) -> bool {
        self.age(time).is_none_or(|age| age >= seconds)
    }

    /// Whether the analysis is of the whole cluster.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    pub(crate) fn inspect(&self, object: &ObjectRef, trail: &[ObjectRef]) -> Vec<Finding> {
        (self.inspect)(self, object, trail)
    }

    pub(crate) fn ask(&self, need: Need) -> Option<&Answer> {
        let answer = self.answers.get(&need);
        if answer.is_none() {
            self.wanted.borrow_mut().insert(need);
        }
        answer
    }

    /// The answers that were given.
    pub fn answers(&self) -> impl Iterator<Item = (&Need, &Answer)> {
        self.answers.iter()
    }

    /// The objects of a list, of one namespace or of all.
    fn items(&self, resource: Resource, namespace: Option<&str>) -> Option<(&[Value], bool)> {
        let namespace = namespace.filter(|_| resource.namespaced).map(str::to_owned);
        match self.ask(Need::List { resource, namespace })? {
            Answer::Items(items, truncated) => Some((items.as_slice(), !truncated)),
            Answer::Absent => Some((Default::default(), true)),
            _ => None,
        }
    }

    /// The objects of a kind, of one namespace or of all.
    pub fn list<K: Kind>(&self, namespace: Option<&str>) -> Listed<'_, K> {
        let resource = Resource::of::<K>();
        let wide = namespace.is_some() && resource.namespaced && self.wide;
        let found = if wide {
            // Those who may not read all namespaces may be able to read this one.
            self.items(resource.clone(), None).or_else(|| {
                let all = Need::List { resource: resource.clone(), namespace: None };
                if self.answers.contains_key(&all) { self.items(resource, namespace) } else { None }
            })
        } else {
            self.items(resource, namespace)
        };
        let Some((items, complete)) = found else { return Listed { items: Vec::new(), complete: false } };
        let views = items.iter().map(K::of);
        let items = match namespace {
            Some(namespace) if wide => {
                views.filter(|view| metadata(*view).namespace() == namespace).collect()
            }
            _ => views.collect(),
        };
        Listed { items, complete }
    }

    /// One object. The namespace of cluster-scoped ones is ignored.
    pub fn get<K: Kind>(&self, namespace: &str, name: &str) -> Found<'_, K> {
        let resource = Resource::of::<K>();
        let namespace = if resource.namespaced { namespace } else { "" };
        if let Some(found) = self.get_listed(&resource, namespace, name) {
            return found;
        }
        match self.object(&resource, namespace, name) {
            Some(Answer::Object(object)) => Found::Yes(K::of(object)),
            Some(Answer::Absent) => Found::No,
            _ => Found::Unknown,
        }
    }

    /// One object, from lists that were read already.
    fn get_listed<K: Kind>(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Found<'_, K>> {
        for scope in [None, Some(namespace.to_owned())] {
            let Some(Answer::Items(items, truncated)) =
                self.answers.get(&Need::List { resource: resource.clone(), namespace: scope })
            else {
                continue;
            };
            let mut views = items.iter().map(K::of);
            let found = views.find(|view| {
                let meta = metadata(*view);
                meta.name() == name && meta.namespace() == namespace
            });
            match found {
                Some(view) => return Some(Found::Yes(view)),
                None if !truncated => return Some(Found::No),
                None => {}
            }
        }
        None
    }

    /// The answer to a question for one object of any resource.
    pub fn object(&self, resource: &Resource, namespace: &str, name: &str) -> Option<&Answer> {
        let namespace = (resource.namespaced && !namespace.is_empty()).then(|| namespace.to_owned());
        self.ask(Need::Object { resource: resource.clone(), namespace, name: name.to_owned() })
    }

    /// Names of the objects of a resource; none when they are not known.
    pub fn names(&self, resource: &Resource, namespace: &str) -> Vec<&str> {
        self.metadata(resource, Some(namespace)).into_iter().map(|meta| meta.name().text()).collect()
    }

    /// The metadata of the objects of a resource; none when they are not known.
    pub fn metadata(&self, resource: &Resource, namespace: Option<&str>) -> Vec<View<'_, ObjectMeta>> {
        let namespace = namespace.filter(|_| resource.namespaced).map(str::to_owned);
        let list = Need::List { resource: resource.clone(), namespace: namespace.clone() };
        let listed = self.answers.get(&list);
        let answer = listed.or_else(|| self.ask(Need::Names { resource: resource.clone(), namespace }));
        let Some(Answer::Items(items, _)) = answer else { return Vec::new() };
        items.iter().map(|item| metadata(View::<Json>::from(item))).collect()
    }

    /// Events of an object, the oldest first.
    pub fn events(&self, object: &ObjectRef) -> Vec<View<'_, Event>> {
        let namespace = if object.namespace.is_empty() { "default" } else { object.namespace.as_str() };
        let mut events: Vec<View<'_, Event>> = if self.wide {
            let all = self.list::<Event>(Some(namespace)).items.into_iter();
            all.filter(|event| {
                let about = event.involved_object();
                about.name() == object.name && about.kind() == object.kind
            })
            .collect()
        } else {
            let need = Need::Events {
                namespace: namespace.to_owned(),
                kind: object.kind.clone(),
                name: object.name.clone(),
            };
            match self.ask(need) {
                Some(Answer::Items(items, _)) => items.iter().map(Event::of).collect(),
                _ => Vec::new(),
            }
        };
        events.sort_by_key(|event| parse_time(crate::events::last_seen(*event)));
        // An earlier object of the same name, such as a pod of a StatefulSet, has another uid.
        let latest = events.last().map_or("", |event| event.involved_object().uid().text());
        events.retain(|event| {
            let uid = event.involved_object().uid().text();
            uid.is_empty() || latest.is_empty() || uid == latest
        });
        events
    }

    /// The last lines of a container's log, when they could be read.
    pub fn log(&self, pod: View<'_, ObjectMeta>, container: &str, previous: bool) -> Option<&str> {
        let need = Need::Log {
            namespace: pod.namespace().text().to_owned(),
            pod: pod.name().text().to_owned(),
            container: container.to_owned(),
            previous,
        };
        match self.ask(need)? {
            Answer::Text(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The timelines of the newest changes of an object, where the server has timelines.
    pub fn trace(&self, resource: &Resource, namespace: &str, name: &str) -> Option<&Value> {
        let namespace = (resource.namespaced && !namespace.is_empty()).then(|| namespace.to_owned());
        match self.ask(Need::Trace { resource: resource.clone(), namespace, name: name.to_owned() })? {
            Answer::Object(trace) => Some(trace),
            _ => None,
        }
    }

    /// Whether a user has a permission, when it is known.
    pub fn allowed(&self, access: Access) -> Option<bool> {
        match self.ask(Need::Access(access))? {
            Answer::Allowed(allowed) => Some(*allowed),
            _ => None,
        }
    }

    /// Seconds that the server's clock is ahead, when it is known.
    pub fn server_ahead(&self) -> Option<i64> {
        match self.ask(Need::Clock)? {
            Answer::Ahead(seconds) => Some(*seconds),
            _ => None,
        }
    }
}
