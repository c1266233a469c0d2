//! Prints answers.

use super::super::otlp;
use super::answer::Trace;
use super::args::{Output, TraceArgs};
use super::ask::AskError;
use super::display;
use super::reads;
use super::width::Screen;
use serde_json::Value;

/// Exit code after an interrupt, as of shells.
pub(super) const INTERRUPTED: i32 = 130;

/// Nanoseconds since 1970.
pub(super) fn now() -> i128 {
    jiff::Timestamp::now().as_nanosecond()
}

/// Prints what several requests caused: those that wrote something in order of time, then a line about the others. The exit code is that
/// of the newest tree.
pub(super) fn show_requests(args: &TraceArgs, answer: &Value, trees: Vec<Trace>) -> Result<i32, AskError> {
    if !args.output.is_none_or(|output| output == Output::Wide) {
        return show(args, answer, &trees);
    }
    let (writes, reads) = reads::split(trees);
    let code = show(args, answer, &writes)?;
    if let Some(line) = reads::line(&reads) {
        print(&format!("{line}\n"))?;
    }
    Ok(code)
}

/// Prints an answer, whose trees are in order of time; the exit code is that of the newest.
pub(super) fn show(args: &TraceArgs, answer: &Value, trees: &[Trace]) -> Result<i32, AskError> {
    let text = match args.output {
        Some(Output::Json) => format!("{answer:#}\n"),
        Some(Output::Otlp) => format!("{:#}\n", otlp::json_of_trace(answer)),
        None | Some(Output::Wide) => {
            let lines = display::pictures(trees, args.form(), Screen::of_stdout(), now());
            lines.into_iter().flat_map(|line| [line, "\n".to_owned()]).collect()
        }
    };
    print(&text)?;
    Ok(trees.last().map_or(0, exit_code))
}

pub(super) fn print(text: &str) -> Result<(), AskError> {
    coracle_cli::print::print(text)
        .map_err(|error| AskError::Away(format!("cannot write the answer: {error}")))
}

pub(super) fn exit_code(trace: &Trace) -> i32 {
    i32::from(trace.trouble.is_some() || matches!(trace.state.as_str(), "failed" | "stuck"))
}
