//! A trace: spans with their parents, and the objects that they are about.

use coracle_trace::{Flags, Part, SpanId, Stage, TraceId, Uid};

use crate::standing::Standing;

/// An index into [`Tree::spans`].
pub type SpanIx = usize;

/// Names an object of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectKey {
    /// With its group, as `deployments.apps`.
    pub resource: String,
    /// Empty if the resource is cluster-scoped.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl ObjectKey {
    /// `resource/namespace/name`.
    pub(crate) fn text(&self) -> String {
        format!("{}/{}/{}", self.resource, self.namespace, self.name)
    }

    /// The verb and the object of the text of a `Write` record: `create pods default/web`, `create nodes node1`, and the same with
    /// the three parts of the object separated by slashes.
    pub(crate) fn of_write(text: &str) -> Option<(&str, Self)> {
        let (verb, [resource, namespace, name]) = Self::parts_of_write(text)?;
        Some((verb, Self { resource: resource.into(), namespace: namespace.into(), name: name.into() }))
    }

    /// The verb, and resource, namespace and name of the object.
    pub(crate) fn parts_of_write(text: &str) -> Option<(&str, [&str; 3])> {
        let (verb, object) = text.split_once(' ')?;
        let (resource, namespace, name) = match object.split_once(' ') {
            Some((resource, path)) => match path.split_once('/') {
                Some((namespace, name)) => (resource, namespace, name),
                None => (resource, "", path),
            },
            None => {
                let mut parts = object.splitn(3, '/');
                (parts.next()?, parts.next()?, parts.next()?)
            }
        };
        Some((verb, [resource, namespace, name.lines().next().unwrap_or_default()]))
    }
}

/// A trace that begins with one request, turn of a control loop or event of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    /// Where it begins.
    pub root: SpanIx,
    /// In order of start.
    pub spans: Vec<SpanNode>,
    /// What the spans are about; the object of the root is first.
    pub objects: Vec<TracedObject>,
    /// Sentences about what is missing or uncertain.
    pub notes: Vec<String>,
    /// The client's, or one made by the server.
    pub trace: TraceId,
    /// The client's span that the root hangs below.
    pub remote: SpanId,
    /// When it was assembled, in nanoseconds of unix time: spans without an end last until then.
    pub now: u64,
}

/// A span of a tree. Times are unix nanoseconds of the server's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanNode {
    /// Of a stored write: [`SpanId::of_write`].
    pub id: SpanId,
    /// What it is part of or what caused it.
    pub parent: Option<SpanIx>,
    /// In order of start.
    pub children: Vec<SpanIx>,
    /// What happened.
    pub stage: Stage,
    /// Verb, controller, plugin, image or container, by stage.
    pub name: String,
    /// What else was recorded: a reason, a key, user and user agent.
    pub text: String,
    /// An index into [`Tree::objects`].
    pub object: Option<usize>,
    /// The revision of the object that it is about, or that it made.
    pub revision: u64,
    /// Where it happened; empty: in the server.
    pub node: String,
    /// When it began.
    pub start: u64,
    /// `None` while it is open.
    pub end: Option<u64>,
    /// How far the times may be off.
    pub uncertainty: u64,
    /// HTTP status, exit code, attempt or count, by stage.
    pub code: u16,
    /// How it ended, and how its parent is known.
    pub flags: Flags,
}

/// An object that a trace is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TracedObject {
    /// Its name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Uid,
    /// The uid of its controller.
    pub owner: Uid,
    /// Where it runs, if it is a pod.
    pub node: String,
    /// Whether the user may not see its name.
    pub hidden: bool,
    /// How it stands now.
    pub standing: Standing,
}

/// A stretch of the critical path.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The span that the time was spent in; `None` between spans.
    pub span: Option<SpanIx>,
    /// For people.
    pub name: String,
    /// Unix nanoseconds.
    pub start: u64,
    /// Unix nanoseconds.
    pub end: u64,
    /// Whether it counts as explained.
    pub measured: bool,
}

/// The name of a piece about which nothing is known.
pub(crate) const NOT_RECORDED: &str = "not recorded";

impl Piece {
    /// One between spans, with a name that explains it unless it says that nothing was recorded.
    pub(crate) fn between(name: String, start: u64, end: u64) -> Self {
        Self { span: None, measured: name != NOT_RECORDED, name, start, end }
    }
}

impl Tree {
    /// When a span ended, or the present.
    pub(crate) fn end(&self, span: SpanIx) -> u64 {
        let node = &self.spans[span];
        node.end.unwrap_or(self.now).max(node.start)
    }

    /// A span's stage and name, for people.
    pub(crate) fn label(&self, span: SpanIx) -> String {
        let node = &self.spans[span];
        match (node.stage, node.name.as_str()) {
            (Stage::Request | Stage::Reconcile | Stage::CniPlugin | Stage::Probe, name)
                if !name.is_empty() =>
            {
                name.to_owned()
            }
            (Stage::Write, verb) => match node.object.and_then(|object| self.objects.get(object)) {
                Some(object) if !object.hidden => {
                    format!("{verb} {} {}", object.key.resource, object.key.name)
                }
                _ => format!("{verb} object"),
            },
            (stage, "") => stage.name().to_owned(),
            (stage, name) => format!("{} {name}", stage.name()),
        }
    }

    /// The newest time in it.
    pub(crate) fn last_end(&self) -> u64 {
        (0..self.spans.len()).map(|span| self.end(span)).max().unwrap_or_default()
    }

    /// The end of what made the effect of a span visible to others: of a write its publication, else the span itself.
    pub(crate) fn effect(&self, span: SpanIx) -> SpanIx {
        let child = |of: SpanIx, stage| {
            self.spans[of].children.iter().copied().find(|child| self.spans[*child].stage == stage)
        };
        if self.spans[span].stage != Stage::Write {
            return span;
        }
        let Some(store) = child(span, Stage::Store) else { return span };
        child(store, Stage::Publish).unwrap_or(store)
    }
}

/// Whether a span goes on while its child does, and does not end before it: false for what it only caused.
pub(crate) fn waits_for(parent: Stage, child: Stage) -> bool {
    let is_event = matches!(child, Stage::Delivered | Stage::Seen);
    let is_moment = matches!(parent, Stage::Exit | Stage::Evicted);
    !is_event && !is_moment && (parent != Stage::Write || child.part() == Part::Write)
}

/// The children of each span.
pub(crate) fn children_of(spans: &[SpanNode]) -> Vec<Vec<SpanIx>> {
    let mut children = vec![Vec::new(); spans.len()];
    for (index, span) in spans.iter().enumerate() {
        if let Some(parent) = span.parent {
            children[parent].push(index);
        }
    }
    children
}

/// Fills in the children.
pub(crate) fn link(spans: &mut [SpanNode]) {
    for (span, children) in children_of(spans).into_iter().enumerate() {
        spans[span].children = children;
    }
}

/// Puts spans in order of start, parents before what began with them, and links them. Returns where the root is.
pub(crate) fn sort(spans: Vec<SpanNode>, root: SpanIx) -> (Vec<SpanNode>, SpanIx) {
    let depths = depths(&spans);
    let mut order: Vec<SpanIx> = (0..spans.len()).collect();
    order
        .sort_by_key(|span| (spans[*span].start, depths[*span], spans[*span].end.unwrap_or(u64::MAX), *span));
    let mut place = vec![0; spans.len()];
    order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
    let mut spans: Vec<Option<SpanNode>> = spans.into_iter().map(Some).collect();
    let mut sorted: Vec<SpanNode> = order.iter().filter_map(|old| spans[*old].take()).collect();
    for span in &mut sorted {
        span.parent = span.parent.map(|parent| place[parent]);
    }
    link(&mut sorted);
    (sorted, place[root])
}

fn depths(spans: &[SpanNode]) -> Vec<usize> {
    let children = children_of(spans);
    let mut depths = vec![0; spans.len()];
    let mut rest: Vec<SpanIx> = (0..spans.len()).filter(|span| spans[*span].parent.is_none()).collect();
    while let Some(span) = rest.pop() {
        for child in &children[span] {
            depths[*child] = depths[span] + 1;
            rest.push(*child);
        }
    }
    depths
}

/// The first write of a tree: what it is about.
pub(crate) fn first_write(tree: &Tree) -> Option<&SpanNode> {
    tree.spans.iter().find(|span| span.stage == Stage::Write)
}

pub(crate) fn is_failed(span: &SpanNode) -> bool {
    span.flags.contains(Flags::FAILED)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn texts_of_writes_name_their_object() {
        for (text, verb, object) in [
            ("create deployments.apps default/web", "create", "deployments.apps/default/web"),
            ("create nodes node1", "create", "nodes//node1"),
            ("patch pods/default/web", "patch", "pods/default/web"),
            ("delete nodes//node1", "delete", "nodes//node1"),
            ("create pods default/web\nrefused", "create", "pods/default/web"),
        ] {
            let (found, key) = ObjectKey::of_write(text).unwrap();
            assert_eq!((found, key.text().as_str()), (verb, object), "{text}");
        }
        assert_eq!(ObjectKey::of_write("create"), None);
        assert_eq!(ObjectKey::of_write("create pods"), None);
    }
}
