//! Times, sizes and names as the waterfall shows them.

use super::answer::{Object, Span};
use super::kind::kind;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// From here on times are in seconds.
const SECONDS_FROM: u64 = 10 * SECOND;
/// From here on times are in minutes.
const MINUTES_FROM: u64 = 600 * SECOND;
/// The same for ages, which nobody needs as exactly.
const AGE_MINUTES_FROM: u64 = 60 * SECOND;

/// Stages within a request or a write: authentication, admission, the store.
const INNER: &[&str] = &[
    "accept",
    "tls",
    "authn",
    "filters",
    "flow-queue",
    "authz",
    "body",
    "decode",
    "handle",
    "respond",
    "aggregated",
    "prepare",
    "mutating",
    "mutating-plugin",
    "mutating-policy",
    "mutating-webhook",
    "defaults",
    "validation",
    "validating",
    "validating-plugin",
    "validating-webhook",
    "validating-policy",
    "conversion-webhook",
    "encode",
    "store",
    "store-batch",
    "store-queue",
    "store-commit",
    "store-sync",
    "publish",
    "read-back",
];

/// Whether a stage is a part of a request or write.
pub(super) fn is_inner(stage: &str) -> bool {
    INNER.contains(&stage)
}

/// Whether a stage waits for a program of somebody else.
pub(super) fn is_webhook(stage: &str) -> bool {
    matches!(
        stage,
        "mutating-webhook"
            | "validating-webhook"
            | "conversion-webhook"
            | "mutating-policy"
            | "validating-policy"
    )
}

/// Whether a stage is a part of scheduling that follows the write of a pod.
pub(super) fn is_scheduling(stage: &str) -> bool {
    matches!(stage, "scheduler-queue" | "gated" | "scheduler-backoff" | "unschedulable" | "attempt")
}

/// One decimal digit of a number of tenths.
fn tenths(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A time in milliseconds without their unit, longer ones with theirs.
pub(super) fn time(nanos: u64) -> String {
    if nanos < SECONDS_FROM {
        return tenths((nanos + MILLISECOND / 20) / (MILLISECOND / 10));
    }
    if nanos < MINUTES_FROM {
        return seconds(nanos);
    }
    minutes(nanos)
}

/// A time in minutes or hours.
fn minutes(nanos: u64) -> String {
    let seconds = nanos.saturating_add(SECOND / 2) / SECOND;
    if seconds < 36_000 {
        format!("{}m{:02}s", seconds / 60, seconds % 60)
    } else {
        format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60)
    }
}

/// A time in seconds.
pub(super) fn seconds(nanos: u64) -> String {
    format!("{} s", tenths((nanos + SECOND / 20) / (SECOND / 10)))
}

/// A time with its unit.
pub(super) fn time_with_unit(nanos: u64) -> String {
    if nanos < SECONDS_FROM { format!("{} ms", time(nanos)) } else { time(nanos) }
}

/// How long ago something was.
pub(super) fn age(nanos: u64) -> String {
    match nanos {
        ..SECOND => time_with_unit(nanos),
        SECOND..AGE_MINUTES_FROM => seconds(nanos),
        _ => minutes(nanos),
    }
}

/// Whether times of this length are shown in seconds.
pub(super) fn is_long(nanos: u64) -> bool {
    nanos >= SECONDS_FROM
}

/// `pod/web`.
pub(super) fn object(object: &Object) -> String {
    let name = if object.hidden { "(hidden)" } else { object.name.as_str() };
    format!("{}/{name}", kind(&object.resource))
}

/// `29126484 bytes` in a larger unit; other texts as they are.
fn size(text: &str) -> String {
    let Some(bytes) = text.strip_suffix(" bytes").and_then(|number| number.parse::<u64>().ok()) else {
        return text.to_owned();
    };
    for (unit, length) in [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)] {
        if bytes >= length {
            let parts = (bytes.saturating_mul(10) + length / 2) / length;
            return if parts >= 100 {
                format!("{} {unit}", parts / 10)
            } else {
                format!("{} {unit}", tenths(parts))
            };
        }
    }
    format!("{bytes} B")
}

/// The program of a request: the first word of its user agent, otherwise the user.
pub(super) fn program(request: &Span) -> &str {
    let mut lines = request.text.split('\n');
    let user = lines.next().unwrap_or_default();
    let agent = lines.next().unwrap_or_default();
    let program = agent.split(['/', ' ']).next().unwrap_or_default();
    if program.is_empty() { user } else { program }
}

/// What a span is called, and what may be added where there is room.
pub(super) fn label(span: &Span, objects: &[Object]) -> (String, String) {
    let name = span.name.as_str();
    let plain = |text: String| (text, String::new());
    match span.stage.as_str() {
        "write" => {
            let written = span.object.and_then(|index| objects.get(index)).map(object).unwrap_or_default();
            plain(format!("{name} {written}"))
        }
        "reconcile" => (name.to_owned(), span.text.clone()),
        "pod-start" => plain(if span.node.is_empty() { "node".to_owned() } else { span.node.clone() }),
        "terminate" => plain(format!("{} terminate", span.node).trim_start().to_owned()),
        "image" => plain(format!("image {}", name.rsplit('/').next().unwrap_or_default())),
        "image-layer" => plain(format!("layer {} {}", digest(name), size(&span.text)).trim_end().to_owned()),
        "image-unpack" => plain(format!("unpack {}", digest(name))),
        "container" if span.code > 1 => plain(format!("container {name} (attempt {})", span.code)),
        "container" => plain(format!("container {name}")),
        "exit" => (format!("exit {name} with {}", span.code), span.text.clone()),
        "probe" if span.code > 1 => plain(format!("{name} ({} tries)", span.code)),
        "probe" => plain(name.to_owned()),
        "container-config" | "oci-bundle" | "oci-create" | "oci-start" => plain(common(&span.stage)),
        "rules-programmed" => (format!("rules on {}", span.node), span.text.clone()),
        // The time that it has at most, not the one that it took.
        "stop" if !span.text.is_empty() => (format!("stop {name}"), format!("grace {}", span.text)),
        "queued" => plain(format!("work queue of {name}")),
        "request" => plain(name.to_owned()),
        stage => {
            let words = format!("{} {name}", common(stage));
            let words = words.trim();
            let text = span.text.split('\n').next().unwrap_or_default();
            (if words.is_empty() { stage.replace('-', " ") } else { words.to_owned() }, text.to_owned())
        }
    }
}

/// Eight digits of `sha256:…`.
fn digest(name: &str) -> String {
    name.strip_prefix("sha256:").unwrap_or(name).chars().take(8).collect()
}

/// What a stage is called; nothing where the name says it all.
fn common(stage: &str) -> String {
    let words = match stage {
        "store-queue" | "scheduler-queue" => "queue",
        "store-commit" | "image-commit" => "commit",
        "store-sync" => "sync",
        "image-queue" => "wait for other pulls",
        "image-resolve" => "resolve",
        "image-backoff" => "image pull back-off",
        "crash-backoff" => "crash back-off",
        "scheduler-backoff" => "scheduler back-off",
        "unschedulable" => "waits for a node",
        "gated" => "scheduling gates",
        "thread-wait" => "waiting for a thread",
        "container-config" => "config",
        "oci-bundle" => "bundle",
        "oci-create" => "create",
        "oci-start" => "start",
        "init-run" => "init container",
        "mutating-webhook" | "validating-webhook" => "webhook",
        "mutating-policy" | "validating-policy" => "policy",
        "pre-stop" => "preStop",
        "post-start" => "postStart",
        "cni-plugin" | "mutating-plugin" | "validating-plugin" => "",
        other => return other.replace('-', " "),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (nanos, text) in [
            (0, "0.0"),
            (49_999, "0.0"),
            (50_000, "0.1"),
            (756_380_000, "756.4"),
            (9_999_000_000, "9999.0"),
            (64_321_500_000, "64.3 s"),
            (725_000_000_000, "12m05s"),
            (36_061_000_000_000, "10h01m"),
        ] {
            assert_eq!(time(nanos), text);
        }
        assert_eq!((age(553_700_000_000).as_str(), age(59_900_000_000).as_str()), ("9m14s", "59.9 s"));
        assert_eq!((age(2_100_000_000).as_str(), age(100_000_000).as_str()), ("2.1 s", "100.0 ms"));
    }

    #[test]
    fn sizes() {
        for (text, want) in
            [("29126484 bytes", "29 MB"), ("1398 bytes", "1.4 kB"), ("12 bytes", "12 B"), ("much", "much")]
        {
            assert_eq!(size(text), want);
        }
    }

    #[test]
    fn programs() {
        let span = |text: &str| Span { text: text.to_owned(), ..Span::default() };
        assert_eq!(program(&span("admin\nkubectl/v1.35.0 (linux/amd64)")), "kubectl");
        assert_eq!(program(&span("admin")), "admin");
        assert_eq!(program(&span("")), "");
    }
}
