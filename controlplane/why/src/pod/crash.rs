//! Containers that end: exit codes, signals, memory, commands.

use super::containers::{Slot, containers};
use super::{condition, config, permissions};
use crate::events::first_seen;
use crate::finding::{Evidence, Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::{ContainerStateTerminated, Event, Pod};
use coracle_proto::time::parse_time;

/// Seconds for which a crash is worth a line after the container runs again.
const RECENT: i64 = 600;

/// Containers that end although they should not, the init containers first.
pub fn explain(world: &World, pod: View<'_, Pod>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let all = containers(pod).into_iter();
    let crashed = all.filter_map(|slot| Some((slot, crashed(world, pod, slot)?)));
    let mut findings: Vec<Finding> = crashed.map(|(slot, end)| explain_end(world, pod, slot, end)).collect();
    // Containers wait for the init containers.
    if let Some(at) = findings.iter().position(|finding| finding.cause.contains("init container")) {
        findings = vec![findings.swap_remove(at)];
    }
    findings
}

/// Why a pod that is not restarted has failed.
pub fn explain_failed(world: &World, pod: View<'_, Pod>) -> Vec<Finding> {
    let failed = containers(pod).into_iter().filter_map(|slot| {
        let end = slot.status.state().terminated();
        (end.is_set() && end.exit_code().or(0) != 0).then_some((slot, end))
    });
    let findings: Vec<Finding> = failed.map(|(slot, end)| explain_end(world, pod, slot, end)).collect();
    if !findings.is_empty() {
        return findings;
    }
    let (reason, message) = (pod.status().reason().text(), pod.status().message().text());
    let cause = format!("the pod has failed: {reason} {message}");
    vec![
        Finding::new(ObjectRef::to(pod), Trouble::Unexplained, cause.trim_end_matches([' ', ':']))
            .evidence("status", message),
    ]
}

/// The end of a container that counts as a crash.
fn crashed<'a>(
    world: &World,
    pod: View<'_, Pod>,
    slot: Slot<'a>,
) -> Option<View<'a, ContainerStateTerminated>> {
    let (now, before) = (slot.status.state().terminated(), slot.status.last_state().terminated());
    let restarted = !matches!(pod.spec().restart_policy().text(), "Never");
    let failed = |end: View<'_, ContainerStateTerminated>| end.is_set() && end.exit_code().or(0) != 0;
    if slot.waiting() == "CrashLoopBackOff" && before.is_set() {
        return Some(before);
    }
    if failed(now) && (restarted || slot.init) {
        return Some(now);
    }
    let ready = slot.status.ready().flag() || (slot.init && now.is_set());
    let recent = world.age(before.finished_at().text()).is_some_and(|age| age < RECENT);
    (failed(before) && recent && (!ready || slot.status.restart_count().or(0) > 1)).then_some(before)
}

fn explain_end(
    world: &World,
    pod: View<'_, Pod>,
    slot: Slot<'_>,
    end: View<'_, ContainerStateTerminated>,
) -> Finding {
    // The log of the end is that of a previous container only when there is one after it.
    let restarts = slot.status.restart_count().or(0);
    let previous = !slot.status.state().terminated().is_set() && restarts > 0;
    let log = world.log(pod.metadata(), slot.name(), previous).unwrap_or_default();
    let (trouble, cause, remedy) = match permissions::explain(world, pod, log) {
        Some(found) => found,
        None => classify(slot, end, log_command(pod, slot, previous)),
    };
    let code = end.exit_code().or(0);
    Finding::new(ObjectRef::to(pod), trouble, cause)
        .since(began(world, pod, slot, end))
        .evidence(
            format!("{}, last end", slot.title()),
            format!(
                "exit code {code} ({}), reason {}, {restarts} restarts",
                meaning(code),
                end.reason().or("unknown")
            ),
        )
        .evidence("termination message", end.message().text())
        .with(last_lines(slot, log, previous))
        .remedy(remedy)
}

/// When a container began to end again and again: of what is known, the earliest. Its last end is the latest that it can be, and the pod
/// may have been ready for moments in between.
fn began<'a>(
    world: &'a World,
    pod: View<'a, Pod>,
    slot: Slot<'_>,
    end: View<'a, ContainerStateTerminated>,
) -> &'a str {
    let unready = condition(pod, "ContainersReady").filter(|condition| condition.status() == "False");
    let unready = unready.map_or("", |condition| condition.last_transition_time().text());
    // A back-off is the consequence of the first restart; its event is the same one for all of them.
    let container = format!("{{{}}}", slot.name());
    let is_own = |event: &View<'_, Event>| {
        let place = event.involved_object().field_path().text();
        event.reason() == "BackOff" && (place.is_empty() || place.ends_with(&container))
    };
    let events = world.events(&ObjectRef::to(pod)).into_iter();
    let backed_off = events.filter(is_own).map(first_seen);
    let times = [end.finished_at().text(), unready].into_iter().chain(backed_off);
    times.filter_map(|text| Some((parse_time(text)?, text))).min().map_or("", |(_, text)| text)
}

/// The command that shows the log of a container.
pub(super) fn log_command(pod: View<'_, Pod>, slot: Slot<'_>, previous: bool) -> String {
    let (name, namespace) = (pod.metadata().name().text(), pod.metadata().namespace().text());
    let previous = if previous { " --previous" } else { "" };
    format!("kubectl logs {name} -n {namespace} -c {}{previous}", slot.name())
}

/// The last lines of a log as evidence.
pub(super) fn last_lines(slot: Slot<'_>, log: &str, previous: bool) -> Option<Evidence> {
    let mut lines: Vec<&str> = log.lines().rev().filter(|line| !line.trim().is_empty()).take(8).collect();
    lines.reverse();
    let run = if previous { "log of the previous run" } else { "log" };
    let what = format!("{}, {run}", slot.title());
    (!lines.is_empty()).then(|| Evidence { what, text: lines.join("\n") })
}

/// What an exit code means by convention.
pub fn meaning(code: i64) -> String {
    let signal = |number: i64| match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => "a signal",
    };
    match code {
        0 => "success".to_owned(),
        1 => "an error".to_owned(),
        2 => "wrong usage, by convention".to_owned(),
        126 => "the command cannot be executed".to_owned(),
        127 => "the command was not found".to_owned(),
        128 => "the container could not be started".to_owned(),
        129..=165 => format!("ended by {} ({})", signal(code - 128), code - 128),
        255 => "an error, or an exit code out of range".to_owned(),
        _ => "an error of the program's own".to_owned(),
    }
}

/// Trouble, cause and remedy of an end; `log` is the command that shows its log.
fn classify(
    slot: Slot<'_>,
    end: View<'_, ContainerStateTerminated>,
    log: String,
) -> (Trouble, String, String) {
    let (title, code) = (slot.title(), end.exit_code().or(0));
    let image = slot.spec.image().text();
    if end.reason() == "OOMKilled" {
        let limit = slot.spec.resources().limits().key("memory").filled().map(str::to_owned);
        let text = limit.map_or_else(
            || "it has no limit: the node ran out".to_owned(),
            |limit| format!("its limit is {limit}"),
        );
        let cause = format!("{title} was killed because it used too much memory ({text})");
        let remedy = "raise resources.limits.memory of the container, or make the program use less memory";
        return (Trouble::OutOfMemory, cause, remedy.to_owned());
    }
    if matches!(end.reason().text(), "StartError" | "ContainerCannotRun") || code == 128 {
        let (trouble, cause, remedy) = config::by_message(slot, end.message().text());
        return (trouble, cause, remedy.to_owned());
    }
    if end.message().text().contains("exec format error") {
        let (trouble, cause, remedy) = config::by_message(slot, "exec format error");
        return (trouble, cause, remedy.to_owned());
    }
    let see = format!("look at the program's own messages: {log}");
    match code {
        0 => {
            let cause =
                format!("{title} ends successfully, and is restarted because restartPolicy is Always");
            let remedy = "use a Job for work that ends, or a command that does not end";
            (Trouble::EndsSuccessfully, cause, remedy.to_owned())
        }
        127 => {
            let cause = format!("{title}: a command was not found in image {image} (exit code 127)");
            (
                Trouble::CommandNotFound,
                cause,
                "correct command and args of the container, or the image".to_owned(),
            )
        }
        126 => {
            let cause = format!("{title}: a command in image {image} cannot be executed (exit code 126)");
            (
                Trouble::CommandNotExecutable,
                cause,
                "make the file executable, or correct command and args".to_owned(),
            )
        }
        129..=165 => (Trouble::Signal, format!("{title} was {} (exit code {code})", meaning(code)), see),
        _ if slot.init && !slot.is_sidecar() => {
            let cause = format!(
                "{title} fails with exit code {code} ({}), so the others do not start",
                meaning(code)
            );
            (Trouble::InitContainerFails, cause, see)
        }
        _ => (Trouble::ExitCode, format!("{title} fails with exit code {code} ({})", meaning(code)), see),
    }
}
