//! Which objects a node may report spans about: pods that run on it or did, its own Node, Services and EndpointSlices.

use coracle_apiserver::objects::Objects;
use coracle_kinds::object::Object;
use coracle_timeline::{CollectorHandle, Question, StoredRecord, assemble, find};
use coracle_trace::{Part, Record, SpanId, Stage, Uid};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore};

/// How often the caches are read for objects that are not known.
const REFRESH: Duration = Duration::from_secs(1);
/// How long deleted objects are remembered.
const REMEMBERED: Duration = Duration::from_secs(15 * 60);
/// How many objects are searched in the timeline for one delivery, and how many spans are read for each.
const SEARCHED: usize = 16;
const SPANS: usize = 2000;
/// Records about the agent itself in one delivery: restarts and losses.
const OF_AGENT: usize = 8;
/// The uid of a static pod, in the annotations of its mirror.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What an object is to nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// A pod or a Node: it belongs to the node of this name.
    Node(Arc<str>),
    /// A Service or an EndpointSlice: every node programs rules for it.
    Network,
}

#[derive(Default)]
struct Index {
    places: HashMap<Uid, (Place, Instant)>,
    refreshed: Option<Instant>,
}

/// Decides which records of a node are taken.
pub struct Placement {
    objects: Arc<Objects>,
    collector: CollectorHandle,
    index: Mutex<Index>,
    /// Searches read the disk: one at a time.
    searches: Semaphore,
}

#[derive(Deserialize)]
struct WithAnnotations {
    metadata: Annotations,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(default)]
    annotations: HashMap<String, String>,
}

impl Placement {
    /// By the caches, and for pods that are gone by the timeline.
    pub fn new(objects: Arc<Objects>, collector: CollectorHandle) -> Self {
        Self { objects, collector, index: Mutex::default(), searches: Semaphore::new(1) }
    }

    /// Removes records that are not about objects of the node; how many.
    pub async fn keep_own(&self, node: &str, records: &mut Vec<StoredRecord>) -> usize {
        let before = records.len();
        records.retain(|stored| is_of_nodes(&stored.record));
        let uids: HashSet<Uid> =
            records.iter().map(|stored| stored.record.subject).filter(|uid| !uid.is_none()).collect();
        let places = self.places(&uids).await;
        let gone = uids.iter().copied().filter(|uid| !places.contains_key(uid)).take(SEARCHED);
        let gone = self.were_on(gone.collect(), node).await;
        let mut of_agent = 0;
        records.retain(|stored| {
            let (uid, part) = (stored.record.subject, stored.record.stage.part());
            match places.get(&uid) {
                None if uid.is_none() => {
                    of_agent += 1;
                    part == Part::Other && of_agent <= OF_AGENT
                }
                None => gone.contains(&uid) && !matches!(part, Part::Service | Part::Other),
                Some(Place::Network) => part == Part::Service,
                Some(Place::Node(name)) => **name == *node && !matches!(part, Part::Service | Part::Other),
            }
        });
        before - records.len()
    }

    /// The places of the objects that are known. Waits up to a second for objects that have just been written.
    async fn places(&self, uids: &HashSet<Uid>) -> HashMap<Uid, Place> {
        let arrived = Instant::now();
        let mut index = self.index.lock().await;
        let unknown = uids.iter().any(|uid| !index.places.contains_key(uid));
        if unknown && index.refreshed.is_none_or(|last| last < arrived) {
            if let Some(pause) = index.refreshed.and_then(|last| REFRESH.checked_sub(last.elapsed())) {
                tokio::time::sleep(pause).await;
            }
            self.refresh(&mut index);
        }
        let of = |uid: &Uid| Some((*uid, index.places.get(uid)?.0.clone()));
        uids.iter().filter_map(of).collect()
    }

    fn refresh(&self, index: &mut Index) {
        let now = Instant::now();
        index.refreshed = Some(now);
        let mut names: HashMap<String, Arc<str>> = HashMap::new();
        let mut shared = |name: &str| names.entry(name.to_owned()).or_insert_with(|| Arc::from(name)).clone();
        let mut mirrors: Vec<(Uid, Place)> = Vec::new();
        self.each("", "pods", |object, node| {
            if !node.is_empty() {
                let place = Place::Node(shared(node));
                mirrors.extend(mirrored(object).map(|uid| (uid, place.clone())));
                index.places.insert(Uid::of(&object.meta.uid), (place, now));
            }
        });
        self.each("", "nodes", |object, _| {
            let place = Place::Node(shared(&object.meta.name));
            index.places.insert(Uid::of(&object.meta.uid), (place, now));
        });
        for (group, plural) in [("", "services"), ("discovery.k8s.io", "endpointslices")] {
            self.each(group, plural, |object, _| {
                index.places.insert(Uid::of(&object.meta.uid), (Place::Network, now));
            });
        }
        // Whoever makes a mirror chooses the uid: it does not become that of somebody else's object.
        for (uid, place) in mirrors {
            let known = index.places.entry(uid).or_insert_with(|| (place.clone(), now));
            if known.0 == place {
                known.1 = now;
            }
        }
        index.places.retain(|_, (_, seen)| now.duration_since(*seen) < REMEMBERED);
    }

    /// Every object of a resource, with the value of `spec.nodeName`.
    fn each(&self, group: &str, plural: &str, mut look: impl FnMut(&Object, &str)) {
        let Some(kind) = self.objects.registry.preferred(group, plural) else { return };
        let Ok(cache) = self.objects.cache(&kind) else { return };
        let at = kind.fields.iter().position(|field| field.name == "spec.nodeName");
        for object in cache.list(None) {
            let node = at.and_then(|at| object.fields.get(at)).map_or("", String::as_str);
            look(&object, node);
        }
    }

    /// Those of some objects that are not there any more and were delivered to the node.
    async fn were_on(&self, uids: Vec<Uid>, node: &str) -> HashSet<Uid> {
        if uids.is_empty() {
            return HashSet::new();
        }
        let _place = self.searches.acquire().await;
        let (collector, node) = (self.collector.clone(), node.to_owned());
        let watcher = format!("system:node:{node}");
        let was_on = move |uid: &Uid| {
            let question = Question { uid: Some(*uid), last: 1, most: SPANS, ..Question::default() };
            let trees =
                find(collector.keep(), &[], &question).map(|found| assemble(found, 0)).unwrap_or_default();
            trees.iter().any(|tree| {
                let of = |object: Option<usize>| object.and_then(|at| tree.objects.get(at));
                tree.objects.iter().any(|object| object.uid == *uid && object.node == node)
                    || tree.spans.iter().any(|span| {
                        span.stage == Stage::Delivered
                            && span.name == watcher
                            && of(span.object).is_some_and(|object| object.uid == *uid)
                    })
            })
        };
        let search = move || uids.into_iter().filter(was_on).collect::<HashSet<Uid>>();
        tokio::task::spawn_blocking(search).await.unwrap_or_default()
    }
}

/// What agents record: never requests, writes, control loops or the scheduler, and no stage that an object has once with the id of
/// another object.
fn is_of_nodes(record: &Record) -> bool {
    let stage = record.stage;
    if stage.is_single() && record.span != SpanId::of_stage(record.subject, stage) {
        return false;
    }
    match stage.part() {
        Part::Request | Part::Write | Part::Loop | Part::Scheduler => false,
        Part::Other => matches!(stage, Stage::Lost | Stage::Restarted | Stage::ClockStep),
        Part::Node
        | Part::Image
        | Part::Sandbox
        | Part::Container
        | Part::Status
        | Part::Teardown
        | Part::Service => true,
    }
}

/// The uid of the static pod whose mirror this is; those belong to their Node.
fn mirrored(object: &Object) -> Option<Uid> {
    object.meta.owner_references.iter().find(|owner| owner.kind == "Node")?;
    let object: WithAnnotations = object.typed().ok()?;
    object.metadata.annotations.get(MIRROR).map(|uid| Uid::of(uid))
}
