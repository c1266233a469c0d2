//! The short form: short rows become parts of the row above, of rows that are alike only the first and the slowest stay.

use super::names;
use super::nodes::{Builder, Node, Part, SHORTEST};

/// As many rows that are alike are all drawn.
const ALIKE: usize = 3;

impl Builder<'_> {
    /// Puts the rows below a row in order and shortens them; whether a row is critical or open depends on those below it.
    pub(super) fn finish(&self, node: &mut Node) {
        node.children.sort_by_key(|child| child.start);
        for child in &mut node.children {
            self.finish(child);
        }
        let below = node.children.iter().map(|child| child.latest).max().unwrap_or_default();
        node.latest = self.end(node.end).max(below);
        node.open = node.end.is_none() || node.children.iter().any(|child| child.open);
        node.critical |= node.children.iter().any(|child| child.critical);
        if self.all {
            return;
        }
        for child in std::mem::take(&mut node.children) {
            let time = self.end(child.end).saturating_sub(child.start);
            let is_row = child.keep || child.alike.is_some() || !child.children.is_empty();
            if is_row || child.failed || child.cut || child.end.is_none() || self.is_large(time) {
                node.children.push(child);
            } else if time >= SHORTEST {
                node.parts.push(Part { name: child.label, time, within: String::new() });
            }
        }
        let mut kinds: Vec<(String, String)> = Vec::new();
        for kind in node.children.iter().filter_map(|child| child.alike.as_ref()) {
            if !kinds.contains(kind) {
                kinds.push(kind.clone());
            }
        }
        for kind in kinds {
            join(&mut node.children, &kind);
        }
    }
}

/// Leaves the first and the slowest of the rows that are alike; one row stands for the others.
fn join(rows: &mut Vec<Node>, kind: &(String, String)) {
    let alike: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].alike.as_ref() == Some(kind)).collect();
    if alike.len() <= ALIKE {
        return;
    }
    let time = |row: usize| rows[row].latest.saturating_sub(rows[row].start);
    let first = alike[0];
    // Of equally slow ones the first.
    let slowest = alike[1..].iter().rev().copied().max_by_key(|&row| time(row)).unwrap_or(first);
    let mut times: Vec<u64> = Vec::new();
    let mut joined = Node { several: true, start: u64::MAX, ..Node::default() };
    for &row in alike.iter().filter(|&&row| row != first && row != slowest) {
        let other = &rows[row];
        times.push(time(row));
        joined.start = joined.start.min(other.start);
        joined.latest = joined.latest.max(other.latest);
        joined.critical |= other.critical;
        joined.open |= other.open;
    }
    times.sort_unstable();
    joined.end = (!joined.open).then_some(joined.latest);
    let (shortest, longest) = (times.first().copied(), times.last().copied());
    joined.label =
        format!("{} {} more {}", kind.0, times.len(), kind.1.split('.').next().unwrap_or_default());
    joined.detail = format!(
        "{} to {}",
        names::time(shortest.unwrap_or_default()),
        names::time_with_unit(longest.unwrap_or_default())
    );
    let mut kept = Vec::with_capacity(rows.len());
    for (row, node) in std::mem::take(rows).into_iter().enumerate() {
        if row == first {
            kept.push(node);
            kept.push(std::mem::take(&mut joined));
        } else if row == slowest || !alike.contains(&row) {
            kept.push(node);
        }
    }
    *rows = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, start: u64, latest: u64) -> Node {
        let alike = Some(("create".to_owned(), "pods".to_owned()));
        Node { label: name.to_owned(), start, end: Some(start), latest, alike, ..Node::default() }
    }

    #[test]
    fn the_first_and_the_slowest_stay() {
        let kind = ("create".to_owned(), "pods".to_owned());
        let mut rows = vec![pod("a", 0, 9), pod("b", 1, 3), pod("c", 2, 30), pod("d", 3, 8)];
        rows.insert(2, Node { label: "other".to_owned(), ..Node::default() });
        join(&mut rows, &kind);
        let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["a", "create 2 more pods", "other", "c"]);
        assert_eq!((rows[1].start, rows[1].end), (1, Some(8)));
        let mut few = vec![pod("a", 0, 9), pod("b", 1, 3), pod("c", 2, 30)];
        join(&mut few, &kind);
        assert_eq!(few.len(), 3);
    }
}
