//! Trees that answer a question, as far as the user may see them.

use super::missing::Missing;
use super::query::{RootsQuery, TraceQuery, now};
use super::standing::{Other, depends_on, standing};
use crate::explain::authorize::{Reader, group_and_plural};
use crate::explain::peers::ServerPeers;
use coracle_apiserver::objects::Objects;
use coracle_cli::causes;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use coracle_timeline::{
    CollectorHandle, Found, KeepError, KeptView, ObjectKey, Question, RootSummary, RootView, SpanNode,
    Standing, State, TraceView, TracedObject, Tree, Usual, assemble, format_timestamp, roots, state_of,
    view_of,
};
use coracle_trace::{Stage, Uid};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Roots that are read for each one that is shown: the user may not see all of them.
const READ_PER_ROOT: usize = 4;
/// Roots that are read for a list.
const MOST_ROOTS: usize = 2000;
/// Objects of a tree that are looked at.
const MOST_OBJECTS: usize = 500;

/// Searches the timeline.
pub(super) struct Asker {
    pub(super) collector: CollectorHandle,
    pub(super) objects: Arc<Objects>,
    pub(super) peers: Option<ServerPeers>,
    /// Searches read the disk, and ask other servers: only so many at a time.
    pub(super) searches: Arc<Semaphore>,
}

/// What all trees of an answer have in common.
struct Kept {
    oldest: Option<u64>,
    lost: u64,
    usual: Option<Usual>,
}

/// What is read of an object that wants pods.
#[derive(Deserialize)]
struct Scaled {
    spec: Replicas,
}

#[derive(Deserialize)]
struct Replicas {
    replicas: Option<u32>,
}

/// What is read of an object that ends.
#[derive(Deserialize)]
struct Conditioned {
    #[serde(default)]
    status: Conditions,
}

#[derive(Default, Deserialize)]
struct Conditions {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// What a trace begins with. The state is known only of those that failed at once: it takes a search for each other one.
#[derive(Debug, Serialize)]
pub(super) struct RootItem {
    resource: String,
    namespace: String,
    name: String,
    uid: String,
    trace: String,
    begin: String,
    end: String,
    state: Option<State>,
    verb: String,
    user: String,
    program: String,
}

impl RootItem {
    /// A root as this user may see it.
    fn new(root: RootSummary, reader: &Reader) -> Self {
        let (user, program) = reader.author(root.user, root.program);
        Self {
            resource: root.key.resource,
            namespace: root.key.namespace,
            name: root.key.name,
            uid: root.uid.to_string(),
            trace: root.trace.to_string(),
            begin: format_timestamp(root.start),
            end: format_timestamp(root.end),
            state: root.failed.then_some(State::Failed),
            verb: root.verb,
            user,
            program,
        }
    }
}

impl Asker {
    /// Searches on a thread of its own, and reads what was found there.
    async fn search<T: Send + 'static>(
        &self,
        question: &Question,
        read: impl FnOnce(Found) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let elsewhere = self.peers.as_ref().and_then(ServerPeers::begin);
        let (collector, question) = (self.collector.clone(), question.clone());
        self.blocking(move || Ok(read(collector.find_everywhere(&question, elsewhere)?))).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, KeepError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let _place = self.searches.acquire().await;
        let done = tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)?;
        done.map_err(|error| ApiError::internal(causes::chain(&error)))
    }

    /// The trees of a question without what the user may not see, or 404.
    pub(super) async fn views(
        &self,
        query: &TraceQuery,
        reader: &mut Reader,
    ) -> Result<Vec<TraceView>, ApiError> {
        let asked = query.question.object.as_ref();
        // Asked for late: a search writes what was only in memory before.
        let oldest = || self.collector.keep().oldest();
        let missing = |object: Option<&Object>, elsewhere: &[String]| {
            let oldest = oldest();
            Missing { question: &query.question, known: query.known, object, oldest, elsewhere }.error()
        };
        // What may not be seen is answered as if it never was.
        if let Some(key) = asked
            && !reader.may_get(key).await
        {
            return Err(missing(None, &[]));
        }
        let at = now();
        let read = move |found: Found| {
            let lost = found.markers.iter().filter(|marker| marker.record.stage == Stage::Lost);
            let lost = lost.fold(0_u64, |sum, marker| sum.saturating_add(marker.record.revision));
            let elsewhere = found.missing.clone();
            (lost, elsewhere, assemble(found, at))
        };
        let (lost, elsewhere, trees) = self.search(&query.question, read).await?;
        let kept = Kept { oldest: oldest(), lost, usual: query.compare.then(|| self.collector.usual()) };
        let mut views = Vec::new();
        for mut tree in trees {
            let subject = subject(&tree, &query.question);
            let readable = match &subject {
                Some((key, _)) => reader.may_get(key).await,
                None => reader.sees_everything(),
            };
            if readable {
                self.look(&mut tree, reader).await;
                // What is hidden from the user counts, too.
                let state = state_of(&tree, subject.as_ref().map(|(key, _)| key));
                reader.censor(&mut tree).await;
                views.push(self.view(&tree, subject, state, &kept));
            }
        }
        match (views.is_empty(), asked) {
            (false, _) => Ok(views),
            (true, None) => Err(missing(None, &elsewhere)),
            (true, Some(key)) => Err(missing(self.object(key).as_deref(), &elsewhere)),
        }
    }

    fn view(&self, tree: &Tree, subject: Option<(ObjectKey, Uid)>, state: State, kept: &Kept) -> TraceView {
        let about = subject.as_ref().map(|(key, _)| key);
        let mut view = TraceView { state, ..view_of(tree, about, kept.usual.as_ref()) };
        view.kept = KeptView { from: kept.oldest.map(format_timestamp), lost: kept.lost };
        let Some((key, uid)) = subject else { return view };
        let now = self.object(&key).filter(|object| uid.is_none() || Uid::of(&object.meta.uid) == uid);
        if let Some(state) = now.as_ref().and_then(|object| ended(tree, &key, state, object)) {
            view.end = view.end.filter(|_| state.is_final());
            view.state = state;
        }
        view.object = Some(RootView {
            uid: match &now {
                Some(object) => object.meta.uid.clone(),
                None if uid.is_none() => String::new(),
                None => uid.to_string(),
            },
            exists: now.is_some(),
            replicas: now.and_then(|object| object.typed::<Scaled>().ok()?.spec.replicas),
            resource: key.resource,
            namespace: key.namespace,
            name: key.name,
        });
        view
    }

    /// Fills in how the objects of a tree stand now. Nothing follows from others that the user may not get: not even that they exist.
    async fn look(&self, tree: &mut Tree, reader: &mut Reader) {
        for traced in tree.objects.iter_mut().filter(|object| !object.uid.is_none()).take(MOST_OBJECTS) {
            let now = self.object(&traced.key).filter(|object| Uid::of(&object.meta.uid) == traced.uid);
            let Some(now) = now else {
                traced.standing = Standing::Gone;
                continue;
            };
            let mut other = Other::Hidden;
            if let Some(key) = depends_on(&traced.key.resource, &now)
                && reader.may_get(&key).await
            {
                other = self.object(&key).map_or(Other::Missing, Other::There);
            }
            traced.standing = standing(&traced.key.resource, &now, &other);
        }
    }

    /// An object as it is now.
    fn object(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        let (group, plural) = group_and_plural(&key.resource);
        let kind = self.objects.registry.preferred(group, plural)?;
        self.objects.cached(&kind, &key.namespace, &key.name).ok()
    }

    /// The newest roots that the user may see.
    pub(super) async fn roots(
        &self,
        query: &RootsQuery,
        reader: &mut Reader,
    ) -> Result<Vec<RootItem>, ApiError> {
        let (collector, since) = (self.collector.clone(), query.since);
        let limit = if query.namespace.is_empty() { query.limit * READ_PER_ROOT } else { MOST_ROOTS };
        let search = move || {
            collector.flushed();
            roots(collector.keep(), since, limit.min(MOST_ROOTS))
        };
        let mut shown = Vec::new();
        for root in self.blocking(search).await? {
            let elsewhere = !query.namespace.is_empty() && root.key.namespace != query.namespace;
            if !elsewhere && reader.may_get(&root.key).await {
                shown.push(RootItem::new(root, reader));
                if shown.len() == query.limit {
                    break;
                }
            }
        }
        Ok(shown)
    }
}

/// How far a Job is that was made in a tree: it is not done when its pods are ready. What its pods did afterwards does not say whether it
/// is tried again.
fn ended(tree: &Tree, key: &ObjectKey, state: State, object: &Object) -> Option<State> {
    let is_job = |span: &SpanNode| span.object.is_some_and(|index| tree.objects[index].key == *key);
    let is_made = |span: &SpanNode| span.stage == Stage::Write && span.name == "create" && is_job(span);
    if key.resource != "jobs.batch" || !tree.spans.iter().any(is_made) {
        return None;
    }
    let value = object.typed::<Conditioned>().ok()?;
    let is_true = |name: &str| {
        value.status.conditions.iter().any(|condition| condition.kind == name && condition.status == "True")
    };
    match state {
        _ if is_true("Failed") => Some(State::Failed),
        _ if is_true("Complete") => Some(State::Complete),
        State::Ready => Some(State::Running),
        _ => None,
    }
}

/// The pod that a request for an eviction deleted; it writes the budget first.
fn evicted(tree: &Tree) -> Option<&TracedObject> {
    let root = tree.spans.get(tree.root).filter(|root| root.stage == Stage::Request)?;
    let path = root.name.split(['?', ' ']).nth(1)?;
    path.strip_suffix("/eviction")?;
    let deletes = tree.spans.iter().filter(|span| span.stage == Stage::Write && span.name == "delete");
    deletes.filter_map(|span| tree.objects.get(span.object?)).find(|object| object.key.resource == "pods")
}

/// The object that a tree was asked for: by its name, its uid, or as the first of a trace.
fn subject(tree: &Tree, question: &Question) -> Option<(ObjectKey, Uid)> {
    let named = |key: &ObjectKey| tree.objects.iter().rfind(|object| object.key == *key);
    let of_uid = |uid: Uid| tree.objects.iter().find(|object| object.uid == uid);
    let found = match (&question.object, question.uid) {
        (Some(key), _) => named(key),
        (None, Some(uid)) => of_uid(uid),
        (None, None) => evicted(tree).or_else(|| tree.objects.first()),
    };
    let asked = || question.object.clone().map(|key| (key, Uid::NONE));
    found.map(|object| (object.key.clone(), object.uid)).or_else(asked)
}
