//! What pods do in a round: run once, crash, write logs, fill the disk.

use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::pods::{Cluster, IMAGE, condition, import, run};
use std::fs;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(120);

pub struct Round<'c> {
    cluster: &'c Cluster,
    number: usize,
    pods: Vec<String>,
}

impl<'c> Round<'c> {
    pub fn new(cluster: &'c Cluster, number: usize) -> Self {
        Self { cluster, number, pods: Vec::new() }
    }

    /// Everything once; its pods are gone in the end.
    pub fn play(mut self) {
        let image = self.new_image();
        self.start_busy_pods(&image);
        self.see_restarts_and_rotation();
        self.fill_the_disk(&image);
        self.cluster.delete(&self.pods.join(" "));
    }

    fn pod(&mut self, name: &str, spec: &str) -> String {
        let name = format!("{name}-{}", self.number);
        self.cluster.pod(&name, spec);
        self.pods.push(name.clone());
        name
    }

    /// An image that no round had before, of 24 MiB.
    fn new_image(&self) -> String {
        let (name, dir) = (format!("example.test/week:{}", self.number), self.cluster.path("new-image"));
        let (d, from) = (dir.display(), self.cluster.path("root").display().to_string());
        run(&format!(
            "set -e; rm -rf {d}; cp -a {from} {d}-root; head -c 25165824 /dev/urandom > {d}-root/data; mkdir {d}
             tar -C {d}-root -cf {d}/layer.tar .; rm -rf {d}-root"
        ));
        let digest = run(&format!("sha256sum {d}/layer.tar | cut -d' ' -f1"));
        let old = self.cluster.path("image");
        let mut config: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(old.join("config.json")).unwrap()).unwrap();
        config["rootfs"]["diff_ids"] = serde_json::json!([format!("sha256:{}", digest.trim())]);
        fs::write(dir.join("config.json"), config.to_string()).unwrap();
        let manifest = fs::read_to_string(old.join("manifest.json")).unwrap().replace(IMAGE, &name);
        fs::write(dir.join("manifest.json"), manifest).unwrap();
        run(&format!("tar -C {d} -cf {d}.tar manifest.json config.json layer.tar"));
        import(&self.cluster.path("engine/images"), &self.cluster.path("new-image.tar"));
        run(&format!("rm -rf {d} {d}.tar"));
        name
    }

    fn start_busy_pods(&mut self, image: &str) {
        let once = format!(
            "restartPolicy: Never, containers: [{{name: c, image: '{image}', command: [sh, -c, 'echo done']}}]"
        );
        for number in 0..4 {
            self.pod(&format!("once{number}"), &once);
        }
        for number in 0..3 {
            let crash = "command: [sh, -c, 'echo crash; sleep 1; exit 1']";
            self.pod(
                &format!("crash{number}"),
                &format!("containers: [{{name: c, image: '{IMAGE}', {crash}}}]"),
            );
        }
        let write = "while :; do head -c 8000 /dev/zero | tr '\\\\0' x | fold -w 100; sleep 0.2; done";
        self.pod(
            "loud",
            &format!("containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, \"{write}\"]}}]"),
        );
        let probed =
            "command: [sleep, '1000'], readinessProbe: {exec: {command: ['true']}, periodSeconds: 1}";
        let volumes = "volumes: [{name: a, emptyDir: {}}, {name: b, emptyDir: {medium: Memory}}]";
        let mounts = "volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]";
        self.pod(
            "probed",
            &format!("{volumes}, containers: [{{name: c, image: '{IMAGE}', {probed}, {mounts}}}]"),
        );
    }

    fn see_restarts_and_rotation(&self) {
        for number in 0..4 {
            self.cluster.wait_phase(&format!("once{number}-{}", self.number), "Succeeded");
        }
        for number in 0..3 {
            self.cluster.wait(&format!("crash{number}-{}", self.number), "restarted", |status| {
                status["containerStatuses"][0]["restartCount"].as_i64() > Some(0)
            });
        }
        self.cluster.wait_ready(&format!("probed-{}", self.number));
        let name = format!("loud-{}", self.number);
        let uid = self.cluster.get(&name)["metadata"]["uid"].as_str().unwrap().to_owned();
        let logs = self.cluster.path("logs").join(format!("default_{name}_{uid}/c"));
        let files = || fs::read_dir(&logs).map_or(0, |entries| entries.count());
        eventually("its log is rotated", WAIT, || files() > 1);
        assert!(files() <= 4, "{} log files of {name}, and one that is being compressed", files());
    }

    /// A pod that writes too much is evicted; one that stays within its request is not, and images go first.
    fn fill_the_disk(&mut self, image: &str) {
        let container = |mib: u64, rest: &str| {
            format!(
                "volumes: [{{name: v, emptyDir: {{}}}}], containers: [{{name: c, image: '{IMAGE}', {rest}
                volumeMounts: [{{name: v, mountPath: /v}}], command: [sh, -c, 'dd if=/dev/zero of=/v/f bs=1M count={mib}; sleep 1000']}}]"
            )
        };
        let modest = self.pod("modest", &container(8, "resources: {requests: {ephemeral-storage: 64Mi}},"));
        self.cluster.wait_ready(&modest);
        let disk = nix::sys::statvfs::statvfs(&self.cluster.path("")).unwrap();
        let mib = |blocks: u64| (blocks * disk.fragment_size()) >> 20;
        let fill = mib(disk.blocks_available()).saturating_sub(mib(disk.blocks()) / 10);
        let greedy = self.pod("greedy", &container(fill, ""));
        let status = self.cluster.wait_for(WAIT, &greedy, "evicted", |status| status["reason"] == "Evicted");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("The node was low on resource: ephemeral-storage."), "{message}");
        eventually("the node has room again", WAIT, || {
            let node = self.cluster.kubectl.run("get node node1 -o json");
            let node: serde_json::Value = serde_json::from_str(&node).unwrap();
            let images = node["status"]["images"].to_string();
            condition(&node["status"], "DiskPressure") == "False"
                && node["spec"]["taints"].is_null()
                && !images.contains(image)
        });
        self.see_who_was_evicted();
        let modest = self.cluster.get(&modest)["status"].clone();
        assert_eq!(modest["containerStatuses"][0]["restartCount"], 0, "{modest:#}");
    }

    /// Only the greedy pod was evicted, by the status of pods and by events. Pods that had ended before stay as they ended, although
    /// their containers are removed to make room.
    fn see_who_was_evicted(&self) {
        for name in self.pods.iter().filter(|name| !name.starts_with("greedy")) {
            let status = self.cluster.get(name)["status"].clone();
            assert_ne!(status["reason"], "Evicted", "{name}: {status:#}");
            assert_ne!(condition(&status, "DisruptionTarget"), "True", "{name}: {status:#}");
            if name.starts_with("once") {
                assert_eq!(status["phase"], "Succeeded", "{name}: {status:#}");
            }
        }
        let path = "/api/v1/namespaces/default/events?fieldSelector=reason%3DEvicted";
        let (code, events) = Caller::admin(&self.cluster.server).get(path);
        assert_eq!(code, 200, "{events}");
        let evicted = events["items"].as_array().unwrap().iter();
        let wrong: Vec<_> = evicted
            .map(|event| event["involvedObject"]["name"].as_str().unwrap_or_default())
            .filter(|name| !name.starts_with("greedy"))
            .collect();
        assert!(wrong.is_empty(), "round {}: evicted, by their events: {wrong:?}", self.number);
    }
}
