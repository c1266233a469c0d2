//! Probes, hooks and their handlers.

use super::Pod;
use crate::field_ref::FieldRef;
use crate::tree::Tree;
use coracle_proto::names::{http_header_name, port_name, port_number};

pub(super) fn all(container: &FieldRef<'_>, pod: &Pod<'_>) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(name);
        if !probe.is_set() {
            continue;
        }
        handler(&probe, pod);
        for field in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            probe.at(field).non_negative();
        }
        let grace = probe.at("terminationGracePeriodSeconds");
        grace.positive();
        if name == "readinessProbe" {
            if grace.is_set() {
                grace.invalid("must not be set for readinessProbes");
            }
        } else if probe.at("successThreshold").int() != Some(1) {
            probe.at("successThreshold").invalid("must be 1");
        }
    }
}

pub(super) fn lifecycle(lifecycle: &FieldRef<'_>, pod: &Pod<'_>) {
    for hook in ["postStart", "preStop"] {
        if lifecycle.at(hook).is_set() {
            handler(&lifecycle.at(hook), pod);
        }
    }
    let signal = lifecycle.at("stopSignal");
    if !signal.is_set() {
        return;
    }
    match pod.os {
        "" => signal.forbidden("may not be set for containers with empty `spec.os.name`"),
        "windows" => signal.one_of(&["SIGKILL", "SIGTERM"]),
        _ => {}
    }
}

fn handler(field: &FieldRef<'_>, pod: &Pod<'_>) {
    let mut handlers = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = field.at(kind);
        if !action.is_set() {
            continue;
        }
        handlers += 1;
        if handlers > 1 {
            action.forbidden("may not specify more than 1 handler type");
            continue;
        }
        match kind {
            "exec" => {
                if action.at("command").is_empty() {
                    action.at("command").required("");
                }
            }
            "httpGet" => http_get(&action),
            "sleep" => sleep(&action, pod),
            _ => port(&action.at("port")),
        }
    }
    if handlers == 0 {
        field.required("must specify a handler type");
    }
}

fn http_get(action: &FieldRef<'_>) {
    action.at("path").has_text("");
    port(&action.at("port"));
    action.at("scheme").one_of(&["HTTP", "HTTPS"]);
    for header in action.each("httpHeaders") {
        for message in http_header_name(header.value.text("name")) {
            action.at("httpHeaders").invalid_as(header.value.text("name"), message);
        }
    }
}

/// A number or the name of a port.
pub(crate) fn port(port: &FieldRef<'_>) {
    match port.value.as_str() {
        Some(name) => port.all_good(port_name(name)),
        None => {
            let number = port.int().unwrap_or_default();
            for message in port_number(number) {
                port.invalid_as(number, message);
            }
        }
    }
}

fn sleep(action: &FieldRef<'_>, pod: &Pod<'_>) {
    let seconds = action.value.int("seconds").unwrap_or_default();
    if let Some(grace) = pod.grace
        && (seconds < 0 || seconds > grace)
    {
        action.invalid_as(
            seconds,
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
        );
    }
}
