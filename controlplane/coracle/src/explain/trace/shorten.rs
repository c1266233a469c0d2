//! Rows that repeat are one row. Without `--all`, short rows become parts of the row above, and of rows that are alike only the first, the
//! slowest and that of the critical path stay.

use super::names;
use super::nodes::{Builder, SHORTEST};
use super::row::{Node, Part};
use std::collections::HashMap;

/// As many rows that are alike are all drawn.
const ALIKE: usize = 3;
/// Turns of a control loop are alike, as are those who create the same resource.
const TURN: &str = "turn";

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
        let critical = node.children.iter().map(|child| child.critical_until).max().unwrap_or_default();
        node.critical_until = node.critical_until.max(critical);
        repeated(&mut node.children);
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
        for kind in node.children.iter().filter_map(kind) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        for kind in kinds {
            join(&mut node.children, &kind);
        }
    }
}

/// Makes one row of rows without others below them that are called the same, such as tries that fail again and again.
fn repeated(rows: &mut Vec<Node>) {
    let is_plain = |row: &Node| {
        row.children.is_empty() && row.end.is_some() && row.alike.is_none() && row.turn.is_none()
    };
    let mut counts: HashMap<(String, bool), usize> = HashMap::new();
    for row in rows.iter().filter(|row| is_plain(row)) {
        *counts.entry((row.label.clone(), row.failed)).or_default() += 1;
    }
    counts.retain(|_, count| *count > ALIKE);
    let mut first: HashMap<(String, bool), usize> = HashMap::new();
    let mut kept: Vec<Node> = Vec::with_capacity(rows.len());
    for row in std::mem::take(rows) {
        let key = (row.label.clone(), row.failed);
        let Some(count) = counts.get(&key).filter(|_| is_plain(&row)) else {
            kept.push(row);
            continue;
        };
        let Some(&at) = first.get(&key) else {
            first.insert(key, kept.len());
            // The usual time is that of one of them.
            let label = format!("{} ({count} times)", row.label);
            kept.push(Node { label, several: true, usual: None, ..row });
            continue;
        };
        let known = &mut kept[at];
        known.end = known.end.max(row.end);
        known.latest = known.latest.max(row.latest);
        known.critical |= row.critical;
        known.critical_until = known.critical_until.max(row.critical_until);
        known.detail = row.detail;
    }
    *rows = kept;
}

/// What siblings have in common that are alike.
fn kind(row: &Node) -> Option<(String, String)> {
    row.alike.clone().or_else(|| Some((TURN.to_owned(), row.turn.clone()?)))
}

/// Leaves the first and the slowest of the rows that are alike, and the one that the critical path was in last; one row stands for the
/// others.
fn join(rows: &mut Vec<Node>, of: &(String, String)) {
    let alike: Vec<usize> = (0..rows.len()).filter(|&row| kind(&rows[row]).as_ref() == Some(of)).collect();
    if alike.len() <= ALIKE {
        return;
    }
    let until = |row: &usize| rows[*row].critical_until;
    let critical = alike.iter().copied().filter(|row| until(row) > 0).max_by_key(until);
    let time = |row: usize| rows[row].latest.saturating_sub(rows[row].start);
    let first = alike[0];
    // Of equally slow ones the first.
    let slowest = alike[1..].iter().rev().copied().max_by_key(|&row| time(row)).unwrap_or(first);
    let mut times: Vec<u64> = Vec::new();
    let mut joined = Node { several: true, start: u64::MAX, ..Node::default() };
    let is_kept = |row: usize| row == first || row == slowest || Some(row) == critical;
    for &row in alike.iter().filter(|&&row| !is_kept(row)) {
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
    joined.label = match of {
        (verb, turn) if verb == TURN => {
            format!("{} more turns of {}", times.len(), turn.split(' ').next().unwrap_or_default())
        }
        (verb, resource) => {
            format!("{verb} {} more {}", times.len(), resource.split('.').next().unwrap_or_default())
        }
    };
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
        } else if is_kept(row) || !alike.contains(&row) {
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
        // The pod that all waited for is not always the slowest.
        let mut rows: Vec<Node> = (0..16).map(|at| pod(&format!("p{at}"), at, 90 - at)).collect();
        rows[3].critical_until = 2;
        rows[7].critical_until = 70;
        join(&mut rows, &kind);
        let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["p0", "create 13 more pods", "p1", "p7"]);
        let mut few = vec![pod("a", 0, 9), pod("b", 1, 3), pod("c", 2, 30)];
        join(&mut few, &kind);
        assert_eq!(few.len(), 3);
    }

    #[test]
    fn rows_that_repeat_are_one() {
        let row = |label: &str, start: u64, failed: bool| Node {
            label: label.to_owned(),
            start,
            end: Some(start + 1),
            latest: start + 1,
            failed,
            ..Node::default()
        };
        let mut rows: Vec<Node> = (0..100).map(|at| row("config", 10 * at, true)).collect();
        rows.insert(1, row("image", 3, false));
        rows.push(row("config", 2000, false));
        repeated(&mut rows);
        let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["config (100 times)", "image", "config"]);
        assert_eq!((rows[0].start, rows[0].end, rows[0].failed), (0, Some(991), true));
        let mut few: Vec<Node> = (0..3).map(|at| row("config", at, true)).collect();
        repeated(&mut few);
        assert_eq!(few.len(), 3);
    }

    #[test]
    fn turns_of_a_control_loop_are_alike() {
        let turn = |start: u64| Node {
            label: format!("t{start}"),
            turn: Some("deployment-controller a/web".to_owned()),
            start,
            end: Some(start + 1),
            latest: start + 1,
            ..Node::default()
        };
        let mut rows: Vec<Node> = (0..9).map(turn).collect();
        rows[8].critical_until = 9;
        join(&mut rows, &("turn".to_owned(), "deployment-controller a/web".to_owned()));
        let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["t0", "6 more turns of deployment-controller", "t1", "t8"]);
    }
}
