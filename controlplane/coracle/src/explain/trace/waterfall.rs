//! The waterfall: a tree of spans beside bars on a time axis.

use super::answer::Trace;
use super::headline;
use super::names::{self, time};
use super::nodes::{Builder, Node, SHORTEST};
use super::summary;
use super::width::{Screen, Style, cut, join, length, printable, wrap};

/// The least width of the bars.
const NARROWEST: usize = 10;
/// The least width of the bars when labels are not cut.
const WIDE: usize = 20;
/// Rows that are deeper in the tree than this begin below each other.
const DEEPEST: usize = 16;
/// As much of a detail must fit for it to be shown.
const DETAIL: usize = 12;

/// What is drawn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Form {
    /// Every span.
    pub(super) all: bool,
    /// What stages usually take.
    pub(super) compare: bool,
    /// Labels are not cut.
    pub(super) wide: bool,
}

/// Widths of the columns.
struct Columns {
    label: usize,
    time: usize,
    /// None without a comparison.
    usual: Option<usize>,
    bar: usize,
}

/// A row with its place in the tree.
struct Row<'a> {
    /// What connects it to the row above.
    branch: String,
    /// What stands before the rows below it.
    below: String,
    node: &'a Node,
}

/// The lines of a trace; `now` is in nanoseconds since 1970.
pub(super) fn draw(trace: &Trace, form: Form, screen: Screen, now: i128) -> Vec<String> {
    let mut builder = Builder::new(trace, form.all);
    let nodes = builder.rows();
    let style = screen.style;
    let mut rows = Vec::new();
    for node in &nodes {
        let row = Row { branch: String::new(), below: String::new(), node };
        place(row, style, &mut rows);
    }
    let extent = builder.extent;
    let times: Vec<String> = rows.iter().map(|row| duration(row.node, extent, style)).collect();
    let usual: Vec<String> = rows.iter().map(|row| usually(row.node, extent)).collect();
    let columns = columns(&rows, &times, &usual, form, screen.width);
    let mut lines = headline::head(&builder, screen.width, now);
    lines.push(axis(extent, &columns));
    for ((row, time), usual) in rows.iter().zip(&times).zip(&usual) {
        let mut line = format!(
            "{:<label$} {time:>width$} ",
            label(row, &columns, style),
            label = columns.label,
            width = columns.time
        );
        if let Some(width) = columns.usual {
            line.push_str(&format!("{usual:>width$} "));
        }
        line.push_str(&bar(row.node, extent, columns.bar, style));
        line.push(style.edge);
        line.push_str(if row.node.failed {
            " x"
        } else if row.node.critical {
            " *"
        } else {
            ""
        });
        lines.push(paint(line.trim_end(), row.node, screen.color));
        if row.node.critical || form.all {
            lines.extend(parts(row, style, screen.width));
        }
    }
    for (object, nodes) in &builder.programmed {
        let nodes: Vec<String> =
            nodes.iter().map(|(node, after)| format!("{node} +{}", time(*after))).collect();
        lines.extend(wrap(&format!("{object}: rules on {} ms", nodes.join(", ")), screen.width));
    }
    lines.extend(summary::foot(&builder, screen.width));
    lines
}

fn place<'a>(row: Row<'a>, style: Style, rows: &mut Vec<Row<'a>>) {
    let (below, children) = (row.below.clone(), &row.node.children);
    rows.push(row);
    for (index, node) in children.iter().enumerate() {
        let is_last = index + 1 == children.len();
        let branch = format!("{below}{}", if is_last { style.last_branch } else { style.branch });
        let deeper = format!("{below}{}", if is_last { "  " } else { style.line });
        let below = if length(&deeper) > DEEPEST { below.clone() } else { deeper };
        place(Row { branch, below, node }, style, rows);
    }
}

/// How long a row took, or has taken.
fn taken(node: &Node, extent: u64) -> u64 {
    node.end.unwrap_or(extent).saturating_sub(node.start)
}

fn duration(node: &Node, extent: u64, style: Style) -> String {
    let taken = time(taken(node, extent));
    if node.uncertainty < SHORTEST {
        return taken;
    }
    format!("{taken} {}{}", style.plus_minus, time(node.uncertainty))
}

/// What such a stage usually takes, with a mark if this one took more than twice as long.
fn usually(node: &Node, extent: u64) -> String {
    let Some(usual) = node.usual else { return String::new() };
    let mark = if taken(node, extent) > usual.saturating_mul(2) { '!' } else { ' ' };
    format!("{}{mark}", time(usual))
}

fn columns(rows: &[Row<'_>], times: &[String], usual: &[String], form: Form, width: usize) -> Columns {
    let longest = rows.iter().map(|row| {
        let detail = if row.node.detail.is_empty() { 0 } else { 2 + length(&row.node.detail) };
        length(&row.branch) + length(&row.node.label) + detail
    });
    let longest = longest.max().unwrap_or_default().max(10);
    let time = times.iter().map(|time| length(time)).max().unwrap_or_default().max(4);
    let usual =
        form.compare.then(|| usual.iter().map(|usual| length(usual)).max().unwrap_or_default().max(7));
    // Blanks between the columns, the edge and the mark.
    let fixed = 1 + time + usual.map_or(0, |usual| usual + 1) + 1 + 3;
    if form.wide {
        return Columns { label: longest, time, usual, bar: width.saturating_sub(longest + fixed).max(WIDE) };
    }
    let label = longest.min((width * 9 / 20).max(20));
    let bar = width.saturating_sub(label + fixed);
    if bar >= NARROWEST {
        return Columns { label, time, usual, bar };
    }
    Columns { label: width.saturating_sub(fixed + NARROWEST).max(8), time, usual, bar: NARROWEST }
}

fn label(row: &Row<'_>, columns: &Columns, style: Style) -> String {
    let mut label = format!("{}{}", row.branch, row.node.label);
    let detail = &row.node.detail;
    if !detail.is_empty() && length(&label) + 2 + length(detail).min(DETAIL) <= columns.label {
        label.push_str("  ");
        label.push_str(detail);
    }
    printable(&cut(&label, columns.label, style))
}

/// The line above the bars: points in time, and the name of the column of usual times.
fn axis(extent: u64, columns: &Columns) -> String {
    let left = columns.label + 1 + columns.time + columns.usual.map_or(0, |usual| usual + 1) + 1;
    let mut line = vec![' '; left + columns.bar + 8];
    let mut put = |at: usize, text: &str| {
        for (offset, character) in text.chars().enumerate() {
            if let Some(cell) = line.get_mut(at + offset) {
                *cell = character;
            }
        }
    };
    put(left, if names::is_long(extent) { "0 s" } else { "0 ms" });
    let ticks = match columns.bar {
        ..24 => 1,
        24..36 => 2,
        36.. => 3,
    };
    for tick in 1..=ticks {
        let text = tick_label(extent.saturating_mul(tick) / ticks, extent);
        let at = left + (columns.bar as u64 * tick / ticks) as usize;
        let last = usize::from(tick == ticks);
        put((at + last).saturating_sub(length(&text)), &text);
    }
    if let Some(usual) = columns.usual {
        put(columns.label + 1 + columns.time + 1 + usual - 6, "usual");
    }
    line.into_iter().collect::<String>().trim_end().to_owned()
}

fn tick_label(at: u64, extent: u64) -> String {
    if names::is_long(at) {
        time(at)
    } else if names::is_long(extent) {
        names::seconds(at)
    } else if extent >= 100_000_000 {
        ((at + 500_000) / 1_000_000).to_string()
    } else {
        time(at)
    }
}

fn bar(node: &Node, extent: u64, width: usize, style: Style) -> String {
    let (start, end) = (u128::from(node.start), u128::from(node.end.unwrap_or(extent)));
    let (extent, cells) = (u128::from(extent), width as u128);
    let from = (start * cells / extent).min(cells - 1);
    let to = (end * cells).div_ceil(extent).clamp(from + 1, cells);
    let character = if node.several {
        style.several
    } else if to - from == 1 && end.saturating_sub(start) * cells * 2 < extent {
        style.short_bar
    } else if node.inferred {
        style.inferred
    } else {
        style.bar
    };
    let is_cut = node.end.is_none() || node.cut;
    let cell = |cell: u128| match cell {
        cell if is_cut && cell + 1 == to => style.more,
        cell if (from..to).contains(&cell) => character,
        _ => ' ',
    };
    (0..cells).map(cell).collect()
}

/// The parts of a row, between it and the rows below.
fn parts(row: &Row<'_>, style: Style, width: usize) -> Vec<String> {
    let indent = format!("{}{}", row.below, if row.node.children.is_empty() { "  " } else { style.line });
    let pieces = row.node.parts.iter().map(|part| {
        let within = if part.within.is_empty() { String::new() } else { format!(" ({})", part.within) };
        printable(&format!("{} {}{within}", part.name, time(part.time)))
    });
    let pieces: Vec<String> = pieces.collect();
    let lines = join(&pieces, style.separator, width.saturating_sub(length(&indent)));
    lines.into_iter().map(|line| format!("{indent}{line}")).collect()
}

/// Bold for the critical path, red for what failed.
fn paint(line: &str, node: &Node, color: bool) -> String {
    match (color, node.failed, node.critical) {
        (true, true, _) => format!("\x1b[31m{line}\x1b[0m"),
        (true, false, true) => format!("\x1b[1m{line}\x1b[0m"),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::answer::tests::{first, fixture};
    use super::super::width::{ASCII, UNICODE};
    use super::*;
    use std::path::Path;

    const PLAIN: Form = Form { all: false, compare: false, wide: false };

    /// Draws a fixture two seconds after it began, and compares with `golden/<name>.txt`. With CORACLE_BLESS the file is written.
    fn check(name: &str, answer: &str, form: Form, width: usize, style: Style) {
        let trace = first(answer);
        let screen = Screen { width, height: 24, style, color: false, terminal: false };
        let mut drawn = draw(&trace, form, screen, trace.began() + 2_100_000_000).join("\n");
        drawn.push('\n');
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/explain/trace/golden")
            .join(format!("{name}.txt"));
        if std::env::var_os("CORACLE_BLESS").is_some() {
            std::fs::write(&path, &drawn).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        for (line, (drawn, golden)) in drawn.lines().zip(golden.lines()).enumerate() {
            assert_eq!(drawn, golden, "{name}, line {}", line + 1);
        }
        assert_eq!(drawn.lines().count(), golden.lines().count(), "{name}");
        if !form.wide {
            assert!(drawn.lines().all(|line| length(line) <= width), "{name} is wider than {width}");
        }
    }

    #[test]
    fn a_deployment_in_several_widths() {
        let answer = fixture!("deployment-ready.json");
        check("deployment-ready.60", answer, PLAIN, 60, UNICODE);
        check("deployment-ready.80", answer, PLAIN, 80, UNICODE);
        check("deployment-ready.160", answer, PLAIN, 160, UNICODE);
        check("deployment-ready.80.ascii", answer, PLAIN, 80, ASCII);
    }

    #[test]
    fn what_is_not_ready() {
        check("deployment-stuck.80", fixture!("deployment-stuck.json"), PLAIN, 80, UNICODE);
        check("deployment-refused.80", fixture!("deployment-refused.json"), PLAIN, 80, UNICODE);
        check("deployment-running.80", fixture!("deployment-running.json"), PLAIN, 80, UNICODE);
        check("pod-crash-loop.80", fixture!("pod-crash-loop.json"), PLAIN, 80, UNICODE);
    }

    #[test]
    fn what_is_not_certain() {
        check("deployment-restarted.80", fixture!("deployment-restarted.json"), PLAIN, 80, UNICODE);
        check("deployment-uncertain.60.ascii", fixture!("deployment-uncertain.json"), PLAIN, 60, ASCII);
        check("evidence.80", fixture!("evidence.json"), PLAIN, 80, UNICODE);
    }

    #[test]
    fn other_subjects() {
        check("pod-gone.60", fixture!("pod-gone.json"), PLAIN, 60, UNICODE);
        check("service-ready.80", fixture!("service-ready.json"), PLAIN, 80, UNICODE);
    }

    #[test]
    fn other_forms() {
        let answer = fixture!("pod-ready.json");
        check("pod-ready.100.compare", answer, Form { compare: true, ..PLAIN }, 100, UNICODE);
        check("pod-ready.80.wide", answer, Form { wide: true, ..PLAIN }, 80, UNICODE);
        check("pod-ready.80.all", answer, Form { all: true, ..PLAIN }, 80, UNICODE);
    }

    #[test]
    fn deep_rows_keep_their_labels() {
        let span = |level: u64| super::super::answer::Span {
            id: level.to_string(),
            parent: level.checked_sub(1).map(|above| above.to_string()),
            stage: "restart".to_owned(),
            name: format!("n{level}"),
            start: level,
            end: Some(60),
            ..super::super::answer::Span::default()
        };
        let trace = Trace { spans: (0..40).map(span).collect(), ..Trace::default() };
        let screen = Screen { width: 80, height: 24, style: UNICODE, color: false, terminal: false };
        let drawn = draw(&trace, PLAIN, screen, 0).join("\n");
        assert!(drawn.contains("└ restart n39"), "{drawn}");
    }

    #[test]
    fn an_empty_trace_and_a_narrow_terminal() {
        let screen = Screen { width: 10, height: 5, style: UNICODE, color: true, terminal: true };
        assert!(!draw(&Trace::default(), PLAIN, screen, 0).is_empty());
        let trace = first(fixture!("pod-ready.json"));
        let drawn = draw(&trace, PLAIN, screen, 0);
        assert!(drawn.iter().any(|line| line.starts_with("\x1b[1m")), "the critical path is bold");
    }
}
