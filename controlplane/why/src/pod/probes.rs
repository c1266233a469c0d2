//! Probes that fail.

use super::containers::{Slot, containers};
use super::is_ready;
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::core::v1::{Event, Pod, Probe};
use coracle_fields::{IntOrString, View};

/// Seconds for which a failed liveness probe is worth a line.
const RECENT: i64 = 600;
/// Seconds that events may be late.
const PATIENCE: i64 = 30;

/// Containers that are restarted because of a liveness or startup probe.
pub fn explain_restarts(world: &World, pod: View<'_, Pod>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let restarted = containers(pod).into_iter().filter(|slot| {
        let probed = slot.spec.liveness_probe().is_set() || slot.spec.startup_probe().is_set();
        probed && (slot.status.restart_count().or(0) > 0 || !slot.status.ready().flag())
    });
    let restarted: Vec<Slot<'_>> = restarted.collect();
    if restarted.is_empty() {
        return Vec::new();
    }
    let all = world.events(&ObjectRef::to(pod));
    let recent: Vec<View<'_, Event>> = all
        .into_iter()
        .filter(|event| world.age(events::last_seen(*event)).is_some_and(|age| age < RECENT))
        .collect();
    restarted.into_iter().filter_map(|slot| explain_restart(pod, slot, &recent)).collect()
}

fn explain_restart(pod: View<'_, Pod>, slot: Slot<'_>, all: &[View<'_, Event>]) -> Option<Finding> {
    let name = slot.name();
    let mine: Vec<View<'_, Event>> = all.iter().copied().filter(|event| is_about(*event, name)).collect();
    let failed = |kind: &str| events::last(&mine, &["Unhealthy"], |message| message.starts_with(kind));
    let (event, probe, trouble) = match (failed("Startup probe"), failed("Liveness probe")) {
        (Some(event), _) if slot.spec.startup_probe().is_set() && !slot.status.started().flag() => {
            (event, slot.spec.startup_probe(), Trouble::StartupProbeFails)
        }
        (_, Some(event)) if slot.spec.liveness_probe().is_set() => {
            (event, slot.spec.liveness_probe(), Trouble::LivenessProbeFails)
        }
        _ => return None,
    };
    let killed = events::last(&mine, &["Killing"], |message| message.contains("probe"));
    if killed.is_none() && slot.status.restart_count().or(0) == 0 && slot.status.ready().flag() {
        return None;
    }
    Some(describe(pod, slot, probe, event, trouble).with(killed.map(events::evidence)))
}

/// Whether an event is about a container; those without a field path are about the pod.
fn is_about(event: View<'_, Event>, container: &str) -> bool {
    let path = event.involved_object().field_path().text();
    path.is_empty() || path.contains(&format!("{{{container}}}"))
}

/// Containers that run and are not ready because of a readiness or startup probe.
pub fn explain_readiness(world: &World, pod: View<'_, Pod>, _trail: &[ObjectRef]) -> Vec<Finding> {
    if is_ready(pod) {
        return Vec::new();
    }
    let waiting = containers(pod).into_iter().filter(|slot| {
        slot.status.state().running().is_set()
            && !slot.status.ready().flag()
            && slot.spec.readiness_probe().is_set()
    });
    let all = world.events(&ObjectRef::to(pod));
    let explained = waiting.filter_map(|slot| {
        let mine: Vec<View<'_, Event>> =
            all.iter().copied().filter(|event| is_about(*event, slot.name())).collect();
        match events::last(&mine, &["Unhealthy"], |message| message.starts_with("Readiness probe")) {
            Some(event) => {
                let probe = slot.spec.readiness_probe();
                Some(describe(pod, slot, probe, event, Trouble::ReadinessProbeFails))
            }
            None => never_succeeded(world, pod, slot),
        }
    });
    explained.collect()
}

/// A container that has started is ready when its readiness probe succeeds: without events, that is all that is known.
fn never_succeeded(world: &World, pod: View<'_, Pod>, slot: Slot<'_>) -> Option<Finding> {
    let (probe, started) = (slot.spec.readiness_probe(), slot.status.state().running().started_at().text());
    let patience = probe.initial_delay_seconds().or(0) + probe.period_seconds().or(10) + PATIENCE;
    if !slot.status.started().flag() || !world.older(started, patience) {
        return None;
    }
    let title = slot.title();
    let cause = format!(
        "the readiness probe of {title} fails, so it gets no traffic; there is no event that says how"
    );
    let finding = Finding::new(ObjectRef::to(pod), Trouble::ReadinessProbeFails, cause)
        .since(
            super::condition(pod, "Ready")
                .map_or(started, |condition| condition.last_transition_time().text()),
        )
        .evidence("readiness probe", text_of(probe))
        .remedy(format!("correct the probe or the program (readinessProbe of container {})", slot.name()));
    Some(finding)
}

fn describe(
    pod: View<'_, Pod>,
    slot: Slot<'_>,
    probe: View<'_, Probe>,
    event: View<'_, Event>,
    trouble: Trouble,
) -> Finding {
    let kind = match trouble {
        Trouble::StartupProbeFails => "startup",
        Trouble::LivenessProbeFails => "liveness",
        _ => "readiness",
    };
    let message = event.message().text();
    let (trouble, detail, remedy) = detail(slot, probe, message, trouble);
    let effect = match kind {
        "readiness" => "it gets no traffic",
        _ => "it is restarted",
    };
    // A command may fail without a word.
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    let cause = format!("the {kind} probe of {} fails, so {effect}{detail}", slot.title());
    Finding::new(ObjectRef::to(pod), trouble, cause)
        .since(events::first_seen(event))
        .evidence(format!("{kind} probe"), text_of(probe))
        .with([events::evidence(event)])
        .remedy(format!("{remedy} ({kind}Probe of container {})", slot.name()))
}

/// What an answer to a probe means.
fn detail(
    slot: Slot<'_>,
    probe: View<'_, Probe>,
    message: &str,
    other: Trouble,
) -> (Trouble, String, &'static str) {
    let lower = message.to_lowercase();
    let answer = message.split_once("probe failed: ").or_else(|| message.split_once("probe errored: "));
    let answer = answer.map_or(message, |(_, rest)| rest).trim().lines().next().unwrap_or_default();
    let port = port_of(probe);
    if let Some(wanted) = port.filter(|_| lower.contains("connection refused")) {
        let text = number(slot, wanted);
        let listens: Vec<String> =
            slot.spec.ports().items().map(|port| port.container_port().or(0).to_string()).collect();
        let declared =
            if listens.is_empty() { String::new() } else { format!("; it declares {}", listens.join(", ")) };
        let cause = format!("nothing listens on port {text}{declared}");
        return (
            Trouble::ProbePortWrong,
            cause,
            "set the port on which the program listens, or let the program listen earlier",
        );
    }
    if lower.contains("statuscode") {
        let path = probe.http_get().path().or("/");
        let code = message.rsplit(' ').next().unwrap_or_default();
        return (
            Trouble::ProbeStatus,
            format!("GET {path} is answered with status {code}"),
            "set the path that the program answers with a status from 200 to 399",
        );
    }
    if ["deadline exceeded", "timeout", "timed out"].iter().any(|word| lower.contains(word)) {
        let seconds = probe.timeout_seconds().or(1);
        return (
            Trouble::ProbeTimeout,
            format!("there is no answer within {seconds} s"),
            "raise timeoutSeconds, or initialDelaySeconds and failureThreshold for a slow start",
        );
    }
    (other, answer.to_owned(), "correct the probe or the program")
}

fn port_of(probe: View<'_, Probe>) -> Option<View<'_, IntOrString>> {
    let (http, tcp) = (probe.http_get().port(), probe.tcp_socket().port());
    [http, tcp].into_iter().find(|port| port.is_set())
}

/// A port by number, with its name.
fn number(slot: Slot<'_>, port: View<'_, IntOrString>) -> String {
    let name = port.text();
    if let Some(number) = port.int() {
        return number.to_string();
    }
    let found = slot.spec.ports().items().find(|port| port.name() == name);
    found.map_or_else(|| name.to_owned(), |port| format!("{} ({name})", port.container_port().or(0)))
}

fn text_of(probe: View<'_, Probe>) -> String {
    let port = |port: View<'_, IntOrString>| {
        port.int().map_or_else(|| port.text().to_owned(), |number| number.to_string())
    };
    let (http, command) = (probe.http_get(), probe.exec().command());
    let action = if http.is_set() {
        format!("GET {} on port {}", http.path().or("/"), port(http.port()))
    } else if probe.tcp_socket().is_set() {
        format!("connect to port {}", port(probe.tcp_socket().port()))
    } else if probe.grpc().is_set() {
        format!("gRPC health check on port {}", probe.grpc().port().or(0))
    } else {
        format!("run {}", command.texts().collect::<Vec<_>>().join(" "))
    };
    format!(
        "{action}, after {} s, every {} s, timeout {} s, {} failures",
        probe.initial_delay_seconds().or(0),
        probe.period_seconds().or(10),
        probe.timeout_seconds().or(1),
        probe.failure_threshold().or(3)
    )
}
