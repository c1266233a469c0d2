//! The cluster, its pods and the places to look from.

use coracle_tests::cluster::Cluster;
use coracle_tests::kubectl::Kubectl;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::place::Place;

/// How long something may take on a busy machine.
pub const WAIT: Duration = Duration::from_secs(120);

const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: c
        image: busybox
        imagePullPolicy: IfNotPresent
        command: [sh, -c, "mkdir -p /tmp/w; hostname > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w"]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
"#;

/// A pod of the Deployment.
#[derive(Clone, Debug)]
pub struct Pod {
    pub name: String,
    pub node: String,
    pub ip: IpAddr,
    pub ips: Vec<IpAddr>,
    pub place: Place,
}

pub struct World {
    pub cluster: Cluster,
    pub k: Kubectl,
    /// Outside the nodes, on their link.
    pub hub: Place,
}

impl World {
    pub fn start() -> Self {
        Self::start_with(3, &[])
    }

    /// So many nodes, each with a pod, and more flags.
    pub fn start_with(nodes: usize, more: &[&str]) -> Self {
        let both = [
            "--server-flag=--cluster-cidr=10.244.0.0/16,fd00:244::/48",
            "--server-flag=--service-cidr=10.96.0.0/16,fd00:96::/112",
        ];
        let cluster = Cluster::start_with(nodes, &[&both, more].concat());
        let k = cluster.kubectl();
        k.run("wait --for=condition=Ready node --all --timeout=180s");
        k.run_with("apply --validate=false -f -", &WEB.replace("replicas: 3", &format!("replicas: {nodes}")));
        k.run("rollout status deployment web --timeout=240s");
        let hub = Place::of(cluster.hub());
        World { cluster, k, hub }
    }

    pub fn node(&self, name: &str) -> Place {
        Place::of(self.cluster.node(name)["holder"]["pid"].as_u64().unwrap() as u32)
    }

    pub fn address(&self, node: &str) -> String {
        self.cluster.node(node)["address"].as_str().unwrap().to_owned()
    }

    pub fn apply(&self, yaml: &str) {
        self.k.run_with("apply --validate=false -f -", yaml);
    }

    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.k.run(&format!("{line} -o json"))).unwrap()
    }

    pub fn cluster_ip(&self, service: &str) -> String {
        self.k.run(&format!("get service {service} -o jsonpath={{.spec.clusterIP}}"))
    }

    /// The pods with a label that run and are not ending.
    pub fn pods(&self, app: &str) -> Vec<Pod> {
        let list = self.json(&format!("get pods -l app={app}"));
        let running = list["items"].as_array().unwrap().iter().filter(|pod| {
            pod["status"]["podIP"].is_string() && pod["metadata"]["deletionTimestamp"].is_null()
        });
        let running: Vec<&Value> = running.collect();
        let ip = |pod: &Value| pod["status"]["podIP"].as_str().unwrap().parse::<IpAddr>().unwrap();
        let place = |pod: &Value| {
            let (node, ip) = (pod["spec"]["nodeName"].as_str().unwrap(), ip(pod).to_string());
            Place::at(&self.cluster.pod_netns(node, &ip))
        };
        let pod = |pod: &&Value| Pod {
            name: pod["metadata"]["name"].as_str().unwrap().to_owned(),
            node: pod["spec"]["nodeName"].as_str().unwrap().to_owned(),
            ip: ip(pod),
            ips: pod["status"]["podIPs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|ip| ip["ip"].as_str().unwrap().parse().unwrap())
                .collect(),
            place: place(pod),
        };
        running.iter().map(pod).collect()
    }

    /// Asks until these names answered, and only they.
    pub fn all_answer(&self, from: &Place, to: &str, names: &[String]) {
        let wanted: BTreeSet<String> = names.iter().cloned().collect();
        let mut seen = BTreeSet::new();
        let begun = std::time::Instant::now();
        while seen != wanted {
            match from.get(to) {
                Ok(name) => {
                    assert!(wanted.contains(&name), "{to} answered {name:?}, not one of {wanted:?}");
                    seen.insert(name);
                }
                Err(error) if begun.elapsed() > WAIT => panic!("{to}: {error}; answered so far: {seen:?}"),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
            assert!(begun.elapsed() < WAIT, "{to}: only {seen:?} of {wanted:?} answered");
        }
    }

    /// An address of a node, of IPv6.
    pub fn address6(&self, node: &str) -> String {
        self.cluster.node(node)["address6"].as_str().unwrap().to_owned()
    }

    /// What the agents said.
    pub fn tell(&self) {
        ["node-1", "node-2", "node-3"].iter().for_each(|node| eprintln!("{}", self.cluster.told(node)));
    }
}

pub fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.name.clone()).collect()
}
