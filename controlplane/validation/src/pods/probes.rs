//! Probes, hooks and their handlers.

use super::facts::PodFacts;
use crate::field_errors::Alternatives;
use crate::field_ref::{Field, FieldRef};
use crate::field_rules::{NumberRules as _, TextRules as _};
use coracle_fields::core::v1::{
    Container, ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler, Probe, SleepAction,
};
use coracle_proto::names::{http_header_name, port_name, port_number};

const ONE_HANDLER: &str = "may not specify more than 1 handler type";
const NO_HANDLER: &str = "must specify a handler type";

pub(super) fn all(container: &Field<'_, Container>) {
    for (probe, readiness) in [
        (container.liveness_probe(), false),
        (container.readiness_probe(), true),
        (container.startup_probe(), false),
    ] {
        if !probe.is_set() {
            continue;
        }
        probe_handler(&probe);
        for field in [
            probe.initial_delay_seconds(),
            probe.timeout_seconds(),
            probe.period_seconds(),
            probe.success_threshold(),
            probe.failure_threshold(),
        ] {
            field.non_negative();
        }
        let grace = probe.termination_grace_period_seconds();
        grace.positive();
        if readiness {
            if grace.is_set() {
                grace.invalid("must not be set for readinessProbes");
            }
        } else if probe.success_threshold().int() != Some(1) {
            probe.success_threshold().invalid("must be 1");
        }
    }
}

pub(super) fn lifecycle(lifecycle: &Field<'_, Lifecycle>, pod: &PodFacts<'_>) {
    for hook in [lifecycle.post_start(), lifecycle.pre_stop()] {
        if hook.is_set() {
            hook_handler(&hook, pod);
        }
    }
    let signal = lifecycle.stop_signal();
    if !signal.is_set() {
        return;
    }
    match pod.os {
        "" => signal.forbidden("may not be set for containers with empty `spec.os.name`"),
        "windows" => signal.one_of(&["SIGKILL", "SIGTERM"]),
        _ => {}
    }
}

fn probe_handler(probe: &Field<'_, Probe>) {
    let mut handlers = Alternatives::new(ONE_HANDLER);
    handlers.check(probe.exec(), exec);
    handlers.check(probe.http_get(), http_get);
    handlers.check(probe.tcp_socket(), |action| port(&action.port()));
    handlers.check(probe.grpc(), |action| port(&action.port()));
    handlers.require(probe, NO_HANDLER);
}

fn hook_handler(hook: &Field<'_, LifecycleHandler>, pod: &PodFacts<'_>) {
    let mut handlers = Alternatives::new(ONE_HANDLER);
    handlers.check(hook.exec(), exec);
    handlers.check(hook.http_get(), http_get);
    handlers.check(hook.tcp_socket(), |action| port(&action.port()));
    handlers.check(hook.sleep(), |action| sleep(action, pod));
    handlers.require(hook, NO_HANDLER);
}

fn exec(action: &Field<'_, ExecAction>) {
    if action.command().is_empty() {
        action.command().required("");
    }
}

fn http_get(action: &Field<'_, HTTPGetAction>) {
    action.path().has_text("");
    port(&action.port());
    action.scheme().one_of(&["HTTP", "HTTPS"]);
    for header in action.view().http_headers().items() {
        for message in http_header_name(header.name().text()) {
            action.http_headers().invalid_as(header.name().text(), message);
        }
    }
}

/// A number or the name of a port.
pub(crate) fn port(port: &FieldRef<'_>) {
    match port.value.as_str() {
        Some(name) => port.all_good(port_name(name)),
        None => {
            let number = port.value.as_i64().unwrap_or_default();
            for message in port_number(number) {
                port.invalid_as(number, message);
            }
        }
    }
}

fn sleep(action: &Field<'_, SleepAction>, pod: &PodFacts<'_>) {
    let seconds = action.view().seconds().or(0);
    if let Some(grace) = pod.grace
        && (seconds < 0 || seconds > grace)
    {
        action.invalid_as(
            seconds,
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
        );
    }
}
