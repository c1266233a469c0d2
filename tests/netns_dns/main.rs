//! Cluster DNS, asked with `dig` from a pod's network and by a pod itself. One cluster for everything. Needs root.

#![allow(missing_docs, clippy::unwrap_used)]

mod names;
mod upstream;

use coracle_tests::cluster::Cluster;
use coracle_tests::eventually;
use coracle_tests::kubectl::Kubectl;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SERVER: &str = "10.96.0.10";
const WAIT: Duration = Duration::from_secs(60);

/// The cluster, and a pod to ask from.
pub struct Lab {
    pub cluster: Cluster,
    pub kubectl: Kubectl,
    pub netns: PathBuf,
    _held: std::fs::File,
}

impl Lab {
    fn start() -> Self {
        let flags = [
            "--agent-flag=--dns-stub-domain=acme.test=127.0.0.1:5353",
            "--agent-flag=--dns-upstream=127.0.0.1:5354",
        ];
        let cluster = Cluster::start_with(1, &flags);
        let kubectl = cluster.kubectl();
        kubectl.run("run asker --image=busybox --command -- sleep 3600");
        kubectl.run("wait --for=condition=Ready pod/asker --timeout=60s");
        let ip = kubectl.run("get pod asker -o jsonpath={.status.podIP}");
        // Held open: the path ends with the agent.
        let held = std::fs::File::open(cluster.pod_netns("node-1", &ip)).unwrap();
        let netns =
            format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&held)).into();
        Lab { cluster, kubectl, netns, _held: held }
    }

    /// Asks from the pod's network; what `dig` printed.
    pub fn dig(&self, args: &str) -> String {
        dig(&self.netns, args)
    }

    /// The short answer, sorted.
    pub fn short(&self, args: &str) -> String {
        let text = self.dig(&format!("+short {args}"));
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join(" ")
    }

    pub fn apply(&self, yaml: &str) {
        self.kubectl.run_with("apply -f -", yaml);
    }
}

pub fn dig(netns: &Path, args: &str) -> String {
    let output = Command::new("nsenter")
        .arg(format!("--net={}", netns.display()))
        .args(["dig", "+time=3", "+tries=2", &format!("@{SERVER}")])
        .args(args.split_whitespace())
        .output()
        .expect("nsenter and dig are there");
    let error = String::from_utf8_lossy(&output.stderr);
    format!("{}{error}", String::from_utf8_lossy(&output.stdout))
}

#[test]
fn names_of_a_cluster() {
    let lab = Lab::start();
    names::out_of_the_box(&lab);
    names::services(&lab);
    names::stateful_pods(&lab);
    names::a_pod_asks_itself(&lab);
    upstream::others_are_asked(&lab);
    names::long_answers_come_by_tcp(&lab);
    names::records_follow_endpoints(&lab);
    names::a_thousand_services(&lab);
    names::garbage(&lab);
    names::without_the_server(&lab);
    names::after_the_agent_was_killed(&lab);
}

/// Waits for an answer.
pub fn answers(lab: &Lab, args: &str, want: &str) {
    let mut last = String::new();
    let met = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually(args, WAIT, || {
            last = lab.short(args);
            last == want
        });
    }));
    assert!(met.is_ok(), "{args}: {last:?} instead of {want:?}\n{}", lab.dig(args));
}
