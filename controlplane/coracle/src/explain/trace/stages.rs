//! `--short`: the stages of the critical path, each with its share of the time. Their sum is the time from the request to the end.

use super::answer::Trace;
use super::headline;
use super::names::time_with_unit;
use super::nodes::Builder;
use super::summary;
use super::width::{Screen, Style, cut, length, printable};
use std::cmp::Reverse;

/// At most this many rows are drawn: if there are more stages, the shortest share the last row.
const ROWS: usize = 10;
/// The least width of the bars.
const NARROWEST: usize = 10;
/// The last row, with the sum.
const TOTAL: &str = "total";
/// What names of steps begin with that a node does besides its stages.
const NODE_STEPS: [&str; 8] = [
    "seen",
    "admit",
    "sync",
    "status report",
    "status wait",
    "hand-over",
    "noticing the exit",
    "waiting for ",
];

/// A stage of the critical path.
struct Stage {
    name: String,
    /// Sum of its pieces.
    time: u64,
    /// Start and end of each piece, oldest first.
    pieces: Vec<(u64, u64)>,
}

/// The lines of a trace; `now` is in nanoseconds since 1970.
pub(super) fn draw(trace: &Trace, screen: Screen, now: i128) -> Vec<String> {
    let builder = Builder::new(trace, false);
    let mut lines = headline::short(&builder, screen.width, now);
    let stages = longest(stages(&builder));
    if !stages.is_empty() {
        lines.extend(table(&stages, trace, screen));
    }
    lines.extend(summary::problems(&builder, screen.width));
    lines
}

/// The stages of the critical path, in the order in which it reached them.
fn stages(builder: &Builder<'_>) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    for (name, piece) in summary::pieces(builder) {
        let (name, taken) = (stage_of(&name), piece.end.saturating_sub(piece.start));
        let pieces = (piece.start, piece.end);
        match stages.iter_mut().find(|stage| stage.name == name) {
            Some(stage) => {
                stage.time += taken;
                stage.pieces.push(pieces);
            }
            None => stages.push(Stage { name: name.to_owned(), time: taken, pieces: vec![pieces] }),
        }
    }
    stages
}

/// The stage that a part of the critical path belongs to. Waiting for something outside of the stages keeps its name.
fn stage_of(name: &str) -> &str {
    match name {
        "watch cache" | "watch delivery" | "on the way to the server" | "answer" => "API server",
        "work queue" | "waiting for a timer" => "controllers",
        "binding queue" => "scheduler",
        "waiting for the next transaction of rules" => "service rules",
        step if NODE_STEPS.iter().any(|begin| step.starts_with(begin)) => "node",
        other => other,
    }
}

/// As many stages as there are rows; the last row stands for all that are shorter.
fn longest(mut stages: Vec<Stage>) -> Vec<Stage> {
    if stages.len() <= ROWS {
        return stages;
    }
    stages.sort_by_key(|stage| Reverse(stage.time));
    let others = stages.split_off(ROWS - 1);
    stages.sort_by_key(|stage| stage.pieces.first().copied());
    stages.push(Stage {
        name: format!("{} others", others.len()),
        time: others.iter().map(|stage| stage.time).sum(),
        pieces: others.into_iter().flat_map(|stage| stage.pieces).collect(),
    });
    stages
}

/// The time axis, a row for each stage, and the sum.
fn table(stages: &[Stage], trace: &Trace, screen: Screen) -> Vec<String> {
    let total = trace.summary.total.max(1);
    let sum = time_with_unit(total);
    let label = stages.iter().map(|stage| length(&stage.name)).max().unwrap_or_default();
    let label = label.min(screen.width * 2 / 5).max(length(TOTAL));
    let times: Vec<String> = stages.iter().map(|stage| time_with_unit(stage.time)).collect();
    let time = times.iter().map(|time| length(time)).max().unwrap_or_default().max(length(&sum));
    // Blanks between the columns, and the share.
    let left = label + 1 + time + 1 + length("100 %") + 1;
    let width = screen.width.saturating_sub(left).max(NARROWEST);
    let end = width - 1;
    let mut lines = vec![format!("{:left$}0{sum:>end$}", "")];
    for (stage, taken) in stages.iter().zip(&times) {
        let name = cut(&printable(&stage.name), label, screen.style);
        let share = (stage.time.saturating_mul(100) + total / 2) / total;
        let bar = bar(stage, total, width, screen.style);
        let line = format!("{name:<label$} {taken:>time$} {share:>3} % {bar}");
        lines.push(line.trim_end().to_owned());
    }
    lines.push(format!("{TOTAL:<label$} {sum:>time$} 100 % {}", headline::explained(trace)));
    lines
}

/// A full cell where the stage took at least half of the cell's time, a thin one where it took less.
fn bar(stage: &Stage, total: u64, width: usize, style: Style) -> String {
    let width = width as u64;
    let cell = |cell: u64| {
        let (from, to) = (total.saturating_mul(cell) / width, total.saturating_mul(cell + 1) / width);
        let within = |(start, end): &(u64, u64)| (*end).min(to).saturating_sub((*start).max(from));
        match stage.pieces.iter().map(within).sum::<u64>() {
            0 => ' ',
            taken if taken.saturating_mul(2) >= to - from => style.bar,
            _ => style.short_bar,
        }
    };
    (0..width).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::{first, fixture};
    use super::super::answer::{Piece, Summary};
    use super::super::width::UNICODE;
    use super::*;

    /// A critical path of pieces without spans, a second each.
    fn path(names: &[&str]) -> Trace {
        const SECOND: u64 = 1_000_000_000;
        let piece = |(at, name): (u64, &&str)| Piece {
            span: None,
            name: (*name).to_owned(),
            start: at * SECOND,
            end: (at + 1) * SECOND,
        };
        let critical: Vec<Piece> = (0..).zip(names).map(piece).collect();
        let total = names.len() as u64 * SECOND;
        Trace { critical, summary: Summary { total, covered: 1.0 }, ..Trace::default() }
    }

    fn names(trace: &Trace) -> Vec<String> {
        longest(stages(&Builder::new(trace, false))).into_iter().map(|stage| stage.name).collect()
    }

    #[test]
    fn the_sum_of_the_stages_is_the_total() {
        for answer in [fixture!("deployment-ready.json"), fixture!("evidence.json")] {
            let trace = first(answer);
            let stages = longest(stages(&Builder::new(&trace, false)));
            assert_eq!(stages.iter().map(|stage| stage.time).sum::<u64>(), trace.summary.total);
        }
    }

    #[test]
    fn steps_between_stages_belong_to_the_part_that_takes_them() {
        let trace = path(&[
            "watch cache",
            "work queue of replicaset-controller",
            "binding queue",
            "watch delivery to node-1",
            "hand-over to pod start",
            "waiting for image nginx",
            "not recorded",
        ]);
        assert_eq!(names(&trace), ["API server", "controllers", "scheduler", "node", "not recorded"]);
    }

    #[test]
    fn the_shortest_of_many_stages_are_one_row() {
        let ten = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        assert_eq!(names(&path(&ten)), ten);
        let twelve = [&ten[..], &["k", "l", "a", "c", "l"]].concat();
        let drawn = names(&path(&twelve));
        assert_eq!(drawn.len(), ROWS);
        assert_eq!(drawn[0], "a");
        assert_eq!(drawn[ROWS - 2..], ["l", "3 others"]);
    }

    #[test]
    fn bars_show_when_a_stage_was_on_the_path() {
        let stage = Stage { name: String::new(), time: 50, pieces: vec![(0, 30), (60, 61), (81, 100)] };
        assert_eq!(bar(&stage, 100, 10, UNICODE), "███   ▏ ██");
    }
}
