//! Graceful node shutdown: terminates pods by ascending priority, each group within its period.

// The lock of logind that delays the machine.
pub mod inhibitor;

use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

use crate::lifecycle::table::{Message, PodTable};
use crate::pod::node_facts::SharedFacts;
use crate::pod::spec;
use crate::status::report::Reporter;

const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// How long the last statuses of pods may take.
const REPORTS: Duration = Duration::from_secs(2);

/// Lowest priority of critical pods.
const CRITICAL: i32 = 2_000_000_000;

/// Pods of one priority and above, up to the next group, and how long they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Lowest priority.
    pub priority: i32,
    /// Time for all of them.
    pub period: Duration,
}

/// How long a shutdown may take: groups of pods end one after the other, by ascending priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Periods(Vec<Group>);

impl Periods {
    /// Ordinary pods first, critical ones in the last part of the whole time.
    pub fn ordinary_and_critical(whole: Duration, critical: Duration) -> Self {
        let critical = critical.min(whole);
        Self::by_priority(vec![
            Group { priority: 0, period: whole.saturating_sub(critical) },
            Group { priority: CRITICAL, period: critical },
        ])
    }

    /// A group for each priority.
    pub fn by_priority(mut groups: Vec<Group>) -> Self {
        groups.sort_by_key(|group| group.priority);
        Self(groups)
    }

    /// Whether there is no graceful shutdown.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|group| group.period.is_zero())
    }

    /// How long a shutdown may take at most.
    pub fn longest(&self) -> Duration {
        self.0.iter().map(|group| group.period).fold(REPORTS, Duration::saturating_add)
    }

    /// The group of a priority: the highest that begins at or below it, or the lowest one.
    fn group_of(&self, priority: i32) -> usize {
        self.0.partition_point(|group| group.priority <= priority).saturating_sub(1)
    }
}

/// The priority that decides when a pod ends. Static pods that name none are critical.
fn priority(pod: &Pod) -> i32 {
    let otherwise = if spec::is_critical(pod) { CRITICAL } else { 0 };
    spec::spec(pod).priority.unwrap_or(otherwise)
}

/// Whether systemd is shutting the machine down, or `shutdown` has scheduled it.
pub fn is_machine_stopping() -> bool {
    let output = std::process::Command::new("systemctl").arg("is-system-running").output();
    output.is_ok_and(|output| output.stdout.starts_with(b"stopping"))
}

/// Shuts down the pods of the node.
pub struct NodeShutdown {
    /// The Node object's name.
    pub node: String,
    /// Where pods and the node's status see that the shutdown has begun.
    pub facts: SharedFacts,
    /// Notified when the node's status should be recomputed.
    pub changed: Arc<Notify>,
    /// The pods.
    pub pods: PodTable,
    /// Reports their last statuses.
    pub reporter: Reporter,
}

impl NodeShutdown {
    /// Terminates all pods within the periods. The node is not ready and rejects new pods from the start.
    pub async fn run(&self, periods: &Periods) {
        self.facts.write().shutting_down = true;
        self.changed.notify_one();
        tracing::info!(node = self.node, ?periods, "machine is shutting down, terminating pods");
        for (index, group) in periods.0.iter().enumerate() {
            let mut uids = Vec::new();
            for pod in self.pods.list().into_iter().map(|entry| entry.pod) {
                if periods.group_of(priority(&pod)) != index {
                    continue;
                }
                let most = i64::try_from(group.period.as_secs()).unwrap_or(i64::MAX);
                let grace = spec::grace(&pod).min(most);
                let (reason, message) = ("Terminated".to_owned(), MESSAGE.to_owned());
                let disruption = Some(message.clone());
                self.pods.send(spec::uid(&pod), Message::Evict { reason, message, disruption, grace });
                uids.push(spec::uid(&pod).to_owned());
            }
            // Pods that exceed their period are killed; the next group does not wait for them.
            let _ = tokio::time::timeout(group.period, self.pods.wait_stopped(&uids)).await;
        }
        // Waits until the last statuses are sent.
        let _ = tokio::time::timeout(REPORTS, self.reporter.settled()).await;
    }

    /// The machine stays up after all: the node takes pods again. Those that have ended stay so.
    pub fn cancel(&self) {
        self.facts.write().shutting_down = false;
        self.changed.notify_one();
        tracing::info!(node = self.node, "shutdown of the machine was cancelled");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(priority: i32, seconds: u64) -> Group {
        Group { priority, period: Duration::from_secs(seconds) }
    }

    #[test]
    fn critical_pods_have_the_end_to_themselves() {
        let seconds = Duration::from_secs;
        for (whole, critical, parts) in [(30, 10, [20, 10]), (5, 10, [0, 5]), (0, 0, [0, 0])] {
            let periods = Periods::ordinary_and_critical(seconds(whole), seconds(critical));
            assert_eq!(periods.0, [group(0, parts[0]), group(CRITICAL, parts[1])]);
            assert_eq!(periods.is_zero(), whole == 0);
            assert_eq!(periods.longest(), seconds(whole) + REPORTS);
        }
    }

    #[test]
    fn pods_end_with_the_highest_group_at_or_below_their_priority() {
        let periods = Periods::by_priority(vec![group(1000, 20), group(10, 10), group(100_000, 30)]);
        for (priority, want) in
            [(-5, 10), (0, 10), (10, 10), (999, 10), (1000, 20), (100_000, 30), (i32::MAX, 30)]
        {
            assert_eq!(periods.0[periods.group_of(priority)].period, Duration::from_secs(want), "{priority}");
        }
    }
}
