//! Many pods over few devices: one of them is unhealthy for a while, and agent, plugin and server are killed at random moments.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::setting::{PATIENCE, Setting};
use coracle_tests::caller::Caller;
use coracle_tests::device_plugin::RESOURCE;
use coracle_tests::eventually;
use coracle_tests::kills::Kills;
use coracle_tests::pods::IMAGE;
use serde_json::{Value, json};

const PODS: u64 = 100;
const AT_ONCE: usize = 8;
/// The device that the plugin prefers.
const PREFERRED: usize = 3;
/// Only ends a hang.
const LONG: Duration = Duration::from_secs(1800);
const URL: &str = "/api/v1/namespaces/default/pods";

/// Pods that come, use a device, and go.
#[derive(Default)]
struct Crowd {
    created: u64,
    ran: u64,
    present: BTreeSet<String>,
}

/// Whoever gets a device that another pod has leaves a file.
fn pod(name: &str) -> Value {
    let script = "mkdir /opt/cards/in-use-$CARDS || touch /opt/cards/twice; echo $CARDS > /opt/cards/ran-$HOSTNAME; sleep 0.1; \
                  rmdir /opt/cards/in-use-$CARDS";
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": IMAGE, "command": ["sh", "-c", script],
            "resources": {"limits": {RESOURCE: "1"}}}]}})
}

impl Crowd {
    /// Creates pods, and deletes those that have ended. One that came to the node while the plugin was away is rejected, and
    /// another takes its place.
    fn step(&mut self, s: &Setting) {
        let admin = Caller::admin(&s.cluster.server);
        while self.present.len() < AT_ONCE && self.ran + (self.present.len() as u64) < PODS {
            let name = format!("p{}", self.created);
            self.created += 1;
            admin.create(URL, &pod(&name));
            self.present.insert(name);
        }
        let (code, all) = admin.get(URL);
        assert_eq!(code, 200, "{all}");
        for pod in all["items"].as_array().into_iter().flatten() {
            let (name, status) = (pod["metadata"]["name"].as_str().unwrap(), &pod["status"]);
            let phase = status["phase"].as_str().unwrap_or_default();
            if !matches!(phase, "Succeeded" | "Failed") || !self.present.remove(name) {
                continue;
            }
            if phase == "Succeeded" {
                self.ran += 1;
            } else {
                let reason = status["reason"].as_str().unwrap_or_default();
                let is_rejected = reason == "UnexpectedAdmissionError" || reason.starts_with("OutOf");
                assert!(is_rejected, "{name} failed: {status}");
            }
            admin.send("DELETE", &format!("{URL}/{name}"), None);
        }
        assert!(!s.cluster.path("cards/twice").exists(), "a device was given to two pods");
    }
}

impl Setting {
    /// Kills the agent, and sometimes the plugin or the server too.
    fn kill_somebody(&mut self, kills: &mut Kills) {
        match kills.dice.roll(4) {
            0 => {
                self.gpus.kill();
                kills.wait_below(500);
                self.cluster.kill_agent();
                self.cluster.start_agent();
                kills.wait_below(500);
                self.gpus.start_process();
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
fn a_hundred_pods_share_four_devices_whoever_is_killed() {
    let mut s = Setting::start();
    s.plugin_process();
    let mut kills = Kills::new(12);
    let (mut crowd, mut killed, begun) = (Crowd::default(), 0, Instant::now());
    let mut ill_from = None;
    // Pods that came and went while a device was unhealthy.
    let mut suspects: Option<Vec<String>> = None;
    while crowd.ran < PODS {
        assert!(begun.elapsed() < LONG, "{} pods have run:\n{}", crowd.ran, s.cluster.log());
        crowd.step(&s);
        if killed < kills.count && crowd.ran * kills.count >= killed * PODS {
            kills.wait_below(1500);
            s.kill_somebody(&mut kills);
            killed += 1;
        }
        if ill_from.is_none() && crowd.ran >= PODS / 3 {
            s.gpus.set_health(PREFERRED, false);
            s.wait_allocatable("3");
            ill_from = Some(crowd.created);
        }
        if let Some(from) = ill_from
            && suspects.is_none()
            && crowd.ran >= 2 * PODS / 3
        {
            let names = (from..crowd.created).map(|number| format!("p{number}"));
            suspects = Some(names.filter(|name| !crowd.present.contains(name)).collect());
            s.gpus.set_health(PREFERRED, true);
            s.wait_allocatable("4");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    // Those that were rejected had none.
    let card = |pod: &String| std::fs::read_to_string(s.cluster.path(&format!("cards/ran-{pod}"))).ok();
    let cards: Vec<String> = suspects.unwrap_or_default().iter().filter_map(card).collect();
    assert!(!cards.is_empty(), "no pod ran while a device was unhealthy");
    let preferred = PREFERRED.to_string();
    assert!(cards.iter().all(|card| card.trim() != preferred), "the unhealthy device was used: {cards:?}");
    // Nothing of them keeps a device.
    s.pod("all", 4, "true");
    s.cluster.wait_ready("all");
    assert_eq!(s.devices_of("all").len(), 4);
}
