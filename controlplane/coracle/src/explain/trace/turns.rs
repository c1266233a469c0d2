//! Turns of a control loop that its own work led to stand beside its first turn, not below it: a rollout would become deeper with each pod.

use super::row::Node;

/// Moves each turn that is below an earlier turn of the same control loop with the same object beside that one.
pub(super) fn beside(rows: Vec<Node>) -> Vec<Node> {
    let mut flat = Vec::with_capacity(rows.len());
    for mut row in rows {
        let moved = taken_out(&mut row, &mut Vec::new());
        flat.push(row);
        flat.extend(moved.into_iter().map(|(_, turn)| turn));
    }
    flat
}

/// Takes turns out of the rows below a row if their control loop is among those above.
fn taken_out(row: &mut Node, above: &mut Vec<String>) -> Vec<(String, Node)> {
    let own = row.turn.clone().filter(|turn| !above.contains(turn));
    let depth = above.len();
    above.extend(own);
    let (mut kept, mut moved) = (Vec::new(), Vec::new());
    for mut child in std::mem::take(&mut row.children) {
        let first = above.iter().position(|turn| child.turn.as_ref() == Some(turn));
        if let Some(first) = first {
            // What is below it has above it what is above the first turn.
            let mut around = above[..first].to_vec();
            let below = taken_out(&mut child, &mut around);
            moved.push((above[first].clone(), child));
            moved.extend(below);
            continue;
        }
        let below = taken_out(&mut child, above);
        kept.push(child);
        for (turn, node) in below {
            // Beside the first turn, which is the child.
            if above.contains(&turn) { moved.push((turn, node)) } else { kept.push(node) }
        }
    }
    row.children = kept;
    above.truncate(depth);
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, children: Vec<Node>) -> Node {
        Node { label: label.to_owned(), children, ..Node::default() }
    }

    fn turn(controller: &str, children: Vec<Node>) -> Node {
        Node { turn: Some(controller.to_owned()), ..row(controller, children) }
    }

    fn outline(rows: &[Node]) -> String {
        let texts: Vec<String> = rows
            .iter()
            .map(|row| match row.children.is_empty() {
                true => row.label.clone(),
                false => format!("{}({})", row.label, outline(&row.children)),
            })
            .collect();
        texts.join(" ")
    }

    #[test]
    fn a_rollout_does_not_become_deeper_with_each_pod() {
        // Each pod follows from the one before it.
        let mut rest = Vec::new();
        for pod in (1..=30).rev() {
            let set = row("update", vec![turn("rs", vec![row(&format!("pod{pod}"), rest)])]);
            rest = vec![turn("deployment", vec![set])];
        }
        let rows = beside(vec![row("patch", rest)]);
        let turns: Vec<String> = (1..=30).map(|pod| format!("deployment(update(rs(pod{pod})))")).collect();
        assert_eq!(outline(&rows), format!("patch({})", turns.join(" ")));
    }

    #[test]
    fn loops_of_other_objects_stay_below() {
        let rows = beside(vec![turn("rs a", vec![row("pod", vec![turn("rs b", vec![])])])]);
        assert_eq!(outline(&rows), "rs a(pod(rs b))");
        let rows = beside(vec![turn("rs a", vec![row("pod", vec![turn("rs a", vec![])])])]);
        assert_eq!(outline(&rows), "rs a(pod) rs a");
    }
}
