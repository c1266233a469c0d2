//! The loop: takes in what changed, decides on a batch of pods, and lets the writes go on beside.

use super::config::Profiles;
use super::intake::{SOURCES, Source, State};
use super::place::Placer;
use super::pod::{PodInfo, PodKey};
use super::preempt::Plan;
use super::queue::{Event, Millis};
use super::volumes::Decision;
use super::why::Diagnosis;
use super::writes::Writes;
use crate::apiserver::user::User;
use crate::client::Client;
use crate::metrics::scheduling::{Ended, Scheduling, Size};
use crate::object::Object;
use crate::watch::cache::{Cache, Cursor, EventType};
use coracle_proto::status::ApiError;
use futures::future::select_all;
use parking_lot::RwLock;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Pods decided on before changes are taken in again.
const BATCH: usize = 128;
/// Writes under way at most.
const IN_FLIGHT: usize = 256;
/// How long a claim may take to get its volume.
const VOLUME_PATIENCE: Millis = 600_000;
/// How often pods are looked for that have waited very long.
const FLUSH_EVERY: Duration = Duration::from_secs(30);

/// The verdict of each node on a pod, and the sentence that sums them up.
pub type Verdict = (Arc<Diagnosis>, String);

/// Why pods wait, for those who ask.
#[derive(Clone, Default)]
pub struct Verdicts(Arc<RwLock<HashMap<PodKey, Verdict>>>);

impl Verdicts {
    fn drop(&self, pod: &Object) {
        let key = format!("{}/{}", pod.meta.namespace, pod.meta.name);
        self.0.write().remove(key.as_str());
    }

    /// What was found for a waiting pod.
    pub fn of(&self, namespace: &str, name: &str) -> Option<Verdict> {
        self.0.read().get(format!("{namespace}/{name}").as_str()).cloned()
    }
}

/// Starts the scheduler; it ends when the set is dropped. `counted` shows what it counts.
pub fn start(client: &Client, profiles: Profiles, counted: Arc<Scheduling>) -> (JoinSet<()>, Verdicts) {
    let client = Client::new(client.api().clone(), User::new("system:kube-scheduler", []));
    let (writes, events) = Writes::new(&client);
    let verdicts = Verdicts::default();
    let mut tasks = JoinSet::new();
    tasks.spawn(events);
    tasks.spawn(Runner::new(client, profiles, writes, verdicts.clone(), counted).run());
    (tasks, verdicts)
}

/// A kind that is followed.
struct Follower {
    source: Source,
    cache: Arc<Cache>,
    cursor: Cursor,
}

/// A pod's attempts so far.
struct Tries {
    count: u32,
    first: Instant,
    latest: Instant,
}

/// What a write was for, and how it went.
enum Done {
    Bound(Arc<PodInfo>, Result<(), ApiError>),
    /// Claims were decided; the pod is bound once they have their volumes.
    Decided(Arc<PodInfo>, Result<(), ApiError>),
    Told(Arc<PodInfo>, Result<(), ApiError>),
}

struct Runner {
    writes: Writes,
    verdicts: Verdicts,
    state: State,
    followers: Vec<Follower>,
    under_way: JoinSet<Done>,
    /// Pods whose claims are being bound, with their node and since when.
    awaiting: HashMap<PodKey, (Arc<PodInfo>, String, Millis)>,
    /// Pods for which others are being removed.
    clearing: HashSet<PodKey>,
    /// Attempts of pods that have no node yet.
    tries: HashMap<PodKey, Tries>,
    counted: Arc<Scheduling>,
    begin: Instant,
    flushed: Instant,
}

impl Runner {
    fn new(
        client: Client,
        profiles: Profiles,
        writes: Writes,
        verdicts: Verdicts,
        counted: Arc<Scheduling>,
    ) -> Self {
        let mut state = State { placer: Placer::with_profiles(profiles), ..State::default() };
        let followers = SOURCES.map(|(source, group, plural)| {
            let cache = client.cache(&client.kind(group, plural));
            let (objects, _, cursor) = cache.list_and_watch(None);
            for object in objects {
                state.set(source, &object, None, 0);
            }
            Follower { source, cache, cursor }
        });
        Self {
            writes,
            verdicts,
            state,
            followers: followers.into(),
            under_way: JoinSet::new(),
            awaiting: HashMap::new(),
            clearing: HashSet::new(),
            tries: HashMap::new(),
            counted,
            begin: Instant::now(),
            flushed: Instant::now(),
        }
    }

    fn now(&self) -> Millis {
        self.begin.elapsed().as_millis() as Millis
    }

    async fn run(mut self) {
        loop {
            self.take_in();
            while let Some(done) = self.under_way.try_join_next() {
                self.finish(done);
            }
            self.settle_claims();
            if self.flushed.elapsed() > FLUSH_EVERY {
                self.flushed = Instant::now();
                let now = self.now();
                self.state.queue.flush(now);
            }
            self.decide();
            let snapshot = &self.state.placer.snapshot;
            let (nodes, pods) = (snapshot.node_count(), snapshot.pod_count());
            self.counted.size(Size { nodes, pods, ..self.state.queue.size() });
            if self.has_work() {
                tokio::task::yield_now().await;
            } else {
                self.wait().await;
            }
        }
    }

    fn has_work(&self) -> bool {
        self.state.queue.has_ready() && self.under_way.len() < IN_FLIGHT
    }

    /// Until something changes, a write is done, or it is time to try again.
    async fn wait(&mut self) {
        let now = self.now();
        let due = self.state.queue.next_due().map(|due| Duration::from_millis(due.saturating_sub(now)));
        let pause = due.unwrap_or(FLUSH_EVERY).min(FLUSH_EVERY);
        let news = select_all(self.followers.iter_mut().map(|f| Box::pin(f.cursor.changed())));
        let done = tokio::select! {
            _ = news => None,
            done = self.under_way.join_next(), if !self.under_way.is_empty() => done,
            () = tokio::time::sleep(pause) => None,
        };
        if let Some(done) = done {
            self.finish(done);
        }
    }

    /// Takes in everything that changed.
    fn take_in(&mut self) {
        let now = self.now();
        for follower in &mut self.followers {
            loop {
                match follower.cursor.try_batch() {
                    Ok(events) if events.is_empty() => break,
                    Ok(events) => {
                        for event in events {
                            match event.what {
                                EventType::Deleted => {
                                    self.state.remove(follower.source, &event.object, now);
                                    if follower.source == Source::Pods {
                                        self.verdicts.drop(&event.object);
                                        let meta = &event.object.meta;
                                        let key = format!("{}/{}", meta.namespace, meta.name);
                                        self.tries.remove(key.as_str());
                                    }
                                }
                                _ => {
                                    let before = event.previous.as_deref();
                                    self.state.set(follower.source, &event.object, before, now);
                                }
                            }
                        }
                    }
                    Err(_) => {
                        // Too many changes at once: start over from all there is.
                        let (objects, _, cursor) = follower.cache.list_and_watch(None);
                        follower.cursor = cursor;
                        self.state.retain(follower.source, &objects, now);
                        for object in &objects {
                            self.state.set(follower.source, object, None, now);
                        }
                    }
                }
            }
        }
    }

    /// Decides on a batch of pods.
    fn decide(&mut self) {
        for _ in 0..BATCH {
            if self.under_way.len() >= IN_FLIGHT {
                return;
            }
            let now = self.now();
            let Some(pod) = self.state.queue.pop(now) else { return };
            let begun = Instant::now();
            let tries = self.tries.entry(pod.key.clone());
            let tries = tries.or_insert(Tries { count: 0, first: begun, latest: begun });
            (tries.count, tries.latest) = (tries.count + 1, begun);
            let placed = self.state.placer.place(&pod);
            self.counted.decided(begun.elapsed());
            match placed {
                Ok(node) => self.settle(&pod, node),
                Err(why) => {
                    self.refuse(&pod, why, now);
                    self.counted.attempted(&pod.scheduler, Ended::Unschedulable, begun.elapsed());
                }
            }
        }
    }

    /// Counts the pod at its node and begins to bind it.
    fn settle(&mut self, pod: &Arc<PodInfo>, id: usize) {
        let snapshot = &mut self.state.placer.snapshot;
        let Some(node) = snapshot.node(id) else { return };
        let name = node.name.clone();
        let decisions = snapshot.volumes.decide(pod, node).unwrap_or_default();
        snapshot.assume(pod, id);
        snapshot.nominate(pod, "");
        let now = self.now();
        self.state.queue.wake(Event::Placed(pod), &self.state.placer.snapshot, now);
        if decisions.is_empty() {
            self.bind(pod.clone(), name);
        } else {
            self.awaiting.insert(pod.key.clone(), (pod.clone(), name.clone(), now));
            let (writes, pod) = (self.writes.clone(), pod.clone());
            self.under_way.spawn(async move {
                let result = decide_claims(&writes, &pod, &name, &decisions).await;
                Done::Decided(pod, result)
            });
        }
    }

    fn bind(&mut self, pod: Arc<PodInfo>, node: String) {
        let writes = self.writes.clone();
        self.under_way.spawn(async move {
            let result = writes.bind(&pod, &node).await;
            Done::Bound(pod, result)
        });
    }

    /// Binds pods whose claims have their volumes by now.
    fn settle_claims(&mut self) {
        let now = self.now();
        let volumes = &self.state.placer.snapshot.volumes;
        let ready = |(pod, _, since): &(Arc<PodInfo>, String, Millis)| {
            volumes.ready(pod) || now > since + VOLUME_PATIENCE
        };
        let keys: Vec<PodKey> =
            self.awaiting.iter().filter(|(_, a)| ready(a)).map(|(k, _)| k.clone()).collect();
        for key in keys {
            let Some((pod, node, _)) = self.awaiting.remove(&key) else { continue };
            if self.state.placer.snapshot.volumes.ready(&pod) {
                self.bind(pod, node);
            } else {
                self.give_up(&pod, "binding volumes: context deadline exceeded");
            }
        }
    }

    /// The pod waits: tells why, and makes room if that helps.
    fn refuse(&mut self, pod: &Arc<PodInfo>, why: Arc<Diagnosis>, now: Millis) {
        let budgets: Vec<_> = self.state.budgets.values().cloned().collect();
        let plan = if self.clearing.contains(&pod.key) {
            Err("waiting for the preemption for this pod to be finished".into())
        } else {
            let plan = self.state.placer.make_room(pod, &why, &budgets);
            self.counted.preempted(plan.as_ref().ok().map(|plan| plan.victims.len()));
            plan
        };
        let no_room = plan.as_ref().err().cloned().unwrap_or_default();
        let message = why.message(if why.nodes == 0 { "" } else { &no_room });
        self.verdicts.0.write().insert(pod.key.clone(), (why.clone(), message.clone()));
        let news = self.state.queue.stuck(&pod.key, why, message.clone(), now);
        match plan {
            Ok(plan) => self.clear(pod, plan, message),
            Err(_) if news && !self.clearing.contains(&pod.key) => {
                // A node that was to be cleared but will not do after all is given up.
                let giving_up = !pod.nominated.is_empty() && !no_room.starts_with("not eligible");
                if giving_up {
                    self.state.placer.snapshot.nominate(pod, "");
                }
                let nominated = (!giving_up && !pod.nominated.is_empty()).then(|| pod.nominated.clone());
                self.tell(pod.clone(), message, nominated, Vec::new());
            }
            Err(_) => {}
        }
    }

    /// Removes the pods that are in the way and keeps the room for this one.
    fn clear(&mut self, pod: &Arc<PodInfo>, plan: Plan, message: String) {
        let Some(node) = self.state.placer.snapshot.node(plan.node).map(|n| n.name.clone()) else { return };
        tracing::info!(pod = %pod.key, node, victims = plan.victims.len(), "preempting");
        self.state.placer.snapshot.nominate(pod, &node);
        self.clearing.insert(pod.key.clone());
        self.tell(pod.clone(), message, Some(node), plan.victims);
    }

    fn tell(
        &mut self,
        pod: Arc<PodInfo>,
        message: String,
        nominated: Option<String>,
        victims: Vec<Arc<PodInfo>>,
    ) {
        let writes = self.writes.clone();
        self.under_way.spawn(async move {
            let mut result = writes.explain(&pod, &message, nominated.as_deref()).await;
            for victim in &victims {
                let evicted = writes.evict(victim, &pod, nominated.as_deref().unwrap_or_default()).await;
                result = result.and(evicted);
            }
            Done::Told(pod, result)
        });
    }

    fn finish(&mut self, done: Result<Done, tokio::task::JoinError>) {
        if let Ok(Done::Told(pod, _)) = &done
            && self.clearing.remove(&pod.key)
        {
            // Those in the way may have gone while the pod was not to be tried.
            let now = self.now();
            self.state.queue.activate(&pod.key, now);
        }
        match done {
            Ok(Done::Bound(pod, Ok(()))) => {
                if let Some(tries) = self.tries.remove(&pod.key) {
                    self.counted.attempted(&pod.scheduler, Ended::Scheduled, tries.latest.elapsed());
                    self.counted.placed(tries.count, tries.first.elapsed());
                }
                self.verdicts.0.write().remove(&pod.key);
                self.state.queue.remove(&pod.key);
            }
            Ok(Done::Bound(pod, Err(error)) | Done::Decided(pod, Err(error))) => {
                self.awaiting.remove(&pod.key);
                self.give_up(&pod, &error.message);
            }
            Ok(Done::Told(pod, Err(error))) if !error.is_not_found() => {
                tracing::warn!(pod = %pod.key, %error, "a waiting pod could not be told why");
            }
            Ok(Done::Decided(_, Ok(())) | Done::Told(..)) => {}
            Err(error) => tracing::error!(%error, "a write of the scheduler broke off"),
        }
    }

    /// Takes back a decision that could not be written; the pod is tried again after a while, if it is still there.
    fn give_up(&mut self, pod: &Arc<PodInfo>, why: &str) {
        tracing::warn!(pod = %pod.key, why, "not bound");
        let took = self.tries.get(&pod.key).map(|tries| tries.latest.elapsed()).unwrap_or_default();
        self.counted.attempted(&pod.scheduler, Ended::Error, took);
        let now = self.now();
        let node = self.state.placer.snapshot.pod_node(&pod.key);
        self.state.placer.snapshot.forget(&pod.key);
        self.state.queue.wake(Event::Gone(pod, node), &self.state.placer.snapshot, now);
        self.state.queue.retry(&pod.key, now);
    }
}

async fn decide_claims(
    writes: &Writes,
    pod: &PodInfo,
    node: &str,
    decisions: &[Decision],
) -> Result<(), ApiError> {
    for decision in decisions {
        writes.decide(pod, node, decision).await?;
    }
    Ok(())
}
