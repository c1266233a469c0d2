//! Keeps a program of the cluster running. `coracle up` ends as soon as the cluster is up, so the server and every agent have
//! a process of their own that stays with them, as systemd does for those that it starts. A program that fails is started
//! again after a pause that grows; one that fails time and again is given up, and the next `up` starts it. A listening
//! socket stays open meanwhile: clients wait instead of being refused.

use anyhow::Context;
use clap::Args;
use coracle_cli::supervise::RestartBackoff;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};

const BACKOFF: RestartBackoff = RestartBackoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
    healthy: Duration::from_secs(60),
    most: 8,
};
/// `coracle up` waits so long for an error of the first start, such as a flag that is wrong, and tells it.
const EARLY: Duration = Duration::from_secs(10);
/// `EX_TEMPFAIL`: the program itself asks to be started again.
const TEMPORARY_FAILURE: i32 = 75;

/// Options of `coracle supervise`.
#[derive(Debug, Clone, Args)]
pub struct SuperviseArgs {
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// What is done about a program that ended.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It is not restarted: it was stopped, or a restart would not help.
    End,
    /// It is started again after a pause.
    Again(Duration),
}

/// How a program did so far.
#[derive(Default)]
struct Record {
    starts: u64,
    /// Failures in a row.
    failures: u32,
}

impl Record {
    fn next(&mut self, status: ExitStatus, lived: Duration) -> Next {
        self.starts += 1;
        let says_why = status.code().is_some_and(|code| code != TEMPORARY_FAILURE);
        if status.success() || (self.starts == 1 && lived < EARLY && says_why) {
            return Next::End;
        }
        self.failures = if lived >= BACKOFF.healthy { 1 } else { self.failures + 1 };
        if self.failures > BACKOFF.most { Next::End } else { Next::Again(BACKOFF.delay(self.failures)) }
    }
}

/// Runs a program until it exits, fails too often or is stopped. Returns the exit code.
pub async fn supervise(args: &SuperviseArgs) -> anyhow::Result<i32> {
    let (program, flags) = args.command.split_first().context("the program is missing")?;
    let (mut orders, mut record) = (Orders::listen()?, Record::default());
    let name = Path::new(program).display();
    loop {
        let begun = Instant::now();
        let mut child = start(program, flags).with_context(|| name.to_string())?;
        let status = orders.pass_on(&mut child).await?;
        let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
        if orders.end {
            return Ok(code);
        }
        match record.next(status, begun.elapsed()) {
            Next::Again(pause) => {
                let failures = record.failures;
                tracing::warn!(program = %name, %status, failures, ?pause, "the program failed and is started again");
                if orders.end_within(pause).await {
                    return Ok(code);
                }
            }
            Next::End => {
                if !status.success() {
                    tracing::error!(program = %name, %status, "the program failed and is not started again");
                }
                return Ok(code);
            }
        }
    }
}

/// Starts the program. It is killed when this process dies.
fn start(program: &OsStr, flags: &[OsString]) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(flags);
    let own = Pid::this();
    // SAFETY: prctl and getppid are async-signal-safe, and all that runs between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // Dead before it was asked for.
            if getppid() != own {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        });
    }
    command.spawn()
}

/// Signals to this process.
struct Orders {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    begin_again: unix::Signal,
    /// The program is to end for good.
    end: bool,
}

impl Orders {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            begin_again: unix::signal(SignalKind::user_defined2())?,
            end: false,
        })
    }

    /// Hands what comes on to the program, until that has ended.
    async fn pass_on(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            let order = tokio::select! {
                status = child.wait() => return status,
                _ = self.terminate.recv() => Signal::SIGTERM,
                _ = self.interrupt.recv() => Signal::SIGTERM,
                _ = self.begin_again.recv() => Signal::SIGUSR2,
            };
            self.end |= order == Signal::SIGTERM;
            if let Some(pid) = child.id() {
                // One that has ended just now is seen in the next turn.
                let _ = kill(Pid::from_raw(pid as i32), order);
            }
        }
    }

    /// Waits. Whether the end came instead.
    async fn end_within(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(pause) => false,
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    fn killed() -> ExitStatus {
        ExitStatus::from_raw(Signal::SIGKILL as i32)
    }

    #[test]
    fn who_fails_is_started_again_and_who_ends_or_cannot_start_is_not() {
        let late = EARLY * 2;
        for (status, lived, again) in [
            (exited(0), SOON, false),
            (exited(0), late, false),
            (exited(1), SOON, false),
            (exited(1), late, true),
            (exited(TEMPORARY_FAILURE), SOON, true),
            (killed(), SOON, true),
        ] {
            let next = Record::default().next(status, lived);
            assert_eq!(
                next,
                if again { Next::Again(BACKOFF.first) } else { Next::End },
                "{status} {lived:?}"
            );
        }
        let mut record = Record::default();
        assert_eq!(record.next(killed(), SOON), Next::Again(BACKOFF.first));
        assert_eq!(record.next(exited(1), SOON), Next::Again(BACKOFF.first * 2), "it has been up before");
    }

    #[test]
    fn pauses_grow_and_the_number_of_tries_is_bounded() {
        let mut record = Record::default();
        let pauses: Vec<u64> = std::iter::from_fn(|| match record.next(exited(TEMPORARY_FAILURE), SOON) {
            Next::Again(pause) => Some(pause.as_secs()),
            Next::End => None,
        })
        .take(100)
        .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(
            record.next(killed(), BACKOFF.healthy),
            Next::Again(BACKOFF.first),
            "it was well in between"
        );
    }
}
