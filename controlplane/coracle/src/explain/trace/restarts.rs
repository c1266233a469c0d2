//! Containers that were restarted a moment ago: ready now, and perhaps not for long.

use coracle_fields::View;
use coracle_fields::core::v1::{ContainerStatus, Pod};
use coracle_proto::time::parse_time;
use jiff::Timestamp;

/// A container that ran longer than this before it ended is in no crash loop: back-offs begin anew then.
const LONG_RUN: i64 = 600;
/// A container runs again when it has run so long, and twice as long as the last time.
const STEADY: i64 = 10;
const STEADY_AFTER_MORE: i64 = 60;

/// Which container of a pod ended, and has not yet run again for long enough.
pub(super) fn restarted(pod: View<'_, Pod>, now: Timestamp) -> Option<String> {
    if pod.spec().restart_policy() == "Never" {
        return None;
    }
    pod.status().container_statuses().items().find_map(|status| of_container(status, now))
}

fn of_container(status: View<'_, ContainerStatus>, now: Timestamp) -> Option<String> {
    let (restarts, last) = (status.restart_count().or(0), status.last_state().terminated());
    let seconds = |text: &str| parse_time(text).map(Timestamp::as_second);
    let since = seconds(status.state().running().started_at().text())?;
    let ended = seconds(last.finished_at().text())?;
    let last_run = ended.saturating_sub(seconds(last.started_at().text()).unwrap_or(ended));
    let steady = if restarts > 1 { STEADY_AFTER_MORE } else { STEADY };
    let runs = now.as_second().saturating_sub(since);
    let is_new = restarts > 0 && last_run < LONG_RUN && runs < steady.max(2 * last_run);
    is_new.then(|| {
        let times = if restarts == 1 { "once".to_owned() } else { format!("{restarts} times") };
        let (name, code) = (status.name().text(), last.exit_code().or(0));
        format!("container {name}: restarted {times}, last exit code {code}")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::json;

    /// A container that ended after `ran` seconds and runs since `runs`.
    fn of(restarts: i64, ran: i64, runs: i64) -> bool {
        let now: Timestamp = "2026-11-17T04:00:00Z".parse().unwrap();
        let at = |ago: i64| Timestamp::from_second(now.as_second() - ago).unwrap().to_string();
        let pod = json!({"spec": {"restartPolicy": "Always"}, "status": {"containerStatuses": [{
            "name": "web", "restartCount": restarts, "state": {"running": {"startedAt": at(runs)}},
            "lastState": {"terminated": {"exitCode": 1, "startedAt": at(runs + 5 + ran), "finishedAt": at(runs + 5)}}}]}});
        restarted(Pod::of(&pod), now).is_some()
    }

    #[test]
    fn a_crash_loop_is_ready_only_for_a_moment() {
        assert!(of(5, 3, 2), "it crashed after 3 seconds, and runs for 2");
        assert!(of(5, 50, 70) && of(1, 1, 3));
        assert!(!of(1, 1, 15) && !of(5, 3, 61), "it runs longer than before");
        assert!(!of(9, 3600, 5), "it crashes once an hour");
        let new = json!({"status": {"containerStatuses": [{"name": "web", "restartCount": 0, "state": {"running": {}}}]}});
        assert_eq!(restarted(Pod::of(&new), Timestamp::UNIX_EPOCH), None);
    }
}
