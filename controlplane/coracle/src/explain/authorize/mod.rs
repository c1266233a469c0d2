//! What a user may see of a timeline: names, texts and nodes only of objects that she may get, and of other users' requests only that
//! they were there.

// Nodes that a user may not get.
mod nodes;

use coracle_apiserver::authz::{Authorizer, Decision};
use coracle_apiserver::request_info::RequestInfo;
use coracle_apiserver::verb::Verb;
use coracle_client::user::{MASTERS, User};
use coracle_kinds::registry::index::Registry;
use coracle_timeline::{ObjectKey, SpanIx, TracedObject, Tree};
use coracle_trace::{Part, Stage, Uid};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Objects of an answer that the authorizer is asked about; the others are hidden.
const ASKED: usize = 1000;
/// How far up a span is followed to find what it is about.
const DEPTH: usize = 64;
/// The path whose readers see users of all requests.
const SPANS: &str = "/coracle/v1/spans";

/// Group and plural of a resource such as `deployments.apps`.
pub fn group_and_plural(resource: &str) -> (&str, &str) {
    resource.split_once('.').map_or(("", resource), |(plural, group)| (group, plural))
}

/// A user who reads timelines. What the authorizer said is remembered for as long as this is there.
pub struct Reader {
    authz: Arc<dyn Authorizer>,
    registry: Arc<Registry>,
    user: User,
    known: HashMap<ObjectKey, bool>,
    /// Whether the users of all requests are shown.
    sees_users: bool,
}

impl Reader {
    /// A user; asks whether she may see the users of requests.
    pub async fn new(authz: Arc<dyn Authorizer>, registry: Arc<Registry>, user: User) -> Self {
        let info = RequestInfo { verb: Verb::Get, path: SPANS.to_owned(), ..RequestInfo::default() };
        let sees_users = user.in_group(MASTERS) || authz.authorize(&user, &info).await == Decision::Allow;
        Self { authz, registry, user, known: HashMap::new(), sees_users }
    }

    /// Whether the user may get an object.
    pub async fn may_get(&mut self, key: &ObjectKey) -> bool {
        if let Some(known) = self.known.get(key) {
            return *known;
        }
        if self.known.len() >= ASKED {
            return false;
        }
        let (group, plural) = group_and_plural(&key.resource);
        let kind = self.registry.preferred(group, plural);
        // A request for a namespace is one in it.
        let namespace = if key.resource == "namespaces" { &key.name } else { &key.namespace };
        let info = RequestInfo {
            verb: Verb::Get,
            is_resource: true,
            group: group.to_owned(),
            version: kind.map_or_else(|| "v1".to_owned(), |kind| kind.version.clone()),
            namespace: namespace.clone(),
            in_namespace: !key.namespace.is_empty(),
            resource: plural.to_owned(),
            name: key.name.clone(),
            ..RequestInfo::default()
        };
        let may = self.authz.authorize(&self.user, &info).await == Decision::Allow;
        self.known.insert(key.clone(), may);
        may
    }

    /// Whether the user sees requests that are about no object, too.
    pub fn sees_everything(&self) -> bool {
        self.sees_users
    }

    /// Removes from a tree what the user may not see.
    pub async fn censor(&mut self, tree: &mut Tree) {
        let mut visible = Vec::with_capacity(tree.objects.len());
        for object in &tree.objects {
            visible.push(!object.hidden && self.may_get(&object.key).await);
        }
        let named = nodes::named(tree);
        hide(tree, &visible, &|user| self.shown(user));
        if !self.may_list_nodes().await {
            let mut readable = HashSet::new();
            for name in named {
                let key =
                    ObjectKey { resource: "nodes".to_owned(), namespace: String::new(), name: name.clone() };
                if self.may_get(&key).await {
                    readable.insert(name);
                }
            }
            nodes::hide(tree, &readable);
        }
    }

    /// Who may list nodes sees all of them. Asked first: there may be more nodes than are asked about one by one.
    async fn may_list_nodes(&self) -> bool {
        let info = RequestInfo {
            verb: Verb::List,
            is_resource: true,
            version: "v1".to_owned(),
            resource: "nodes".to_owned(),
            ..RequestInfo::default()
        };
        self.authz.authorize(&self.user, &info).await == Decision::Allow
    }

    /// User and program of a change, as far as they are shown.
    pub fn author(&self, user: String, program: String) -> (String, String) {
        author(self.shown(&user), user, program)
    }

    /// What is shown of the name of a user: all of it, or only that it is one of the system's.
    fn shown(&self, user: &str) -> Shown {
        match user.split_once(':') {
            _ if self.sees_users || user == self.user.name => Shown::All,
            Some(("system", _)) => Shown::System,
            _ => Shown::Nothing,
        }
    }
}

/// How much of a user is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    All,
    System,
    Nothing,
}

/// User and program, of which only as much is left as is shown. Control loops have no user.
fn author(shown: Shown, user: String, program: String) -> (String, String) {
    match shown {
        Shown::All => (user, program),
        _ if user.is_empty() => (user, program),
        Shown::System => ("system".to_owned(), String::new()),
        Shown::Nothing => (String::new(), String::new()),
    }
}

/// Hides objects, and what spans say about them.
fn hide(tree: &mut Tree, visible: &[bool], users: &dyn Fn(&str) -> Shown) {
    let is_hidden =
        |object: Option<usize>| object.is_some_and(|at| !visible.get(at).copied().unwrap_or(false));
    let hidden: Vec<bool> = (0..tree.spans.len()).map(|span| is_hidden(object_of(tree, span))).collect();
    // The path of a request has the name of what it writes.
    let mut paths = vec![false; tree.spans.len()];
    let about_hidden = (0..tree.spans.len()).filter(|span| is_hidden(tree.spans[*span].object));
    about_hidden.filter_map(|span| request_of(tree, span)).for_each(|request| paths[request] = true);
    let shown = tree.objects.iter().zip(visible).filter(|(_, visible)| **visible).map(|(object, _)| object);
    let keys: HashSet<String> = shown.clone().map(key_of).collect();
    let nodes: HashSet<String> = shown.map(|object| object.node.clone()).collect();
    for (at, span) in tree.spans.iter_mut().enumerate() {
        if hidden[at] {
            span.name.clear();
            span.text.clear();
            span.node.clear();
            span.revision = 0;
            continue;
        }
        match span.stage {
            Stage::Request => {
                if paths[at] {
                    span.name.truncate(span.name.find(' ').unwrap_or(span.name.len()));
                }
                let user = span.text.split('\n').next().unwrap_or_default();
                match users(user) {
                    Shown::All => {}
                    Shown::System => span.text = "system".to_owned(),
                    Shown::Nothing => span.text.clear(),
                }
            }
            Stage::Delivered => match users(&span.name) {
                Shown::All => {}
                Shown::System => span.name = "system".to_owned(),
                Shown::Nothing => span.name.clear(),
            },
            // The key need not be that of the object that caused it.
            Stage::Queued | Stage::Reconcile | Stage::RetryBackoff | Stage::Requeued
                if !keys.contains(span.text.lines().next().unwrap_or_default()) =>
            {
                span.text.clear();
            }
            _ => {}
        }
    }
    let mut secrets: Vec<String> = Vec::new();
    for (object, _) in tree.objects.iter_mut().zip(visible).filter(|(_, visible)| !**visible) {
        secrets.push(std::mem::take(&mut object.key.name));
        secrets.extend(Some(std::mem::take(&mut object.node)).filter(|node| !nodes.contains(node)));
        object.key.namespace.clear();
        (object.uid, object.owner, object.hidden) = (Uid::NONE, Uid::NONE, true);
        object.standing.forget_what();
    }
    secrets.retain(|secret| !secret.is_empty());
    tree.notes.retain(|note| !secrets.iter().any(|secret| note.contains(secret)));
}

/// What a span is about, or the nearest one above it that is about something.
fn object_of(tree: &Tree, span: SpanIx) -> Option<usize> {
    let mut at = span;
    for _ in 0..DEPTH {
        let node = &tree.spans[at];
        if node.object.is_some() {
            return node.object;
        }
        at = node.parent?;
    }
    None
}

/// The request that a span is part of, but not what was written for another write.
fn request_of(tree: &Tree, span: SpanIx) -> Option<SpanIx> {
    let mut at = span;
    for _ in 0..DEPTH {
        at = tree.spans[at].parent?;
        match tree.spans[at].stage {
            Stage::Request => return Some(at),
            stage if stage.part() != Part::Request => return None,
            _ => {}
        }
    }
    None
}

/// The key of an object in work queues.
fn key_of(object: &TracedObject) -> String {
    match object.key.namespace.as_str() {
        "" => object.key.name.clone(),
        namespace => format!("{namespace}/{}", object.key.name),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_timeline::{Cause, SpanNode, Standing};
    use coracle_trace::{Flags, SpanId, TraceId};

    fn span(
        id: u64,
        parent: Option<SpanIx>,
        stage: Stage,
        texts: (&str, &str),
        object: Option<usize>,
    ) -> SpanNode {
        SpanNode {
            id: SpanId(id),
            parent,
            children: Vec::new(),
            stage,
            name: texts.0.into(),
            text: texts.1.into(),
            object,
            revision: 7,
            node: String::new(),
            start: id,
            end: Some(id + 1),
            uncertainty: 0,
            code: 0,
            flags: Flags::NONE,
        }
    }

    fn object(resource: &str, name: &str, node: &str) -> TracedObject {
        TracedObject {
            key: ObjectKey { resource: resource.into(), namespace: "default".into(), name: name.into() },
            uid: Uid(9),
            owner: Uid::NONE,
            node: node.into(),
            ..TracedObject::default()
        }
    }

    /// kubectl makes a Deployment, whose controller writes a Secret; a pod's node reports.
    fn tree() -> Tree {
        let mut spans = vec![
            span(
                1,
                None,
                Stage::Request,
                ("POST /apis/apps/v1/namespaces/default/deployments", "ann\nkubectl"),
                None,
            ),
            span(2, Some(0), Stage::Write, ("create", ""), Some(0)),
            span(3, Some(1), Stage::Reconcile, ("deployment-controller", "default/web"), Some(0)),
            span(
                4,
                Some(2),
                Stage::Request,
                ("PUT /api/v1/namespaces/default/secrets/keys", "system:node:n1\nx"),
                None,
            ),
            span(5, Some(3), Stage::Write, ("update", ""), Some(1)),
            span(6, Some(4), Stage::MutatingPlugin, ("Secrets", ""), None),
            span(7, Some(1), Stage::Delivered, ("system:node:n1", ""), Some(0)),
        ];
        for (at, child) in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 6)] {
            spans[at].children.push(child);
        }
        Tree {
            root: 0,
            spans,
            objects: vec![object("deployments.apps", "web", ""), object("secrets", "keys", "node3")],
            notes: vec!["node3: the agent does not report spans".into(), "cut off by a restart".into()],
            trace: TraceId(1),
            remote: SpanId::NONE,
            now: 100,
        }
    }

    #[test]
    fn hidden_objects_leave_their_times() {
        let mut tree = tree();
        tree.objects[1].standing = Standing::Waits(Cause { what: "node3".into(), stuck: true });
        hide(&mut tree, &[true, false], &|_| Shown::All);
        let texts: Vec<(&str, &str)> =
            tree.spans.iter().map(|s| (s.name.as_str(), s.text.as_str())).collect();
        assert_eq!(texts[0].0, "POST /apis/apps/v1/namespaces/default/deployments");
        assert_eq!(texts[2], ("deployment-controller", "default/web"));
        assert_eq!(texts[3].0, "PUT", "the path names the Secret");
        assert_eq!((texts[4], texts[5]), (("", ""), ("", "")));
        assert_eq!(tree.spans[4].revision, 0);
        assert_eq!((tree.spans[5].start, tree.spans[5].stage), (6, Stage::MutatingPlugin));
        let secret = &tree.objects[1];
        assert!(
            secret.hidden && secret.uid.is_none() && secret.key.name.is_empty() && secret.node.is_empty()
        );
        assert_eq!(secret.key.resource, "secrets");
        let waits = Standing::Waits(Cause { what: String::new(), stuck: true });
        assert_eq!(secret.standing, waits, "that it waits is no secret, what for is");
        assert_eq!(tree.notes, ["cut off by a restart"]);
    }

    #[test]
    fn authors_of_changes_are_shown_as_users_are() {
        let of = |shown: Shown, user: &str, program: &str| author(shown, user.to_owned(), program.to_owned());
        let pair = |user: &str, program: &str| (user.to_owned(), program.to_owned());
        assert_eq!(of(Shown::All, "alice", "kubectl"), pair("alice", "kubectl"));
        assert_eq!(of(Shown::System, "system:node:a", "coracle-agent"), pair("system", ""));
        assert_eq!(of(Shown::Nothing, "alice", "kubectl"), pair("", ""));
        assert_eq!(of(Shown::Nothing, "", "job-controller"), pair("", "job-controller"));
    }

    #[test]
    fn others_see_of_users_only_what_the_system_is() {
        let mut tree = tree();
        let users = |user: &str| if user.starts_with("system:") { Shown::System } else { Shown::Nothing };
        hide(&mut tree, &[true, true], &users);
        assert_eq!(tree.spans[0].text, "");
        assert_eq!((tree.spans[3].text.as_str(), tree.spans[6].name.as_str()), ("system", "system"));
        assert_eq!(tree.spans[3].name, "PUT /api/v1/namespaces/default/secrets/keys");
    }

    #[test]
    fn keys_of_objects_that_are_not_shown_are_left_out() {
        let mut tree = tree();
        tree.spans[2].text = "default/other".into();
        hide(&mut tree, &[true, true], &|_| Shown::All);
        assert_eq!(tree.spans[2].text, "");
    }
}
