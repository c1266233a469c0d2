//! Cluster DNS, asked with `dig` from a pod's network and by a pod itself. One cluster for everything. Needs root.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

mod names;
mod load;
mod upstream;

use coracle_tests::cluster::Cluster;
use coracle_tests::eventually;
use coracle_tests::kubectl::Kubectl;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const SERVER: &str = "10.96.0.10";
/// How long anything may take on a busy machine.
const WAIT: Duration = Duration::from_secs(120);

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
        kubectl.run("wait --for=condition=Ready pod/asker --timeout=180s");
        let ip = kubectl.run("get pod asker -o jsonpath={.status.podIP}");
        // Held open: the path ends with the agent.
        let held = std::fs::File::open(cluster.pod_netns("node-1", &ip)).unwrap();
        let netns =
            format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&held)).into();
        Lab { cluster, kubectl, netns, _held: held }
    }

    /// Asks from the pod's network; what `dig` printed. It asks once and waits long: a busy machine must not make two
    /// questions of one.
    pub fn dig(&self, args: &str) -> String {
        let (text, _) = self.dig_once(args);
        text
    }

    fn dig_once(&self, args: &str) -> (String, bool) {
        let output = Command::new("nsenter")
            .arg(format!("--net={}", self.netns.display()))
            .args(["dig", "+time=15", "+tries=1", &format!("@{SERVER}")])
            .args(args.split_whitespace())
            .output()
            .expect("nsenter and dig are there");
        let error = String::from_utf8_lossy(&output.stderr);
        (format!("{}{error}", String::from_utf8_lossy(&output.stdout)), output.status.success())
    }

    /// The short answer, sorted; without a reply, what `dig` said of that.
    pub fn short(&self, args: &str) -> String {
        let (text, replied) = self.dig_once(&format!("+short {args}"));
        if !replied {
            return format!("no reply: {text}");
        }
        // Remarks of dig are no answers.
        let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(';')).collect();
        lines.sort_unstable();
        lines.join(" ")
    }

    pub fn apply(&self, yaml: &str) {
        self.kubectl.run_with("apply -f -", yaml);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.cluster.told("node-1"));
        }
    }
}

#[test]
fn names_of_a_cluster() {
    let lab = Lab::start();
    #[allow(clippy::type_complexity)]
    let steps: &[(&str, fn(&Lab))] = &[
        ("a cluster nobody has touched", names::out_of_the_box),
        ("every kind of Service", names::services),
        ("pods of a StatefulSet", names::stateful_pods),
        ("a pod asks by itself", names::a_pod_asks_itself),
        ("names of others", upstream::others_are_asked),
        ("long answers come by TCP", names::long_answers_come_by_tcp),
        ("records follow endpoints", names::records_follow_endpoints),
        ("a thousand Services", load::a_thousand_services),
        ("answers while endpoints churn", load::churn),
        ("garbage", load::garbage),
        ("without the server", names::without_the_server),
        ("after the agent was killed", names::after_the_agent_was_killed),
    ];
    for (name, step) in steps {
        let begun = Instant::now();
        step(&lab);
        println!("{name}: {:.1?}", begun.elapsed());
    }
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

/// Waits until what `dig` prints has all of these.
pub fn prints(lab: &Lab, args: &str, want: &[&str]) {
    let mut last = String::new();
    let met = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually(args, WAIT, || {
            last = lab.dig(args);
            want.iter().all(|part| last.contains(part))
        });
    }));
    assert!(met.is_ok(), "{args}: no {want:?} in\n{last}");
}
