//! Traces of clusters and nodes that record no spans: from objects and their Events.
//!
//! Most times are whole seconds: every span says how far it may be off.

use std::collections::HashMap;

use coracle_trace::{Flags, SpanId, Stage, TraceId, Uid};
use serde_json::Value;

use crate::evidence_events::{Happened, Time, happened, pulled};
use crate::tree::{ObjectKey, SpanIx, SpanNode, TracedObject, Tree, sort};

/// Writes of other managers that are shown per object.
const MANAGERS: usize = 20;
/// Warnings that are shown per object.
const WARNINGS: usize = 50;

/// A tree of objects, the first of which is what was asked for. `now` is unix time in nanoseconds.
pub fn of_objects(objects: &[Value], events: &[Value], now: u64) -> Tree {
    let mut evidence = Evidence { nodes: Vec::new(), objects: Vec::new(), writes: HashMap::new() };
    for object in objects {
        evidence.add_object(object);
    }
    if evidence.nodes.is_empty() {
        evidence.add(None, Stage::Other, "nothing is known", Time { at: now, uncertainty: 0 }, Some(now));
    }
    let root = evidence.connect(objects);
    let events = happened(events);
    for (index, object) in objects.iter().enumerate() {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let about: Vec<&Happened<'_>> =
            events.iter().filter(|event| event.uid == uid && !uid.is_empty()).collect();
        evidence.add_changes(object, index);
        let write = evidence.write_of(index);
        let place = if object["kind"] == "Pod" { evidence.add_pod(object, index, &about) } else { write };
        for event in about.iter().filter(|event| event.is_warning).take(WARNINGS) {
            let span = evidence.add(place, Stage::Other, event.reason, event.time, Some(event.time.at));
            evidence.nodes[span].text = event.message.to_owned();
            evidence.nodes[span].object = Some(index);
        }
    }
    let (spans, root) = sort(evidence.nodes, root);
    let notes = vec!["from conditions, container states and Events; times are exact to a second".to_owned()];
    Tree { root, spans, objects: evidence.objects, notes, trace: TraceId::NONE, remote: SpanId::NONE, now }
}

struct Evidence {
    nodes: Vec<SpanNode>,
    objects: Vec<TracedObject>,
    /// The span of the creation of each object.
    writes: HashMap<usize, SpanIx>,
}

impl Evidence {
    fn add(
        &mut self,
        parent: Option<SpanIx>,
        stage: Stage,
        name: &str,
        start: Time,
        end: Option<u64>,
    ) -> SpanIx {
        self.nodes.push(SpanNode {
            id: SpanId::fresh(),
            parent,
            children: Vec::new(),
            stage,
            name: name.to_owned(),
            text: String::new(),
            object: parent.and_then(|parent| self.nodes[parent].object),
            revision: 0,
            node: String::new(),
            start: start.at,
            end: end.map(|end| end.max(start.at)),
            uncertainty: start.uncertainty,
            code: 0,
            flags: Flags(0),
        });
        self.nodes.len() - 1
    }

    fn write_of(&self, object: usize) -> Option<SpanIx> {
        self.writes.get(&object).copied()
    }

    fn add_object(&mut self, object: &Value) {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let index = self.objects.len();
        self.objects.push(TracedObject {
            key: ObjectKey {
                resource: resource(&text(&object["apiVersion"]), &text(&object["kind"])),
                namespace: text(&metadata["namespace"]),
                name: text(&metadata["name"]),
            },
            uid: Uid::of(&text(&metadata["uid"])),
            owner: Uid::of(&text(&controller(object)["uid"])),
            node: text(&object["spec"]["nodeName"]),
            ..TracedObject::default()
        });
        if let Some(created) = Time::of(&metadata["creationTimestamp"]) {
            let span = self.add(None, Stage::Write, "create", created, Some(created.at));
            self.nodes[span].object = Some(index);
            self.writes.insert(index, span);
        }
    }

    /// Hangs creations below those of their owners. Returns the root: the topmost owner of the first object.
    fn connect(&mut self, objects: &[Value]) -> SpanIx {
        let by_uid: HashMap<Uid, SpanIx> =
            self.writes.iter().map(|(object, span)| (self.objects[*object].uid, *span)).collect();
        for (object, span) in &self.writes {
            let owner = by_uid.get(&self.objects[*object].owner).copied();
            self.nodes[*span].parent = owner.filter(|owner| owner != span);
        }
        let mut root = (0..objects.len()).find_map(|object| self.write_of(object)).unwrap_or(0);
        for _ in 0..objects.len() {
            root = self.nodes[root].parent.unwrap_or(root);
        }
        self.nodes[root].parent = None;
        let begin = self.nodes[root].start;
        for span in self.writes.values().filter(|span| **span != root) {
            let node = &mut self.nodes[*span];
            node.parent = node.parent.or(Some(root));
            // Nothing of a tree is before its root; what was there already began with it.
            node.start = node.start.max(begin);
            node.end = Some(node.start);
        }
        root
    }

    /// Later writes, by who made them.
    fn add_changes(&mut self, object: &Value, index: usize) {
        let Some(write) = self.write_of(index) else { return };
        let created = self.nodes[write].start;
        let managers = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
        for manager in managers.iter().filter(|manager| manager["subresource"].is_null()).take(MANAGERS) {
            let Some(time) = Time::of(&manager["time"]).filter(|time| time.at > created) else { continue };
            let verb = if manager["operation"] == "Apply" { "apply" } else { "update" };
            let span = self.add(Some(write), Stage::Write, verb, time, Some(time.at));
            self.nodes[span].text = manager["manager"].as_str().unwrap_or_default().to_owned();
        }
    }

    /// The life of a pod. Returns the span that its Events hang below.
    fn add_pod(&mut self, pod: &Value, index: usize, events: &[&Happened<'_>]) -> Option<SpanIx> {
        let write = self.write_of(index)?;
        let created = Time { at: self.nodes[write].start, uncertainty: self.nodes[write].uncertainty };
        let node = self.objects[index].node.clone();
        let status = &pod["status"];
        let condition = |name: &str| condition(status, name);
        let Some((scheduled, _)) = condition("PodScheduled").filter(|(_, is_true)| *is_true) else {
            let since = condition("PodScheduled").map_or(created, |(time, _)| time);
            let span = self.add(Some(write), Stage::Unschedulable, "", since, None);
            self.nodes[span].text = message(status, "PodScheduled");
            return Some(write);
        };
        self.add(Some(write), Stage::Attempt, &node, created, Some(scheduled.at));
        let ready = condition("Ready").filter(|(_, is_true)| *is_true).map(|(time, _)| time);
        let ended = ["Succeeded", "Failed"].iter().any(|phase| status["phase"] == *phase);
        let end = ready.map(|ready| ready.at).or_else(|| ended.then(|| last_finish(status)).flatten());
        let start = self.add(Some(write), Stage::PodStart, "", scheduled, end);
        self.nodes[start].node.clone_from(&node);
        if status["phase"] == "Failed" {
            self.nodes[start].flags.insert(Flags::FAILED);
            self.nodes[start].text = status["reason"].as_str().unwrap_or_default().to_owned();
        }
        let first = self.nodes.len();
        let mut available = scheduled;
        for event in events.iter().filter(|event| event.reason == "Pulled") {
            let Some((image, duration)) = pulled(event.message) else { continue };
            let begin = Time { at: event.time.at.saturating_sub(duration).max(scheduled.at), ..event.time };
            self.add(Some(start), Stage::Image, image, begin, Some(event.time.at));
            available = available.max(event.time);
        }
        for container in containers(status, "initContainerStatuses") {
            self.add_init_container(start, container);
        }
        for container in containers(status, "containerStatuses") {
            self.add_container(start, container, available);
        }
        if let Some(ready) = ready {
            self.add(Some(start), Stage::Ready, "", ready, Some(ready.at));
        }
        for span in &mut self.nodes[first..] {
            span.node.clone_from(&node);
        }
        Some(start)
    }

    fn add_init_container(&mut self, start: SpanIx, container: &Value) {
        let ran = &container["state"]["terminated"];
        let name = container["name"].as_str().unwrap_or_default();
        if let (Some(from), Some(to)) = (Time::of(&ran["startedAt"]), Time::of(&ran["finishedAt"])) {
            let span = self.add(Some(start), Stage::InitRun, name, from, Some(to.at));
            self.nodes[span].code = exit_code(ran);
        } else {
            self.add_waiting(start, container);
        }
    }

    fn add_container(&mut self, start: SpanIx, container: &Value, available: Time) {
        let name = container["name"].as_str().unwrap_or_default();
        let attempt = container["restartCount"].as_u64().unwrap_or_default() + 1;
        for state in [&container["lastState"]["terminated"], &container["state"]["terminated"]] {
            if let Some(ended) = Time::of(&state["finishedAt"]) {
                let span = self.add(Some(start), Stage::Exit, name, ended, Some(ended.at));
                self.nodes[span].code = exit_code(state);
                self.nodes[span].text = state["reason"].as_str().unwrap_or_default().to_owned();
            }
        }
        let previous = Time::of(&container["lastState"]["terminated"]["finishedAt"]);
        if let Some(running) = Time::of(&container["state"]["running"]["startedAt"]) {
            let from = previous.unwrap_or(available).min(running);
            let span = self.add(Some(start), Stage::Container, name, from, Some(running.at));
            self.nodes[span].code = u16::try_from(attempt).unwrap_or(u16::MAX);
        }
        self.add_waiting(start, container);
    }

    fn add_waiting(&mut self, start: SpanIx, container: &Value) {
        let waiting = &container["state"]["waiting"];
        let stage = match waiting["reason"].as_str() {
            Some("CrashLoopBackOff") => Stage::CrashBackoff,
            Some("ImagePullBackOff" | "ErrImagePull") => Stage::ImageBackoff,
            _ => return,
        };
        let begin = Time { at: self.nodes[start].start, uncertainty: self.nodes[start].uncertainty };
        let since = Time::of(&container["lastState"]["terminated"]["finishedAt"]).unwrap_or(begin);
        let span = self.add(Some(start), stage, container["name"].as_str().unwrap_or_default(), since, None);
        self.nodes[span].text = waiting["message"].as_str().unwrap_or_default().to_owned();
    }
}

/// The resource of a kind as clients guess it.
fn resource(api_version: &str, kind: &str) -> String {
    let kind = kind.to_lowercase();
    let plural = match kind.as_bytes() {
        [.., b's'] | [.., b'x'] | [.., b'c', b'h'] => format!("{kind}es"),
        [.., b'a' | b'e' | b'i' | b'o' | b'u', b'y'] => format!("{kind}s"),
        [stem @ .., b'y'] => format!("{}ies", String::from_utf8_lossy(stem)),
        _ => format!("{kind}s"),
    };
    let plural = if kind == "endpoints" { kind } else { plural };
    match api_version.split_once('/') {
        Some((group, _)) => format!("{plural}.{group}"),
        None => plural,
    }
}

fn controller(object: &Value) -> &Value {
    let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    owners.iter().find(|owner| owner["controller"] == true).unwrap_or(&Value::Null)
}

/// When a condition last changed, and whether it is true.
fn condition(status: &Value, name: &str) -> Option<(Time, bool)> {
    let condition = status["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)?;
    Some((Time::of(&condition["lastTransitionTime"])?, condition["status"] == "True"))
}

fn message(status: &Value, name: &str) -> String {
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let condition = conditions.iter().find(|condition| condition["type"] == name);
    condition.and_then(|condition| condition["message"].as_str()).unwrap_or_default().to_owned()
}

fn containers<'a>(status: &'a Value, field: &str) -> &'a [Value] {
    status[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn exit_code(state: &Value) -> u16 {
    state["exitCode"].as_u64().and_then(|code| code.try_into().ok()).unwrap_or_default()
}

fn last_finish(status: &Value) -> Option<u64> {
    let finished = |container: &Value| Time::of(&container["state"]["terminated"]["finishedAt"]);
    containers(status, "containerStatuses").iter().filter_map(finished).map(|time| time.at).max()
}
