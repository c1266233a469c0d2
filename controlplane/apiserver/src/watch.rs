//! Watches: a cursor on a kind's ring, filtered by a selection and rendered in the form the client asked for.

use super::api::Api;
use super::conversion::{Converter, calls_webhook, differs_for_watchers, object_of, without_webhook};
use super::list::parse_version;
use super::list_body::CHUNK_SIZE;
use super::negotiate::Form;
use super::respond::BoxError;
use super::select::Selection;
use super::table;
use bytes::Bytes;
use coracle_client::options::ListOptions;
use coracle_fields::make;
use coracle_fields::meta::ObjectMeta;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cursor;
use coracle_kinds::watch::event::{Event, EventType};
use coracle_proto::status::{ApiError, FieldError};
use coracle_store::Revision;
use coracle_trace::{Recorder, SpanId, Stage, Uid};
use futures::Stream;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::vec::IntoIter;
use tokio::time::Instant;

/// How often a quiet watch gets a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Watches without `timeoutSeconds` end by themselves after half an hour to an hour, so that load spreads again.
const LONGEST: u64 = 1800;
/// What clients ask for is cut to this, in seconds: the clock does not reach as far as numbers do.
const YEAR: u64 = 365 * 24 * 3600;

/// Of each revision the first deliveries are recorded; the others are only counted.
const RECORDED: u32 = 8;

/// A watch that is about to begin.
pub struct Watch {
    kind: Arc<Kind>,
    namespace: Option<String>,
    selection: Selection,
    form: Form,
    include_object: String,
    bookmarks: bool,
    initial: IntoIter<Arc<Object>>,
    initial_end: bool,
    /// Everything up to here was sent.
    reached: Revision,
    cursor: Cursor,
    deadline: Instant,
    header_sent: bool,
    converter: Converter,
    /// The name of the user.
    watcher: Box<str>,
    recorder: Recorder,
    /// Events of this kind that watchers got.
    events: Arc<AtomicU64>,
}

/// An object and what it was before, as a watcher sees them.
type VersionedEvent = (Arc<Object>, Option<Arc<Object>>);

impl Api {
    /// Opens a watch; every refusal comes before the first byte.
    pub async fn watch(
        &self,
        kind: &Arc<Kind>,
        namespace: Option<&str>,
        options: &ListOptions,
        selection: Selection,
        form: Form,
    ) -> Result<Watch, ApiError> {
        check(options)?;
        let cache = match options.include_uninitialized {
            true => self.objects.whole_cache(kind)?,
            false => self.objects.cache(kind)?,
        };
        let version = parse_version(&options.resource_version)?;
        let streaming_list = options.send_initial_events == Some(true);
        let with_initial =
            streaming_list || (matches!(version, None | Some(0)) && options.send_initial_events.is_none());
        match version {
            None => {
                self.objects.catch_up().await?;
            }
            Some(0) => {}
            Some(at) => self.wait_for_version(at).await?,
        }
        let (initial, start) = if with_initial {
            let (all, revision) = cache.snapshot(namespace);
            (self.initial(kind, all, &selection).await?, revision)
        } else {
            (Vec::new(), version.filter(|v| *v > 0).unwrap_or_else(|| cache.revision()))
        };
        let cursor = cache.subscribe(start).map_err(|_| too_old(start))?;
        let seconds = options.timeout_seconds.filter(|s| *s > 0).unwrap_or_else(|| {
            use rand::RngExt;
            LONGEST + rand::rng().random_range(0..LONGEST)
        });
        Ok(Watch {
            kind: kind.clone(),
            namespace: namespace.map(str::to_owned),
            selection,
            form,
            include_object: options.include_object.clone(),
            bookmarks: options.bookmarks,
            initial: initial.into_iter(),
            initial_end: streaming_list && options.bookmarks,
            reached: start,
            cursor,
            deadline: Instant::now() + Duration::from_secs(seconds.min(YEAR)),
            header_sent: false,
            converter: self.converter.clone(),
            watcher: Box::default(),
            recorder: if kind.lazy { Recorder::OFF } else { self.recorder },
            events: self.metrics.watches.counter(kind),
        })
    }

    /// Those of the objects that are there when a watch begins that it shows.
    async fn initial(
        &self,
        kind: &Kind,
        mut all: Vec<Arc<Object>>,
        selection: &Selection,
    ) -> Result<Vec<Arc<Object>>, ApiError> {
        if differs_for_watchers(kind, selection) {
            all.retain(|object| selection.names(object));
            if !calls_webhook(kind) {
                return self.converter.selected(kind, all, selection).await;
            }
            all = self.converter.for_watch(kind, all, selection).await?;
        }
        all.retain(|object| selection.matches(object));
        Ok(all)
    }
}

fn too_old(at: Revision) -> ApiError {
    ApiError::expired(format!("too old resource version: {at}"))
}

fn check(options: &ListOptions) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    match options.send_initial_events {
        Some(_) if options.resource_version_match != "NotOlderThan" => {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        None if !options.resource_version_match.is_empty() => {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        _ => {}
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", causes)) }
}

impl Watch {
    /// The watch of a user, by whose name deliveries are recorded.
    #[must_use]
    pub fn by(self, user: &str) -> Self {
        Self { watcher: user.into(), ..self }
    }

    /// The frames of the watch: whole JSON lines, of about the size of a chunk. A frame is made when the one before it is taken,
    /// so that a client that does not read keeps a place in the ring and no more events than fit into a frame.
    pub fn frames(self) -> impl Stream<Item = Result<Bytes, BoxError>> + Send {
        futures::stream::unfold(Some(self), |state| async move {
            let mut watch = state?;
            match watch.next().await {
                Some(Ok(frame)) => Some((Ok(frame), Some(watch))),
                Some(Err(last)) => Some((Ok(last), None)),
                None => None,
            }
        })
    }

    /// The next frame; `Err` is a frame after which the watch ends.
    async fn next(&mut self) -> Option<Result<Bytes, Bytes>> {
        if let Some(frame) = self.initial_frame() {
            return Some(Ok(frame));
        }
        loop {
            let quiet = Instant::now() + BOOKMARK_EVERY;
            let batch = tokio::select! {
                batch = self.cursor.next_batch() => batch,
                () = tokio::time::sleep_until(self.deadline) => {
                    // The last word of a watch that ends in time: where to go on from.
                    return if self.bookmarks { Some(Err(self.bookmark(false))) } else { None };
                }
                () = tokio::time::sleep_until(quiet), if self.bookmarks => return Some(Ok(self.bookmark(false))),
            };
            let Ok(batch) = batch else {
                let status = too_old(self.reached).to_json();
                return Some(Err(line("ERROR", &status)));
            };
            let seen = match self.convert(&batch).await {
                Ok(seen) => seen,
                Err(error) => return Some(Err(line("ERROR", &error.to_json()))),
            };
            // The frame below ends with it; a bookmark while others wait must not go back behind it.
            if let Some(last) = batch.last() {
                self.reached = self.reached.max(last.object.revision);
            }
            if let [event] = batch.as_slice()
                && seen.is_empty()
                && self.is_shared_line(event)
            {
                self.delivered(event);
                return Some(Ok(event.line.clone()));
            }
            let mut frame = Vec::new();
            for (i, event) in batch.iter().enumerate() {
                let before = frame.len();
                match seen.get(i) {
                    Some((object, previous)) => self.render(event, object, previous.as_ref(), &mut frame),
                    None => self.render(event, &event.object, event.previous.as_ref(), &mut frame),
                }
                if frame.len() > before {
                    self.delivered(event);
                }
            }
            if !frame.is_empty() {
                return Some(Ok(frame.into()));
            }
        }
    }

    /// Counts an event of a frame, and records who gets it.
    fn delivered(&self, event: &Event) {
        self.events.fetch_add(1, Ordering::Relaxed);
        let revision = event.object.revision;
        let number = self.recorder.contexts().map(|contexts| contexts.delivered(revision));
        if number.is_some_and(|number| number <= RECORDED) {
            let (uid, now) = (Uid::of(&event.object.meta.uid), self.recorder.now());
            let cause = SpanId::of_write(uid, revision);
            self.recorder.span_at(Stage::Delivered, cause, (uid, revision), now, now, &self.watcher, 0);
        }
    }

    /// Converts the objects of events to the watched version; empty if no conversion is needed. The definition may have
    /// changed since the watch began.
    async fn convert(&mut self, batch: &[Arc<Event>]) -> Result<Vec<VersionedEvent>, ApiError> {
        if self.kind.custom.is_none() {
            return Ok(Vec::new());
        }
        let newest = self.converter.newest(&self.kind);
        // The watcher knows other columns.
        self.header_sent &= newest.columns.len() == self.kind.columns.len();
        self.kind = newest;
        if !differs_for_watchers(&self.kind, &self.selection) {
            return Ok(Vec::new());
        }
        let inside = self.selection.selects_by_content();
        let concerned = |event: &Event| self.is_within(event) && self.selection.names(&event.object);
        let before = |event: &Event| event.previous.clone().filter(|_| inside);
        let all = batch.iter().filter(|event| concerned(event));
        let all = all.flat_map(|event| [Some(event.object.clone()), before(event)]).flatten().collect();
        let mut all = self.converter.for_watch(&self.kind, all, &self.selection).await?.into_iter();
        let mut seen = Vec::with_capacity(batch.len());
        for event in batch {
            let (mut object, mut previous) = (event.object.clone(), event.previous.clone());
            if concerned(event) {
                object = all.next().unwrap_or(object);
                if inside && previous.is_some() {
                    previous = all.next();
                }
            }
            seen.push((object, previous));
        }
        Ok(seen)
    }

    fn is_within(&self, event: &Event) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| event.object.meta.namespace == *namespace)
    }

    /// The next frame of initial events, followed by the `initial-events-end` bookmark.
    fn initial_frame(&mut self) -> Option<Bytes> {
        let mut frame = Vec::new();
        while frame.len() < CHUNK_SIZE
            && let Some(object) = self.initial.next()
        {
            self.render_object("ADDED", &object, &mut frame);
        }
        if self.initial.as_slice().is_empty() && std::mem::take(&mut self.initial_end) {
            frame.extend_from_slice(&self.bookmark(true));
        }
        (!frame.is_empty()).then(|| frame.into())
    }

    fn bookmark(&self, initial_end: bool) -> Bytes {
        let revision = self.cursor.position().map_or(self.reached, |p| p.max(self.reached));
        let metadata = make!(part ObjectMeta {
            resource_version: revision.to_string(),
            annotations: initial_end.then_some([("k8s.io/initial-events-end", "true")]),
        });
        let metadata = metadata.into_value();
        let object = match self.form {
            Form::Plain => {
                json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata})
            }
            Form::Partial(version) => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata})
            }
            Form::Table(version) => table::bookmark(&self.kind, version, metadata),
        };
        line("BOOKMARK", &object)
    }

    /// Whether the shared line of the event can be sent unchanged.
    fn is_shared_line(&self, event: &Event) -> bool {
        self.form == Form::Plain
            && !self.kind.is_view()
            && self.is_within(event)
            && self.event_type(event, &event.object, event.previous.as_ref()) == Some(event.what.word())
    }

    /// The event type for this watcher: entering the selection is ADDED, leaving it DELETED.
    fn event_type(
        &self,
        event: &Event,
        object: &Arc<Object>,
        previous: Option<&Arc<Object>>,
    ) -> Option<&'static str> {
        let before = previous.is_some_and(|o| self.selection.matches(o));
        let after = event.what != EventType::Deleted && self.selection.matches(object);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
        }
    }

    /// Renders an event for this watcher.
    fn render(
        &mut self,
        event: &Event,
        object: &Arc<Object>,
        previous: Option<&Arc<Object>>,
        out: &mut Vec<u8>,
    ) {
        if !self.is_within(event) {
            return;
        }
        let Some(what) = self.event_type(event, object, previous) else { return };
        if self.form == Form::Plain && !self.kind.is_view() && what == event.what.word() {
            out.extend_from_slice(&event.line);
            return;
        }
        if what == "DELETED"
            && event.what != EventType::Deleted
            && let Some(previous) = previous
        {
            // It left the selection: the watcher gets the last state it could see, at the revision of the change.
            if let Ok(object) = object_of(&self.kind, &previous.value(), event.object.revision) {
                self.render_object(what, &object, out);
            }
            return;
        }
        self.render_object(what, object, out);
    }

    fn render_object(&mut self, what: &str, object: &Arc<Object>, out: &mut Vec<u8>) {
        let Ok(object) = without_webhook(&self.kind, object) else { return };
        match self.form {
            Form::Plain => {
                out.extend_from_slice(b"{\"type\":\"");
                out.extend_from_slice(what.as_bytes());
                out.extend_from_slice(b"\",\"object\":");
                out.extend_from_slice(&object.json);
                out.extend_from_slice(b"}\n");
            }
            Form::Partial(version) => {
                out.extend_from_slice(&line(what, &table::partial(&object.value(), version)))
            }
            Form::Table(version) => {
                let with_columns = !std::mem::replace(&mut self.header_sent, true);
                let table =
                    table::of_event(&self.kind, &object.value(), version, &self.include_object, with_columns);
                out.extend_from_slice(&line(what, &table));
            }
        }
    }
}

fn line(what: &str, object: &Value) -> Bytes {
    let mut bytes = serde_json::to_vec(&json!({"type": what, "object": object})).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}
