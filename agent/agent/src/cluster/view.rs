//! A kind, followed by one watch and shared by all who need it.

use futures::StreamExt;
use kube::runtime::watcher;
use kube::{Api, Resource};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, watch};

use super::{Name, wire};
use crate::watching;
use coracle_cli::supervise::{Subject, Supervisor};

/// Objects per page of a list: bounds what is in memory twice while it is read.
const PAGE: u32 = 200;

/// What is kept of a kind.
pub trait Keep: PartialEq + Sized + Send + Sync + 'static {
    /// The kind as it is read.
    type Wire: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static;

    /// The part that is kept; `None` when nothing of the object is.
    fn keep(wire: Self::Wire) -> Option<Self>;

    /// What the object belongs to, when it is looked up by that: slices belong to their service.
    fn group(&self, own: &Name) -> Name {
        own.clone()
    }
}

/// What came of the first list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// Nothing yet; the server may be away.
    NotYet,
    /// This node may not read the kind. It is asked for again now and then: somebody may grant it.
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
}

/// Makes the task that keeps a view, as often as it fails.
pub type Make = Box<dyn Fn() -> futures::future::BoxFuture<'static, ()> + Send + Sync>;

/// All objects of a kind, current to within a watch event. While the server is away, as they were.
pub struct View<T>(Arc<Shared<T>>);

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        View(self.0.clone())
    }
}

impl<T: Keep> View<T> {
    /// The view, empty at first, and what makes the task that keeps it.
    pub fn follow(client: kube::Client, supervisor: &Supervisor) -> (Self, Make) {
        let (sender, listed) = watch::channel(Listed::NotYet);
        let known = Known { objects: HashMap::new(), groups: HashMap::new() };
        let (known, supervisor) = (RwLock::new(known), supervisor.clone());
        let view = View(Arc::new(Shared { known, listeners: Mutex::default(), listed, supervisor }));
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
        let mut stream = watching::watch(api, watcher::Config::default().page_size(PAGE));
        let mut listed = HashSet::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Init) => listed = HashSet::new(),
                Ok(watcher::Event::InitApply(object)) => {
                    listed.insert(wire::name_of(object.meta()));
                    self.apply(object);
                }
                Ok(watcher::Event::InitDone) => {
                    self.retain(&std::mem::take(&mut listed));
                    if progress.send_replace(Listed::Whole) == Listed::Refused {
                        tracing::info!(resource = %T::Wire::plural(&()), "this node may read them now");
                    }
                    self.tell_listed();
                }
                Ok(watcher::Event::Apply(object)) => self.apply(object),
                Ok(watcher::Event::Delete(object)) => self.change(wire::name_of(object.meta()), None),
                Err(error) => {
                    let kind = T::Wire::plural(&());
                    let before = *progress.borrow();
                    match (is_forbidden(&error), before) {
                        (true, Listed::NotYet) => {
                            tracing::error!(resource = %kind, %error, "this node may not read them and does without: \
                                its group needs the role coracle:node-network");
                            progress.send_replace(Listed::Refused);
                            self.tell_listed();
                        }
                        // Said already.
                        (true, Listed::Refused) => tracing::debug!(resource = %kind, %error, "still refused"),
                        _ => tracing::warn!(resource = %kind, %error, "not followed, will retry"),
                    }
                }
            }
        }
    }

    fn apply(&self, object: T::Wire) {
        let name = wire::name_of(object.meta());
        let (namespace, own) = (object.meta().namespace.clone(), object.meta().name.clone());
        let subject = || {
            let text = |part: &Option<String>| part.clone().unwrap_or_default();
            Subject::new(&T::Wire::plural(&()), &text(&namespace), &text(&own))
        };
        // One that cannot be read is as good as none.
        let kept = self.0.supervisor.guard_now(&Self::task(), subject, || T::keep(object)).ok().flatten();
        self.change(name, kept);
    }

    /// Puts an object in, or takes it out, and tells who listens. Tests of readers call it directly.
    pub fn change(&self, name: Name, new: Option<T>) {
        let mut changed = Vec::new();
        {
            let mut known = self.0.known.write();
            let old = known.objects.get(&name);
            if old.map(|old| &**old) == new.as_ref() {
                return;
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
        self.tell(&changed);
    }

    fn retain(&self, listed: &HashSet<Name>) {
        let gone: Vec<Name> =
            self.0.known.read().objects.keys().filter(|name| !listed.contains(*name)).cloned().collect();
        gone.into_iter().for_each(|name| self.change(name, None));
    }

    fn tell(&self, changed: &[Name]) {
        self.0.listeners.lock().retain(|listener| {
            let Some(listener) = listener.upgrade() else { return false };
            listener.names.lock().extend(changed.iter().cloned());
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

    /// The objects that belong to something.
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

    /// Whether any object is what is looked for; copies nothing.
    pub fn any(&self, mut wanted: impl FnMut(&Name, &T) -> bool) -> bool {
        self.0.known.read().objects.iter().any(|(name, object)| wanted(name, object))
    }

    /// Whether everything was listed once.
    pub fn is_synced(&self) -> bool {
        *self.0.listed.borrow() == Listed::Whole
    }

    /// Whether the server's last word is that this node may not read the kind.
    pub fn is_refused(&self) -> bool {
        *self.0.listed.borrow() == Listed::Refused
    }

    /// Waits for the server's first word, be it that this node may not read the kind.
    pub async fn answered(&self) {
        let _ = self.0.listed.clone().wait_for(|listed| *listed != Listed::NotYet).await;
    }

    /// Waits until everything was listed once.
    pub async fn synced(&self) {
        // An error says that the task is gone: with the process.
        let _ = self.0.listed.clone().wait_for(|listed| *listed == Listed::Whole).await;
    }

    /// What changes from now on; at first, everything that is there.
    pub fn changes(&self) -> Changes {
        let pending = Arc::new(Pending::default());
        self.0.listeners.lock().push(Arc::downgrade(&pending));
        {
            let known = self.0.known.read();
            let mut names = pending.names.lock();
            for (name, object) in &known.objects {
                names.insert(object.group(name));
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
    names: Mutex<HashSet<Name>>,
    wake: Notify,
}

/// Names (of groups, where a kind has them) that changed since they were last asked for. However many changes there
/// were, a name is there once: a slow reader falls behind but never grows.
pub struct Changes(Arc<Pending>);

impl Changes {
    /// Waits for changes, or for what comes of the first list; the names, possibly none.
    pub async fn next(&mut self) -> HashSet<Name> {
        self.0.wake.notified().await;
        self.take()
    }

    /// The names that changed, without waiting.
    pub fn take(&mut self) -> HashSet<Name> {
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

    fn view() -> View<Slice> {
        let (_, listed) = watch::channel(Listed::Whole);
        let known = Known { objects: HashMap::new(), groups: HashMap::new() };
        let (known, listeners) = (RwLock::new(known), Mutex::default());
        View(Arc::new(Shared { known, listeners, listed, supervisor: Supervisor::default() }))
    }

    fn slice(service: &str) -> Slice {
        Slice { service: service.into(), ..Slice::default() }
    }

    #[tokio::test]
    async fn groups_follow_their_members() {
        let view = view();
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
            View::<Slice>::follow(kube::Client::new(service, "default"), &Supervisor::default());
        let following = tokio::spawn(follow());
        view.answered().await;
        assert!(view.is_refused() && !view.is_synced() && view.is_empty());
        granted.store(true, Ordering::SeqCst);
        view.synced().await;
        assert!(!view.is_refused());
        following.abort();
    }
}
