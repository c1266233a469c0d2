//! `--follow`: a trace that goes on.

use super::super::connect::Connected;
use super::super::resources::Resource;
use super::answer::Trace;
use super::args::TraceArgs;
use super::ask::{AskError, Question};
use super::display::Display;
use super::show::{INTERRUPTED, now};
use super::watch::{Verdict, Watch};
use super::width::Screen;
use std::cell::RefCell;
use std::io::Stdout;
use std::time::Duration;

/// How often a question that was interrupted is asked again.
const TRIES: u32 = 5;
/// Between tries, and between looks at what was written.
const PAUSE: Duration = Duration::from_secs(1);

/// Shows how a trace goes on until what it has written is stuck; then the exit code. `None` when it has ended: what remains on the screen
/// is drawn from a last answer, as without `--follow`. A server that was away is asked again.
pub(super) async fn followed(
    args: &TraceArgs,
    connected: &Connected,
    question: &Question,
    resources: &[Resource],
) -> Result<Option<i32>, AskError> {
    let mut display = Display::new(Screen::of_stdout(), args.form(), std::io::stdout());
    let latest = RefCell::new(None);
    let mut watch = Watch::default();
    let mut tries = 0;
    loop {
        let mut is_open = true;
        let changes = question.follow(connected, |trace| {
            is_open = display.show(std::slice::from_ref(trace), now()).is_ok();
            latest.replace(Some(trace.clone()));
            is_open
        });
        let ended = tokio::select! {
            ended = changes => ended,
            verdict = stuck(&mut watch, connected, resources, &latest) => {
                if let Some(trace) = latest.take() {
                    end(&mut display, &trace)?;
                }
                return Ok(Some(watch.conclude(&verdict)));
            }
            _ = tokio::signal::ctrl_c() => return Ok(Some(INTERRUPTED)),
        };
        // Nobody reads any more.
        if !is_open {
            return Ok(Some(0));
        }
        match ended {
            Ok(trace) if trace.is_final() => {
                display.erase().map_err(unwritable)?;
                return Ok(None);
            }
            // The server ends answers when it stops.
            Ok(_) => tries = 0,
            Err(AskError::Away(_)) if tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn end(display: &mut Display<Stdout>, trace: &Trace) -> Result<(), AskError> {
    display.end(std::slice::from_ref(trace), now()).map_err(unwritable)
}

fn unwritable(error: std::io::Error) -> AskError {
    AskError::Away(format!("cannot write: {error}"))
}

/// Returns when something that the trace has written is stuck or has failed.
async fn stuck(
    watch: &mut Watch,
    connected: &Connected,
    resources: &[Resource],
    latest: &RefCell<Option<Trace>>,
) -> Verdict {
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some(trace) = latest.borrow().clone() else { continue };
        match watch.look(connected, resources, &[trace]).await {
            Verdict::Ready | Verdict::Waiting => {}
            verdict => return verdict,
        }
    }
}
