//! What a trace has written: whether all of it is ready, and what is stuck.

use super::super::connect::Connected;
use super::super::resources::{self, Resource};
use super::answer::{Fate, Object, Trace, Trouble};
use super::finish::{self, Programming, Progress, is_ready_node, progress};
use super::names;
use super::width::printable;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::Pod;
use jiff::Timestamp;
use serde_json::Value;
use std::time::{Duration, Instant};

/// What has been stuck for so long is given up.
const STUCK: Duration = Duration::from_secs(15);
/// Rules of a Service that nobody programs are not waited for any longer than this.
const QUIET: Duration = Duration::from_secs(3);
/// What was ready is looked at again after so long: a pod that was not found may only have been created a moment ago.
const REMEMBERED: Duration = Duration::from_secs(5);
/// The most objects that are looked at in a turn. While there are more, not all is ready.
const MOST: usize = 2000;
/// Pods of a namespace that are looked at.
const LISTED: usize = 500;

/// How far everything is that a trace has written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Ready,
    Waiting,
    /// For longer than [`STUCK`].
    Stuck(String),
    Failed(String),
}

/// What is known about the objects of a trace.
#[derive(Default)]
pub(super) struct Watch {
    /// Objects that are ready, and since when they are remembered.
    done: Vec<Object>,
    done_since: Option<Instant>,
    /// The object that is stuck, why, and since when.
    stuck: Option<(Object, String, Instant)>,
    /// Spans at the last look, and since when it is the same number.
    spans: Option<(usize, Instant)>,
}

impl Watch {
    /// What was ready is looked at again: it may not have stayed so.
    pub(super) fn forget(&mut self) {
        self.done.clear();
        self.done_since = None;
    }

    /// Looks at what is not ready yet.
    pub(super) async fn look(
        &mut self,
        connected: &Connected,
        resources: &[Resource],
        trees: &[Trace],
    ) -> Verdict {
        if self.done_since.get_or_insert_with(Instant::now).elapsed() >= REMEMBERED {
            self.forget();
        }
        let count: usize = trees.iter().map(|tree| tree.spans.len()).sum();
        let quiet_since =
            self.spans.filter(|(spans, _)| *spans == count).map_or_else(Instant::now, |(_, since)| since);
        self.spans = Some((count, quiet_since));
        let written = trees.iter().flat_map(|tree| tree.objects.iter().map(move |object| (tree, object)));
        let (mut waits, mut services, mut stuck) = (false, false, None);
        for (count, (tree, object)) in written.filter(|(_, object)| !object.hidden).enumerate() {
            if count >= MOST {
                waits = true;
                break;
            }
            if self.done.contains(object) {
                continue;
            }
            let Some(resource) = resources::by_key(resources, &object.resource) else { continue };
            match look_at(connected, resource, object, tree).await {
                Progress::Done => self.done.push(object.clone()),
                Progress::Waiting if object.resource == "services" => services = true,
                Progress::Waiting => waits = true,
                Progress::Stuck(reason) | Progress::Restarted(reason) => {
                    stuck = stuck.or(Some((object, reason)))
                }
                Progress::Failed(reason) => return Verdict::Failed(sentence(object, &reason)),
            }
        }
        let Some((object, reason)) = stuck else {
            self.stuck = None;
            let is_quiet = quiet_since.elapsed() >= QUIET;
            return if waits || (services && !is_quiet) { Verdict::Waiting } else { Verdict::Ready };
        };
        let since = self
            .stuck
            .take()
            .filter(|(known, ..)| known == object)
            .map_or_else(Instant::now, |(.., since)| since);
        let verdict = if since.elapsed() >= STUCK {
            Verdict::Stuck(sentence(object, &reason))
        } else {
            Verdict::Waiting
        };
        self.stuck = Some((object.clone(), reason, since));
        verdict
    }

    /// Says what is not ready; the exit code.
    pub(super) fn conclude(&self, verdict: &Verdict) -> i32 {
        let text = match (verdict, &self.stuck) {
            (Verdict::Ready, _) => return 0,
            (Verdict::Stuck(text) | Verdict::Failed(text), _) => text.clone(),
            (Verdict::Waiting, Some((object, reason, _))) => sentence(object, reason),
            (Verdict::Waiting, None) => "not everything is ready yet".to_owned(),
        };
        eprintln!("coracle trace: {text}");
        1
    }
}

/// Why the object of a trace is not well now: itself, or one of its pods. What is ready or only waits is well.
pub(super) async fn trouble(connected: &Connected, resources: &[Resource], tree: &Trace) -> Now {
    let subject = tree.object.as_ref().and_then(|subject| {
        tree.objects.iter().find(|object| {
            !object.hidden && object.resource == subject.resource && object.name == subject.name
        })
    });
    let Some(subject) = subject else { return Now::Waiting };
    let pods = tree.objects.iter().filter(|object| object.resource == "pods" && !object.hidden);
    let pods: Vec<&Object> = pods.filter(|pod| *pod != subject).collect();
    for object in std::iter::once(subject).chain(pods.iter().copied()).take(MOST) {
        let Some(resource) = resources::by_key(resources, &object.resource) else { continue };
        let (reason, now) = match look_at(connected, resource, object, tree).await {
            Progress::Done if object == subject => {
                let trouble = restarted(connected, resources, &pods).await;
                return trouble.map_or(Now::Done, Now::Trouble);
            }
            Progress::Done | Progress::Waiting => continue,
            Progress::Stuck(reason) => (reason, Fate::NotReady),
            Progress::Restarted(reason) => (reason, Fate::Restarted),
            Progress::Failed(reason) => (reason, Fate::Failed),
        };
        return Now::Trouble(Trouble { text: sentence(object, &reason), now });
    }
    Now::Waiting
}

/// Which of the pods of an object that is ready was restarted a moment ago. What may not be read is well.
async fn restarted(connected: &Connected, resources: &[Resource], pods: &[&Object]) -> Option<Trouble> {
    let (first, resource) = (pods.first()?, resources::by_key(resources, "pods")?);
    let path = format!("{}?limit={LISTED}", resource.path(&first.namespace));
    let list = connected.get(&path).await.ok()?;
    list.get("items").and_then(Value::as_array)?.iter().find_map(|item| {
        let view = Pod::of(item);
        let name = view.metadata().name().text();
        let pod = pods.iter().find(|pod| pod.name == name && pod.namespace == first.namespace)?;
        match finish::pod(view, Timestamp::now()) {
            Progress::Restarted(reason) => {
                Some(Trouble { text: sentence(pod, &reason), now: Fate::Restarted })
            }
            _ => None,
        }
    })
}

/// How an object is now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Now {
    Done,
    Waiting,
    Trouble(Trouble),
}

/// What is wrong with an object, and what says more.
fn sentence(object: &Object, reason: &str) -> String {
    let name = names::object(object);
    let namespace =
        if object.namespace.is_empty() { String::new() } else { format!(" -n {}", object.namespace) };
    printable(&format!("{name}: {reason}; `coracle why {name}{namespace}` says more"))
}

/// How far an object is by its state in the API. What may not be read is not waited for.
async fn look_at(connected: &Connected, resource: &Resource, object: &Object, tree: &Trace) -> Progress {
    let path = format!("{}/{}", resource.path(&object.namespace), object.name);
    let current = match connected.get(&path).await {
        Ok(current) => Some(current),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => None,
        Err(_) => return Progress::Waiting,
    };
    let nodes = match (object.resource.as_str(), &current) {
        ("services", Some(_)) => connected.get("/api/v1/nodes").await.unwrap_or_default(),
        _ => Value::Null,
    };
    let nodes = nodes.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let ready = nodes.iter().filter(|node| is_ready_node(node)).filter_map(|node| {
        node.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str)
    });
    let programmed = tree.spans.iter().filter(|span| span.stage == "rules-programmed" && span.end.is_some());
    let programming = Programming {
        programmed: programmed.map(|span| span.node.as_str()).collect(),
        ready: ready.collect(),
    };
    progress(&object.resource, current.as_ref(), &programming)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_at_the_end() {
        let object = Object {
            resource: "pods".to_owned(),
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            ..Object::default()
        };
        let text = sentence(&object, "no node");
        assert_eq!(text, "pod/b: no node; `coracle why pod/b -n a` says more");
        let watch = Watch::default();
        assert_eq!(watch.conclude(&Verdict::Ready), 0);
        assert_eq!(watch.conclude(&Verdict::Failed(text)), 1);
        assert_eq!(watch.conclude(&Verdict::Waiting), 1);
    }
}
