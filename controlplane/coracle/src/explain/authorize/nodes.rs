//! Nodes that a user may not get: a trace tells neither their names nor what happened to them or what the scheduler thought of them.

use coracle_timeline::{SpanNode, Tree};
use coracle_trace::{Flags, Stage};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Said instead of notes that are about such nodes.
const LEFT_OUT: &str = "notes about nodes that you may not get are left out";

/// The nodes that a tree tells something about.
pub(super) fn named(tree: &Tree) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for span in &tree.spans {
        names.extend(Some(&span.node).filter(|node| !node.is_empty()).cloned());
        if span.stage == Stage::Verdict && is_of_nodes(span) || is_named_after_node(span.stage) {
            names.extend(words(&span.name).map(|word| node_of(word).to_owned()));
        }
    }
    names
}

/// Hides nodes. Where her own pods run, a user knows; not how these nodes are.
pub(super) fn hide(tree: &mut Tree, readable: &HashSet<String>) {
    let hidden: Vec<String> = named(tree).into_iter().filter(|node| !readable.contains(node)).collect();
    if hidden.is_empty() {
        return;
    }
    let own: HashSet<String> = tree.objects.iter().map(|object| object.node.clone()).collect();
    let others = hidden.iter().filter(|node| !own.contains(*node)).enumerate();
    // Told apart, because the rules of a Service are on each of them.
    let aliases: HashMap<&str, String> =
        others.map(|(index, node)| (node.as_str(), format!("(hidden {})", index + 1))).collect();
    for span in &mut tree.spans {
        if let Some(alias) = aliases.get(span.node.as_str()) {
            span.node.clone_from(alias);
        }
        match span.stage {
            Stage::Verdict if is_of_nodes(span) => censor_verdict(span, readable, &own),
            stage if is_named_after_node(stage) && aliases.contains_key(span.name.as_str()) => {
                span.name.clear()
            }
            _ => {}
        }
    }
    let notes = tree.notes.len();
    tree.notes.retain(|note| !hidden.iter().any(|node| mentions(note, node)));
    if tree.notes.len() < notes {
        tree.notes.push(LEFT_OUT.to_owned());
    }
}

/// Steps of the scheduler with the node that they were for as their name.
fn is_named_after_node(stage: Stage) -> bool {
    matches!(stage, Stage::Preempt | Stage::Reserve | Stage::VolumeBinding | Stage::Bind)
}

/// Whether the name of a verdict is that of nodes: `n1=287 n2=285 of 3` or `n1`, but not `all nodes` and `8 more nodes`.
fn is_of_nodes(span: &SpanNode) -> bool {
    !span.name.ends_with(" nodes")
}

/// The nodes of a verdict, with their scores, without the number of all.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(" of ").next().unwrap_or_default().split(' ').filter(|word| !word.is_empty())
}

fn node_of(word: &str) -> &str {
    word.split('=').next().unwrap_or(word)
}

fn censor_verdict(span: &mut SpanNode, readable: &HashSet<String>, own: &HashSet<String>) {
    if span.flags.contains(Flags::FAILED) {
        if !readable.contains(&span.name) {
            span.name.clear();
            span.text.clear();
        }
        return;
    }
    let shown = |word: &str| match node_of(word) {
        node if readable.contains(node) => Some(word.to_owned()),
        // How it scored tells how much of it is in use.
        node => own.contains(node).then(|| node.to_owned()),
    };
    let nodes: Vec<String> = words(&span.name).filter_map(shown).collect();
    let all = span.name.split_once(" of ").map(|(_, all)| format!(" of {all}")).unwrap_or_default();
    span.name = if nodes.is_empty() { String::new() } else { format!("{}{all}", nodes.join(" ")) };
}

/// Whether a sentence has the name as a word.
fn mentions(note: &str, name: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.');
    note.split(|character| !is_part(character)).any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_timeline::{ObjectKey, TracedObject};
    use coracle_trace::{SpanId, TraceId};

    fn span(stage: Stage, name: &str, text: &str, node: &str) -> SpanNode {
        SpanNode {
            id: SpanId(1),
            parent: None,
            children: Vec::new(),
            stage,
            name: name.into(),
            text: text.into(),
            object: Some(0),
            revision: 0,
            node: node.into(),
            start: 1,
            end: Some(2),
            uncertainty: 0,
            code: 0,
            flags: Flags::NONE,
        }
    }

    fn refused(name: &str, text: &str) -> SpanNode {
        SpanNode { flags: Flags::FAILED, ..span(Stage::Verdict, name, text, "") }
    }

    /// A pod on n1 and a Service whose rules are on n1, n2 and n3.
    fn tree() -> Tree {
        let key = |resource: &str| ObjectKey { resource: resource.into(), ..ObjectKey::default() };
        let pod = TracedObject { key: key("pods"), node: "n1".into(), ..TracedObject::default() };
        Tree {
            root: 0,
            spans: vec![
                span(Stage::Verdict, "n1=287 n2=285 n3=80 of 4", "", ""),
                refused("n4", "TaintToleration: untolerated taint {secret: yes}"),
                refused("all nodes", "VolumeBinding: unbound claims"),
                span(Stage::Preempt, "n3", "victims: 1", ""),
                span(Stage::PodStart, "", "", "n1"),
                span(Stage::RulesProgrammed, "a/web", "", "n2"),
                span(Stage::RulesProgrammed, "a/web", "", "n3"),
            ],
            objects: vec![pod, TracedObject { key: key("services"), ..TracedObject::default() }],
            notes: vec!["n3 was restarted at 10:00".into(), "n33: 5 records were lost".into()],
            trace: TraceId(1),
            remote: SpanId::NONE,
            now: 9,
        }
    }

    #[test]
    fn somebody_without_rights_knows_only_where_her_pods_run() {
        let mut seen = tree();
        hide(&mut seen, &HashSet::new());
        let texts: Vec<(&str, &str, &str)> = seen
            .spans
            .iter()
            .map(|span| (span.name.as_str(), span.text.as_str(), span.node.as_str()))
            .collect();
        let wanted = [
            ("n1 of 4", "", ""),
            ("", "", ""),
            ("all nodes", "VolumeBinding: unbound claims", ""),
            ("", "victims: 1", ""),
            ("", "", "n1"),
            ("a/web", "", "(hidden 1)"),
            ("a/web", "", "(hidden 2)"),
        ];
        assert_eq!(texts, wanted);
        assert_eq!(seen.notes, ["n33: 5 records were lost", LEFT_OUT]);
        let text = format!("{seen:?}");
        for secret in ["n2", "n4", "287", "Taint"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }

    #[test]
    fn nodes_that_may_be_read_are_shown() {
        let all: HashSet<String> = named(&tree()).into_iter().collect();
        assert_eq!(all.len(), 4, "{all:?}");
        let mut seen = tree();
        hide(&mut seen, &all);
        assert_eq!(seen, tree());
        hide(&mut seen, &HashSet::from(["n2".to_owned()]));
        assert_eq!(seen.spans[0].name, "n1 n2=285 of 4");
        assert_eq!((seen.spans[5].node.as_str(), seen.spans[6].node.as_str()), ("n2", "(hidden 1)"));
    }
}
