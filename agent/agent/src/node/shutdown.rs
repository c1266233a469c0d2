//! Graceful node shutdown: terminates ordinary pods first, then critical ones, each within its period.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

use crate::lifecycle::table::{Message, PodTable};
use crate::pod::node_facts::SharedFacts;
use crate::pod::spec;
use crate::status::report::Reporter;

const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// How long a shutdown may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// All of it; zero is no shutdown of pods at all.
    pub whole: Duration,
    /// The last part of it, which critical pods have to themselves.
    pub critical: Duration,
}

impl Periods {
    /// What ordinary and critical pods get.
    pub fn parts(self) -> [Duration; 2] {
        let critical = self.critical.min(self.whole);
        [self.whole - critical, critical]
    }
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
    pub async fn run(&self, periods: Periods) {
        self.facts.write().shutting_down = true;
        self.changed.notify_one();
        tracing::info!(node = self.node, ?periods, "machine is shutting down, terminating pods");
        for (critical, period) in [false, true].into_iter().zip(periods.parts()) {
            let mut uids = Vec::new();
            for pod in self.pods.list().into_iter().map(|entry| entry.pod) {
                if spec::is_critical(&pod) != critical {
                    continue;
                }
                let most = i64::try_from(period.as_secs()).unwrap_or(0);
                let grace = spec::grace(&pod).min(most);
                let (reason, message) = ("Terminated".to_owned(), MESSAGE.to_owned());
                let disruption = Some(message.clone());
                self.pods.send(spec::uid(&pod), Message::Evict { reason, message, disruption, grace });
                uids.push(spec::uid(&pod).to_owned());
            }
            // Pods that exceed their period are killed; the next group does not wait for them.
            let _ = tokio::time::timeout(period, self.pods.wait_stopped(&uids)).await;
        }
        // Waits until the last statuses are sent.
        let _ = tokio::time::timeout(Duration::from_secs(2), self.reporter.settled()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_pods_have_the_end_to_themselves() {
        let seconds = Duration::from_secs;
        for (whole, critical, parts) in [(30, 10, [20, 10]), (5, 10, [0, 5]), (0, 0, [0, 0])] {
            let periods = Periods { whole: seconds(whole), critical: seconds(critical) };
            assert_eq!(periods.parts(), parts.map(seconds));
        }
    }
}
