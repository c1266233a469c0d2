//! Requests of a command that changed nothing: one line for all of them.

use super::answer::Trace;
use super::names::time_with_unit;
use super::requests::resource_of;
use super::width::printable;
use std::collections::BTreeMap;

/// As many kinds of requests are named.
const NAMED: usize = 4;

/// The trees of requests that wrote something, in order of time, and those of others.
pub(super) fn split(mut trees: Vec<Trace>) -> (Vec<Trace>, Vec<Trace>) {
    trees.sort_by_key(Trace::began);
    trees.into_iter().partition(is_change)
}

/// Whether a request wrote something, or wanted to: what was refused before it came to a write counts, too.
pub(super) fn is_change(tree: &Trace) -> bool {
    tree.spans.iter().any(|span| span.stage == "write") || !method(tree).is_some_and(is_read)
}

/// `reads: 3 GET deployments, 1 GET pods; 4.2 ms`.
pub(super) fn line(reads: &[Trace]) -> Option<String> {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for span in reads.iter().filter_map(|tree| tree.spans.first()) {
        let (method, path) = span.name.split_once(' ').unwrap_or((span.name.as_str(), ""));
        *kinds.entry(format!("{method} {}", resource_of(path)).trim_end().to_owned()).or_default() += 1;
    }
    let mut kinds: Vec<(String, usize)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others: usize = kinds.iter().skip(NAMED).map(|(_, count)| count).sum();
    let named = kinds.iter().take(NAMED).map(|(kind, count)| format!("{count} {kind}"));
    let noun = if others == 1 { "other" } else { "others" };
    let others = (others > 0).then(|| format!("{others} {noun}"));
    let texts: Vec<String> = named.chain(others).collect();
    let taken = time_with_unit(reads.iter().map(|tree| tree.summary.total).sum());
    (!texts.is_empty()).then(|| printable(&format!("reads: {}; {taken}", texts.join(", "))))
}

fn method(tree: &Trace) -> Option<&str> {
    let root = tree.spans.first().filter(|span| span.stage == "request")?;
    root.name.split(' ').next()
}

fn is_read(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Span, Summary};
    use super::*;

    fn tree(begin: &str, name: &str, writes: bool) -> Trace {
        let span = |stage: &str, name: &str| Span {
            stage: stage.to_owned(),
            name: name.to_owned(),
            ..Span::default()
        };
        let mut spans = vec![span("request", name)];
        spans.extend(writes.then(|| span("write", "create")));
        let summary = Summary { total: 2_000_000, covered: 1.0 };
        Trace { begin: format!("2026-11-17T04:00:0{begin}Z"), spans, summary, ..Trace::default() }
    }

    #[test]
    fn writes_are_in_order_and_reads_one_line() {
        let trees = vec![
            tree("5", "POST /api/v1/namespaces/a/services", true),
            tree("4", "GET /api/v1/namespaces/a/services/web", false),
            tree("3", "POST /apis/apps/v1/namespaces/a/deployments", true),
            tree("2", "GET /api/v1/namespaces/a/services/web", false),
            tree("1", "GET /openapi/v3", false),
            tree("6", "DELETE /api/v1/namespaces/a/pods/none", false),
        ];
        let (writes, reads) = split(trees);
        let begins: Vec<&str> = writes.iter().map(|tree| &tree.begin[18..19]).collect();
        assert_eq!(begins, ["3", "5", "6"]);
        assert_eq!(line(&reads).as_deref(), Some("reads: 2 GET services, 1 GET openapi; 6.0 ms"));
        assert_eq!(line(&[]), None);
    }
}
