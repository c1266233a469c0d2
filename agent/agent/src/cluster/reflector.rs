//! A shared cache of all objects of one kind, filled by a watch.

use coracle_cli::causes;
use futures::StreamExt;
use kube::runtime::watcher;
use kube::{Api, Resource};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, watch};

use super::name::Name;
use super::origin::{self, Changed, Origin};
use super::wire;
use crate::api_watch;
use coracle_cli::supervise::{Subject, Supervisor};

/// Objects per page of a list: bounds what is in memory twice while it is read.
const PAGE: u32 = 200;

/// The cached part of a kind, decoded from its wire format.
pub trait FromWire: PartialEq + Sized + Send + Sync + 'static {
    /// The kind as decoded from JSON.
    type Wire: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static;

    /// Converts an object; `None` to skip it.
    fn from_wire(wire: Self::Wire) -> Option<Self>;

    /// Index key of the object: EndpointSlices are indexed by their Service.
    fn group(&self, own: &Name) -> Name {
        own.clone()
    }
}

/// State of the first list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// Not listed yet.
    NotYet,
    /// Forbidden. Retried, because permissions may be granted later.
    Refused,
    /// Everything was listed once.
    Whole,
}

struct Known<T> {
    objects: HashMap<Name, Arc<T>>,
    /// Members of each group; empty for kinds whose objects are their own group.
    groups: HashMap<Name, Vec<Name>>,
}

struct Shared<T> {
    known: RwLock<Known<T>>,
    listeners: Mutex<Vec<Weak<Pending>>>,
    listed: watch::Receiver<Listed>,
    supervisor: Supervisor,
    heard: Option<Heard>,
}

/// Called with each write that makes or changes an object, before anybody can see it. It must not ask the reflector.
pub type Heard = Box<dyn Fn(&Name, Origin) + Send + Sync>;

/// Factory of a task; called again after each failure.
pub type Make = Box<dyn Fn() -> futures::future::BoxFuture<'static, ()> + Send + Sync>;

/// All objects of a kind. While the API server is unavailable, the last known state.
pub struct Reflector<T>(Arc<Shared<T>>);

impl<T> Clone for Reflector<T> {
    fn clone(&self) -> Self {
        Reflector(self.0.clone())
    }
}

impl<T: FromWire> Reflector<T> {
    /// An empty reflector, and the factory of the task that fills it.
    pub fn follow(client: kube::Client, supervisor: &Supervisor) -> (Self, Make) {
        Self::follow_heard(client, supervisor, None)
    }

    /// As [`Reflector::follow`], with somebody who hears of writes.
    pub fn follow_heard(client: kube::Client, supervisor: &Supervisor, heard: Option<Heard>) -> (Self, Make) {
        let (sender, listed) = watch::channel(Listed::NotYet);
        let known = Known { objects: HashMap::new(), groups: HashMap::new() };
        let (known, supervisor) = (RwLock::new(known), supervisor.clone());
        let listeners = Mutex::default();
        let view = Reflector(Arc::new(Shared { known, listeners, listed, supervisor, heard }));
        let (following, sender) = (view.clone(), Arc::new(sender));
        let make = move || {
            let task = following.clone().run(client.clone(), sender.clone());
            Box::pin(task) as futures::future::BoxFuture<'static, ()>
        };
        (view, Box::new(make))
    }

    /// What the task of the kind is called in metrics and health pages.
    pub fn task() -> String {
        format!("watch {}", T::Wire::plural(&()))
    }

    async fn run(self, client: kube::Client, progress: Arc<watch::Sender<Listed>>) {
        let api: Api<T::Wire> = Api::all(client);
        let mut stream = api_watch::watch(api, watcher::Config::default().page_size(PAGE));
        let mut listed = HashSet::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Init) => listed = HashSet::new(),
                Ok(watcher::Event::InitApply(object)) => {
                    listed.insert(wire::name_of(object.meta()));
                    self.apply(object, None);
                }
                Ok(watcher::Event::InitDone) => {
                    self.retain(&std::mem::take(&mut listed));
                    if progress.send_replace(Listed::Whole) == Listed::Refused {
                        tracing::info!(resource = %T::Wire::plural(&()), "read permission granted");
                    }
                    self.tell_listed();
                }
                Ok(watcher::Event::Apply(object)) => {
                    let origin = Origin::of(object.meta());
                    self.apply(object, origin);
                }
                Ok(watcher::Event::Delete(object)) => {
                    let meta = object.meta();
                    self.change_caused(wire::name_of(meta), None, Origin::of(meta));
                }
                Err(error) => {
                    let kind = T::Wire::plural(&());
                    let before = *progress.borrow();
                    match (is_forbidden(&error), before) {
                        (true, Listed::NotYet) => {
                            tracing::error!(resource = %kind, error = %causes::chain(&error), "this node may not read them and does without: \
                                its group needs the role coracle:node-network");
                            progress.send_replace(Listed::Refused);
                            self.tell_listed();
                        }
                        // Logged already.
                        (true, Listed::Refused) => {
                            tracing::debug!(resource = %kind, error = %causes::chain(&error), "still forbidden")
                        }
                        _ => {
                            tracing::warn!(resource = %kind, error = %causes::chain(&error), "watch failed, will retry")
                        }
                    }
                }
            }
        }
    }

    fn apply(&self, object: T::Wire, origin: Option<Origin>) {
        let name = wire::name_of(object.meta());
        let (namespace, own) = (object.meta().namespace.clone(), object.meta().name.clone());
        let subject = || {
            let text = |part: &Option<String>| part.clone().unwrap_or_default();
            Subject::new(&T::Wire::plural(&()), &text(&namespace), &text(&own))
        };
        // An object that cannot be converted counts as deleted.
        let kept =
            self.0.supervisor.isolate_sync(&Self::task(), subject, || T::from_wire(object)).ok().flatten();
        self.change_caused(name, kept, origin);
    }

    /// Adds or removes an object and notifies listeners. Also called by tests of other modules.
    pub fn change(&self, name: Name, new: Option<T>) {
        self.change_caused(name, new, None);
    }

    /// As [`Reflector::change`], by a write that is known. It is not part of the object: what does not change for this node is
    /// no change, whatever wrote it.
    pub fn change_caused(&self, name: Name, new: Option<T>, origin: Option<Origin>) {
        let mut changed = Vec::new();
        {
            let mut known = self.0.known.write();
            let old = known.objects.get(&name);
            if old.map(|old| &**old) == new.as_ref() {
                return;
            }
            if let (Some(heard), Some(origin), Some(_)) = (&self.0.heard, origin, &new) {
                heard(&name, origin);
            }
            if let Some(old) = known.objects.remove(&name) {
                let group = old.group(&name);
                if group != name
                    && let Some(members) = known.groups.get_mut(&group)
                {
                    members.retain(|member| *member != name);
                    if members.is_empty() {
                        known.groups.remove(&group);
                    }
                }
                changed.push(group);
            }
            if let Some(new) = new {
                let group = new.group(&name);
                if group != name {
                    known.groups.entry(group.clone()).or_default().push(name.clone());
                }
                known.objects.insert(name, Arc::new(new));
                changed.push(group);
            }
        }
        self.tell(&changed, origin);
    }

    fn retain(&self, listed: &HashSet<Name>) {
        let gone: Vec<Name> =
            self.0.known.read().objects.keys().filter(|name| !listed.contains(*name)).cloned().collect();
        gone.into_iter().for_each(|name| self.change(name, None));
    }

    fn tell(&self, changed: &[Name], origin: Option<Origin>) {
        self.0.listeners.lock().retain(|listener| {
            let Some(listener) = listener.upgrade() else { return false };
            let mut names = listener.names.lock();
            changed.iter().for_each(|name| origin::add(&mut names, name.clone(), origin));
            drop(names);
            listener.wake.notify_one();
            true
        });
    }

    fn tell_listed(&self) {
        for listener in self.0.listeners.lock().iter().filter_map(Weak::upgrade) {
            listener.wake.notify_one();
        }
    }

    /// An object.
    pub fn get(&self, name: &Name) -> Option<Arc<T>> {
        self.0.known.read().objects.get(name).cloned()
    }

    /// The objects with this index key.
    pub fn group(&self, group: &Name) -> Vec<Arc<T>> {
        let known = self.0.known.read();
        let members = known.groups.get(group).map(Vec::as_slice).unwrap_or_default();
        // One that has its group's own name, as the slice of the API server's service does, is not in the list.
        let namesake = known.objects.get(group).filter(|object| object.group(group) == *group);
        let named = members.iter().filter_map(|name| known.objects.get(name));
        named.chain(namesake).cloned().collect()
    }

    /// Every object.
    pub fn all(&self) -> Vec<(Name, Arc<T>)> {
        self.0.known.read().objects.iter().map(|(name, object)| (name.clone(), object.clone())).collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.known.read().objects.is_empty()
    }

    /// Whether any object matches, without copying.
    pub fn any(&self, mut wanted: impl FnMut(&Name, &T) -> bool) -> bool {
        self.0.known.read().objects.iter().any(|(name, object)| wanted(name, object))
    }

    /// Whether everything was listed once.
    pub fn is_synced(&self) -> bool {
        *self.0.listed.borrow() == Listed::Whole
    }

    /// Whether the last list was forbidden.
    pub fn is_refused(&self) -> bool {
        *self.0.listed.borrow() == Listed::Refused
    }

    /// Waits for the first response to a list, including a forbidden one.
    pub async fn answered(&self) {
        let _ = self.0.listed.clone().wait_for(|listed| *listed != Listed::NotYet).await;
    }

    /// Waits until everything was listed once.
    pub async fn synced(&self) {
        // The task ends only with the process.
        let _ = self.0.listed.clone().wait_for(|listed| *listed == Listed::Whole).await;
    }

    /// Subscribes to changes, starting with all current objects.
    pub fn changes(&self) -> Changes {
        let pending = Arc::new(Pending::default());
        self.0.listeners.lock().push(Arc::downgrade(&pending));
        {
            let known = self.0.known.read();
            let mut names = pending.names.lock();
            for (name, object) in &known.objects {
                names.insert(object.group(name), None);
            }
        }
        pending.wake.notify_one();
        Changes(pending)
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 403)
}

#[derive(Default)]
struct Pending {
    names: Mutex<Changed>,
    wake: Notify,
}

/// Names (of groups, where a kind has them) that changed since they were last asked for. However many changes there
/// were, a name is there once: a slow reader falls behind but never grows.
pub struct Changes(Arc<Pending>);

impl Changes {
    /// Waits for changes or for the first list; returns the changed names, possibly none.
    pub async fn next(&mut self) -> HashSet<Name> {
        self.0.wake.notified().await;
        self.take()
    }

    /// The names that changed, without waiting.
    pub fn take(&mut self) -> HashSet<Name> {
        self.take_caused().into_keys().collect()
    }

    /// As [`Changes::next`], with the writes that made the changes.
    pub async fn next_caused(&mut self) -> Changed {
        self.0.wake.notified().await;
        self.take_caused()
    }

    /// As [`Changes::take`], with the writes that made the changes.
    pub fn take_caused(&mut self) -> Changed {
        std::mem::take(&mut *self.0.names.lock())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Slice;
    use super::*;
    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn view(heard: Option<Heard>) -> Reflector<Slice> {
        let (_, listed) = watch::channel(Listed::Whole);
        let known = Known { objects: HashMap::new(), groups: HashMap::new() };
        let (known, listeners) = (RwLock::new(known), Mutex::default());
        Reflector(Arc::new(Shared { known, listeners, listed, supervisor: Supervisor::default(), heard }))
    }

    fn slice(service: &str) -> Slice {
        Slice { service: service.into(), ..Slice::default() }
    }

    #[tokio::test]
    async fn groups_follow_their_members() {
        let view = view(None);
        view.change(Name::new("a", "s1"), Some(slice("web")));
        view.change(Name::new("a", "s2"), Some(slice("web")));
        let mut changes = view.changes();
        assert_eq!(changes.next().await, HashSet::from([Name::new("a", "web")]));
        assert_eq!(view.group(&Name::new("a", "web")).len(), 2);
        view.change(Name::new("a", "s1"), Some(slice("web")));
        assert!(changes.take().is_empty(), "nothing changed");
        view.change(Name::new("a", "s1"), Some(slice("other")));
        assert_eq!(changes.next().await, HashSet::from([Name::new("a", "web"), Name::new("a", "other")]));
        view.change(Name::new("a", "s2"), None);
        assert_eq!(changes.next().await, HashSet::from([Name::new("a", "web")]));
        assert!(view.group(&Name::new("a", "web")).is_empty());
        view.change(Name::new("a", "web"), Some(slice("web")));
        assert_eq!(view.group(&Name::new("a", "web")).len(), 1, "a slice with its service's own name");
        view.retain(&HashSet::new());
        assert!(view.all().is_empty());
    }

    #[tokio::test]
    async fn a_change_has_its_newest_write_and_no_write_changes_equality() {
        let heard: Arc<Mutex<Vec<(Name, u64)>>> = Arc::default();
        let into = heard.clone();
        let view = view(Some(Box::new(move |name: &Name, origin: Origin| {
            into.lock().push((name.clone(), origin.revision))
        })));
        let mut changes = view.changes();
        let write = |revision| {
            let uid = coracle_trace::Uid(7);
            Some(Origin { uid, revision, at: std::time::Instant::now(), trigger: None })
        };
        let revisions = |changed: Changed| {
            let of =
                |(name, origin): (Name, Option<Origin>)| (name.to_string(), origin.map(|it| it.revision));
            let mut all: Vec<_> = changed.into_iter().map(of).collect();
            all.sort();
            all
        };
        view.change_caused(Name::new("a", "s1"), Some(slice("web")), write(1));
        view.change_caused(Name::new("a", "s2"), Some(slice("web")), write(2));
        view.change(Name::new("a", "s3"), Some(slice("web")));
        view.change(Name::new("a", "s4"), Some(slice("other")));
        let expected = [("a/other".to_owned(), None), ("a/web".to_owned(), Some(2))];
        assert_eq!(revisions(changes.next_caused().await), expected);
        view.change_caused(Name::new("a", "s1"), Some(slice("web")), write(3));
        assert!(changes.take_caused().is_empty(), "nothing changed");
        heard.lock().clear();
        view.change_caused(Name::new("a", "s1"), Some(slice("other")), write(4));
        view.change_caused(Name::new("a", "s1"), Some(slice("other")), write(5));
        view.change_caused(Name::new("a", "s2"), None, write(6));
        view.change(Name::new("a", "s5"), Some(slice("web")));
        assert_eq!(*heard.lock(), [(Name::new("a", "s1"), 4)], "changes by writes that are known");
    }

    #[tokio::test]
    async fn a_refusal_is_an_answer_too_and_may_be_taken_back() {
        let granted = Arc::new(AtomicBool::new(false));
        let may = granted.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let may = may.load(Ordering::SeqCst);
            async move {
                if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                    std::future::pending::<()>().await;
                }
                let (code, body) = match may {
                    false => (
                        403,
                        r#"{"kind":"Status","status":"Failure","message":"no","reason":"Forbidden","code":403}"#,
                    ),
                    true => (200, r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#),
                };
                let body =
                    http_body_util::Full::from(body.as_bytes()).map_err(|never| match never {}).boxed();
                Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let (view, follow) =
            Reflector::<Slice>::follow(kube::Client::new(service, "default"), &Supervisor::default());
        let following = tokio::spawn(follow());
        view.answered().await;
        assert!(view.is_refused() && !view.is_synced() && view.is_empty());
        granted.store(true, Ordering::SeqCst);
        view.synced().await;
        assert!(!view.is_refused());
        following.abort();
    }
}
