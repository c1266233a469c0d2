//! Agent, driver and server are killed at random moments, while pods with volumes come and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::setting::{PATIENCE, Setting};
use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::kills::Kills;
use serde_json::json;

const CLAIMS: [&str; 3] = ["red", "green", "blue"];
/// Pods that are there at the same time.
const CROWD: usize = 8;
/// What was killed is back, and what has failed is tried again.
const LONG: Duration = Duration::from_secs(300);
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

/// Attaches volumes as a driver's attacher does; ends when dropped.
struct Attacher {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attacher {
    fn start(admin: Caller) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = ends.clone();
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                attach(&admin);
                std::thread::sleep(Duration::from_millis(250));
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Attacher {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The server may be away: the next time will do.
fn attach(admin: &Caller) {
    let (_, all) = admin.get(ATTACHMENTS);
    for one in all["items"].as_array().into_iter().flatten() {
        if let Some(name) = one["metadata"]["name"].as_str()
            && one["status"]["attached"] != true
        {
            let status = json!({"status": {"attached": true}});
            admin.send("PATCH", &format!("{ATTACHMENTS}/{name}/status"), Some(&status));
        }
    }
}

impl Setting {
    fn has_run(&self, pod: &str, claim: &str) -> bool {
        let file = self.driver.volume(&format!("vol-{claim}")).join("ran");
        std::fs::read_to_string(file).is_ok_and(|text| text.lines().any(|line| line == pod))
    }

    /// Deletes a pod, sometimes without waiting for its containers.
    fn delete_somehow(&self, pod: &str, kills: &mut Kills) {
        let how = if kills.dice.roll(3) == 0 { "--force --grace-period=0" } else { "" };
        self.cluster.kubectl.run(&format!("delete pod {pod} --wait=false {how}"));
    }

    /// Kills the agent, and sometimes the driver or the server too.
    fn kill_somebody(&mut self, kills: &mut Kills) {
        match kills.dice.roll(4) {
            0 => {
                self.driver.kill();
                kills.wait_below(1000);
                self.cluster.kill_agent();
                self.cluster.start_agent();
                kills.wait_below(1000);
                self.driver.start_process();
            }
            1 => {
                self.cluster.server.kill();
                kills.wait_below(2000);
                self.cluster.kill_agent();
                self.cluster.server.restart();
                let admin = Caller::admin(&self.cluster.server);
                eventually("the server is ready", PATIENCE, || admin.get("/readyz").0 == 200);
                self.cluster.start_agent();
            }
            _ => {
                self.cluster.kill_agent();
                self.cluster.start_agent();
            }
        }
    }
}

#[test]
#[ignore = "run by in_namespaces"]
fn every_pod_runs_and_nothing_is_left_whoever_is_killed() {
    let mut s = Setting::without_driver("attachRequired: true");
    s.driver.start_process();
    s.wait_registered();
    let _attacher = Attacher::start(Caller::admin(&s.cluster.server));
    CLAIMS.iter().for_each(|claim| s.claim(claim));
    let mut kills = Kills::new(12);
    let mut pods: BTreeMap<String, &str> = BTreeMap::new();
    for round in 0..kills.count {
        let (name, claim) = (format!("p{round}"), *kills.dice.pick(&CLAIMS));
        s.pod(&name, claim, &format!("echo {name} >> /v/ran"));
        pods.insert(name, claim);
        let ran = |pods: &BTreeMap<String, &str>| -> Vec<String> {
            pods.iter().filter(|(pod, claim)| s.has_run(pod, claim)).map(|(pod, _)| pod.clone()).collect()
        };
        if pods.len() >= CROWD {
            eventually("some pod runs", LONG, || !ran(&pods).is_empty());
        }
        for pod in ran(&pods) {
            if pods.len() >= CROWD || kills.dice.roll(2) == 0 {
                s.delete_somehow(&pod, &mut kills);
                pods.remove(&pod);
            }
        }
        kills.wait_below(3000);
        s.kill_somebody(&mut kills);
        s.assert_mounted_once();
    }
    eventually("every pod has run", LONG, || pods.iter().all(|(pod, claim)| s.has_run(pod, claim)));
    s.assert_mounted_once();
    s.cluster.kubectl.run("delete pods --all --wait=false");
    let pods = || s.cluster.kubectl.run("get pods -o name");
    eventually("the pods are gone", LONG, || pods().is_empty());
    eventually("nothing is mounted", LONG, || s.mounts().is_empty());
    s.wait_clean();
    let attachments = || s.cluster.kubectl.run("get volumeattachments -o name");
    eventually("nothing is attached", LONG, || attachments().is_empty());
    eventually("nothing is in use", PATIENCE, || s.field("node node1", ".status.volumesInUse").is_empty());
}
