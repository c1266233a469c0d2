//! Of many rows that create or delete the same resource, wherever they are, only the slowest and the one that the critical path was in
//! last have rows below them.

use super::row::Node;
use std::collections::{HashMap, HashSet};

/// As many rows that are alike all keep what is below them.
const DETAILED: usize = 3;

/// Number, time and end on the critical path of a row.
type Alike = (usize, u64, u64);

/// Removes what is below the other rows; their bars last as long as that did.
pub(super) fn fold(rows: &mut [Node]) {
    let mut all: HashMap<(String, String), Vec<Alike>> = HashMap::new();
    let mut next = 0;
    rows.iter().for_each(|row| number(row, &mut next, &mut all));
    let mut kept: HashSet<usize> = HashSet::new();
    for alike in all.values() {
        if alike.len() <= DETAILED {
            kept.extend(alike.iter().map(|(row, ..)| *row));
            continue;
        }
        kept.extend(alike.iter().max_by_key(|(_, time, _)| *time).map(|(row, ..)| *row));
        let critical = alike.iter().filter(|(.., until)| *until > 0);
        kept.extend(critical.max_by_key(|(.., until)| *until).map(|(row, ..)| *row));
    }
    next = 0;
    rows.iter_mut().for_each(|row| fold_below(row, &mut next, &kept));
}

/// Numbers rows in the order in which they are drawn.
fn number(row: &Node, next: &mut usize, all: &mut HashMap<(String, String), Vec<Alike>>) {
    if let Some(kind) = row.alike.as_ref().filter(|_| !row.children.is_empty()) {
        let time = row.latest.saturating_sub(row.start);
        all.entry(kind.clone()).or_default().push((*next, time, row.critical_until));
    }
    *next += 1;
    row.children.iter().for_each(|child| number(child, next, all));
}

fn fold_below(row: &mut Node, next: &mut usize, kept: &HashSet<usize>) {
    let (own, size) = (*next, size(row));
    let is_alike = row.alike.is_some() && !row.children.is_empty();
    // What goes on or has failed is what people look for.
    if is_alike && !row.open && !has_failed(row) && !(own..own + size).any(|row| kept.contains(&row)) {
        row.children.clear();
        row.parts.clear();
        row.several = true;
        row.end = Some(row.latest);
        *next += size;
        return;
    }
    *next += 1;
    row.children.iter_mut().for_each(|child| fold_below(child, next, kept));
}

fn size(row: &Node) -> usize {
    1 + row.children.iter().map(size).sum::<usize>()
}

fn has_failed(row: &Node) -> bool {
    row.failed || row.children.iter().any(has_failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, latest: u64, critical_until: u64) -> Node {
        let alike = Some(("create".to_owned(), "pods".to_owned()));
        let below = Node { label: "node".to_owned(), ..Node::default() };
        Node {
            label: name.to_owned(),
            latest,
            critical_until,
            alike,
            children: vec![below],
            ..Node::default()
        }
    }

    fn turn(pod: Node) -> Node {
        Node { label: "turn".to_owned(), children: vec![pod], ..Node::default() }
    }

    #[test]
    fn only_the_slowest_and_the_critical_one_have_details() {
        let mut rows: Vec<Node> = (0..6).map(|at| turn(pod(&format!("p{at}"), 10 + at, 0))).collect();
        rows[1].children[0].latest = 99;
        rows[3].children[0].critical_until = 7;
        rows[4].children[0].children[0].failed = true;
        fold(&mut rows);
        let detailed = |row: &Node| !row.children[0].children.is_empty();
        assert_eq!(rows.iter().map(detailed).collect::<Vec<_>>(), [false, true, false, true, true, false]);
        assert_eq!((rows[0].children[0].several, rows[0].children[0].end), (true, Some(10)));
        let mut few: Vec<Node> = (0..3).map(|at| turn(pod("p", at, 0))).collect();
        fold(&mut few);
        assert!(few.iter().all(detailed));
    }
}
