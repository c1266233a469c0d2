//! The waterfall: a tree of spans beside bars on a time axis.

use super::answer::Trace;
use super::headline;
use super::names::{self, time};
use super::nodes::{Builder, SHORTEST};
use super::row::Node;
use super::stages;
use super::summary;
use super::width::{Screen, Style, cut, cut_name, join, length, printable, wrap};

/// The least width of the bars.
const NARROWEST: usize = 10;
/// The least width of the bars when labels are not cut.
const WIDE: usize = 20;
/// Rows that are deeper in the tree than this, or than half of the column of labels, begin below each other.
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
    /// Only the stages of the critical path.
    pub(super) short: bool,
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

/// The lines above the waterfall.
pub(super) fn head(trace: &Trace, form: Form, screen: Screen, now: i128) -> Vec<String> {
    headline::head(&Builder::new(trace, form.all), screen.width, now)
}

/// The lines of a trace; `now` is in nanoseconds since 1970.
pub(super) fn draw(trace: &Trace, form: Form, screen: Screen, now: i128) -> Vec<String> {
    if form.short {
        return stages::draw(trace, screen, now);
    }
    let mut builder = Builder::new(trace, form.all);
    let nodes = builder.rows();
    let style = screen.style;
    let deepest = if form.wide { DEEPEST } else { DEEPEST.min(widest_label(screen.width) / 2) };
    let mut rows = Vec::new();
    for node in &nodes {
        let row = Row { branch: String::new(), below: String::new(), node };
        place(row, style, deepest, &mut rows);
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

fn place<'a>(row: Row<'a>, style: Style, deepest: usize, rows: &mut Vec<Row<'a>>) {
    let (below, children) = (row.below.clone(), &row.node.children);
    rows.push(row);
    for (index, node) in children.iter().enumerate() {
        let is_last = index + 1 == children.len();
        let branch = format!("{below}{}", if is_last { style.last_branch } else { style.branch });
        let deeper = format!("{below}{}", if is_last { "  " } else { style.line });
        let below = if length(&deeper) > deepest { below.clone() } else { deeper };
        place(Row { branch, below, node }, style, deepest, rows);
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
    let label = longest.min(widest_label(width));
    let bar = width.saturating_sub(label + fixed);
    if bar >= NARROWEST {
        return Columns { label, time, usual, bar };
    }
    Columns { label: width.saturating_sub(fixed + NARROWEST).max(8), time, usual, bar: NARROWEST }
}

/// The column of labels takes no more of the width.
fn widest_label(width: usize) -> usize {
    (width * 9 / 20).max(20)
}

fn label(row: &Row<'_>, columns: &Columns, style: Style) -> String {
    let room = columns.label.saturating_sub(length(&row.branch));
    let is_name = row.node.label.contains('/');
    let name = if is_name { cut_name(&row.node.label, room, style) } else { row.node.label.clone() };
    let mut label = format!("{}{name}", row.branch);
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
mod tests;
