//! How a trace is shown that goes on: redrawn in place on a terminal, otherwise a line for each span that ended.

use super::answer::Trace;
use super::names;
use super::waterfall::{Form, draw, head};
use super::width::{Screen, cut, printable};
use std::collections::HashSet;
use std::io::Write;

/// Lines of the waterfall that must be left below its head.
const HEADED: usize = 3;

/// What has been shown of a trace so far.
pub(super) struct Display<W> {
    screen: Screen,
    form: Form,
    out: W,
    /// Lines of the last picture that are still on the screen.
    drawn: usize,
    /// Spans whose end has been printed.
    ended: HashSet<String>,
}

impl<W: Write> Display<W> {
    pub(super) fn new(screen: Screen, form: Form, out: W) -> Self {
        Self { screen, form, out, drawn: 0, ended: HashSet::new() }
    }

    /// Shows how far a trace is.
    pub(super) fn show(&mut self, traces: &[Trace], now: i128) -> std::io::Result<()> {
        if !self.screen.terminal {
            return traces.iter().try_for_each(|trace| self.print_ended(trace));
        }
        let lines = pictures(traces, self.form, self.screen, now);
        let lines = self.fitting(lines, traces, now);
        self.erase()?;
        for line in &lines {
            writeln!(self.out, "{line}")?;
        }
        self.drawn = lines.len();
        self.out.flush()
    }

    /// As many lines as the screen has: what is above it cannot be changed any more. The lines above the last waterfall and the end of
    /// it stay, until all of it is printed.
    fn fitting(&self, mut lines: Vec<String>, traces: &[Trace], now: i128) -> Vec<String> {
        let room = self.screen.height.saturating_sub(1).max(1);
        if lines.len() <= room {
            return lines;
        }
        let head = traces.last().map(|trace| head(trace, self.form, self.screen, now)).unwrap_or_default();
        let head = if head.len() + HEADED <= room { head } else { Vec::new() };
        let left = lines.split_off(lines.len() - (room - head.len()));
        head.into_iter().chain(left).collect()
    }

    /// Shows how it ended: the whole picture, which stays.
    pub(super) fn end(&mut self, traces: &[Trace], now: i128) -> std::io::Result<()> {
        self.erase()?;
        for line in pictures(traces, self.form, self.screen, now) {
            writeln!(self.out, "{line}")?;
        }
        self.drawn = 0;
        self.out.flush()
    }

    /// Removes the last picture.
    pub(super) fn erase(&mut self) -> std::io::Result<()> {
        if self.drawn > 0 {
            write!(self.out, "\x1b[{}A\x1b[J", self.drawn)?;
            self.drawn = 0;
        }
        Ok(())
    }

    fn print_ended(&mut self, trace: &Trace) -> std::io::Result<()> {
        let mut ended: Vec<_> = trace.spans.iter().filter_map(|span| Some((span.end?, span))).collect();
        ended.sort_by_key(|(end, _)| *end);
        for (end, span) in ended {
            let is_shown = self.form.all || !names::is_inner(&span.stage);
            if !is_shown || !self.ended.insert(span.id.clone()) {
                continue;
            }
            let (label, _) = names::label(span, &trace.objects);
            // Lines of several objects are mixed: each says which one it is about.
            let object = span.object.and_then(|index| trace.objects.get(index));
            let about = match object {
                Some(object) if !label.contains(&object.name) => format!("{}: ", names::object(object)),
                _ => String::new(),
            };
            let (at, taken) = (names::time(end), names::time_with_unit(end.saturating_sub(span.start)));
            let failed = if span.has("failed") { " failed" } else { "" };
            let line = printable(&format!("{at:>10}  {about}{label} {taken}{failed}"));
            writeln!(self.out, "{}", cut(&line, self.screen.width, self.screen.style))?;
        }
        self.out.flush()
    }
}

/// The pictures of several traces, with an empty line between them.
pub(super) fn pictures(traces: &[Trace], form: Form, screen: Screen, now: i128) -> Vec<String> {
    let mut lines = Vec::new();
    for trace in traces {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(draw(trace, form, screen, now));
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::answer::tests::{first, fixture};
    use super::super::width::UNICODE;
    use super::*;

    fn shown(terminal: bool, height: usize) -> String {
        let screen = Screen { width: 80, height, style: UNICODE, color: false, terminal };
        let mut out = Vec::new();
        let mut display = Display::new(screen, Form::default(), &mut out);
        let trace = [first(fixture!("deployment-running.json"))];
        for _ in 0..2 {
            display.show(&trace, trace[0].began()).unwrap();
        }
        display.end(&trace, trace[0].began()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_terminal_is_drawn_in_place() {
        let text = shown(true, 6);
        let erased = text.matches("\x1b[5A\x1b[J").count();
        assert_eq!(erased, 2, "the second picture and the last one replace the one before");
        let first: Vec<&str> = text.lines().take(5).collect();
        assert!(first[0].starts_with("deployment/web"), "what it is stays on the screen: {first:?}");
        assert!(text.lines().take(5).any(|line| line.starts_with("critical path:")), "{first:?}");
        let whole = text.rsplit("\x1b[J").next().unwrap();
        assert!(whole.starts_with("deployment/web"), "the last picture is whole");
    }

    #[test]
    fn elsewhere_each_end_is_printed_once() {
        let text = shown(false, 24);
        assert_eq!(text.matches("  create pod/web-7d9f8c6b5-2xk4p").count(), 1, "{text}");
        assert!(!text.contains('\x1b'));
        let before_the_picture = text.lines().take_while(|line| !line.starts_with("deployment/web"));
        let ends: Vec<f64> =
            before_the_picture.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
        assert!(ends.len() > 3 && ends.is_sorted(), "{text}");
        assert!(text.contains("  pod/web-7d9f8c6b5-2xk4p: sandbox"), "{text}");
        assert!(!text.contains("  mutating "));
    }
}
