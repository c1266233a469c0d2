//! What happens when something breaks.

use coracle_tests::eventually;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::place::get;
use crate::world::{WAIT, World, names};

pub fn deleted_table(world: &World) {
    let pods = world.pods("web");
    let to = format!("{}:80", world.cluster_ip("web"));
    for what in [
        "delete table inet coracle-services",
        "flush chain inet coracle-services services",
        "flush map inet coracle-services endpoints4",
        "flush ruleset",
    ] {
        let mut words = vec!["nft"];
        words.extend(what.split(' '));
        let output = world.cluster.inside("node-1", &words);
        assert_eq!(output, "", "nft {what}");
        let begun = Instant::now();
        world.all_answer(&world.node("node-1"), &to, &names(&pods));
        println!("repaired {:.0?} after nft {what}", begun.elapsed());
    }
    // What leaves the pods' network also needs its rules back.
    let masquerades = || world.cluster.inside("node-1", &["nft", "list", "table", "inet", "coracle-network"]);
    for what in ["delete table inet coracle-network", "flush chain inet coracle-network postrouting"] {
        let mut words = vec!["nft"];
        words.extend(what.split(' '));
        assert_eq!(world.cluster.inside("node-1", &words), "", "nft {what}");
        let begun = Instant::now();
        eventually("the network's table is back", WAIT, || masquerades().contains("goto"));
        println!("repaired {:.0?} after nft {what}", begun.elapsed());
    }
}

fn echo(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"ping").unwrap();
    let mut buffer = [0; 4];
    stream.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"ping");
}

pub fn killed_agent(world: &World) {
    let pods = world.pods("web");
    let _servers: Vec<_> = pods.iter().map(|pod| pod.place.echo_tcp(pod.ip, 9002)).collect();
    world.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: echo}, spec: {selector: {app: web}, ports: [{port: 7, targetPort: 9002}]}}",
    );
    let to = format!("{}:7", world.cluster_ip("echo"));
    let node = world.node("node-1");
    eventually("it answers", WAIT, || node.connect(&to).is_ok());
    let mut streams: Vec<TcpStream> = (0..9).map(|_| node.connect(&to).unwrap()).collect();
    streams.iter_mut().for_each(echo);
    let there =
        || world.cluster.inside("node-1", &["nft", "list", "chains", "inet"]).contains("coracle-services");
    world.cluster.kill_agent("node-1");
    // Nobody is there to lead connections, but the kernel goes on.
    streams.iter_mut().for_each(echo);
    echo(&mut node.connect(&to).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flow = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                echo(&mut node.connect(&to).unwrap());
                streams.iter_mut().for_each(echo);
                assert!(there(), "rules were flushed");
                count += 1;
            }
            count
        });
        world.cluster.up(3);
        let log = world.cluster.data_dir().join("node-1/agent.log");
        eventually("rules are built again", WAIT, || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("service rules built"))
        });
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        assert!(flow.join().unwrap() > 0);
    });
    world.k.run("delete service echo");
}

pub fn cut_link(world: &World) {
    let pods = world.pods("web");
    let far = pods.iter().find(|pod| pod.node == "node-2").unwrap();
    let near = pods.iter().find(|pod| pod.node == "node-1").unwrap();
    let to = format!("{}:8080", far.ip);
    let link = |state: &str| {
        let net = format!("--net=/proc/{}/ns/net", world.cluster.hub());
        let status = Command::new("nsenter").args([&net, "ip", "link", "set", "node2", state]).status();
        assert!(status.unwrap().success());
    };
    assert!(near.place.get(&to).is_ok());
    link("down");
    assert!(near.place.get(&to).is_err(), "it is cut off");
    // Pods of its own are reached as before, and what happens meanwhile is not missed.
    assert!(world.node("node-2").get(&to).is_ok(), "its own pods");
    world.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: meanwhile}, spec: {selector: {app: web}, \
         ports: [{port: 80, targetPort: 8080}]}}",
    );
    let meanwhile = format!("{}:80", world.cluster_ip("meanwhile"));
    eventually("the others know", WAIT, || world.node("node-1").get(&meanwhile).is_ok());
    assert!(world.node("node-2").get(&meanwhile).is_err(), "it is cut off");
    link("up");
    let begun = Instant::now();
    eventually("it is back", WAIT, || near.place.get(&to).is_ok());
    println!("reached again {:.0?} after the link was back", begun.elapsed());
    world.all_answer(&world.node("node-2"), &meanwhile, &names(&pods));
    println!("caught up {:.0?} after the link was back", begun.elapsed());
    world.k.run("delete service meanwhile");
    world.k.run("wait --for=condition=Ready node/node-2 --timeout=120s");
    world.all_answer(&world.hub, &format!("{}:30080", world.address("node-2")), &names(&pods));
}

/// What the node controller does to a node that was silent for too long; the node's own status did not change.
pub fn spoken_for(world: &World) {
    let condition = |field: &str| {
        let node = world.json("get node node-1");
        let mut all = node["status"]["conditions"].as_array().unwrap().iter();
        all.find(|condition| condition["type"] == "Ready").unwrap()[field].clone()
    };
    let before = condition("lastTransitionTime");
    world.k.run_with(
        "patch node node-1 --subresource=status --patch-file=/dev/stdin",
        "{\"status\": {\"conditions\": [{\"type\": \"Ready\", \"status\": \"Unknown\", \"reason\": \"NodeStatusUnknown\"}]}}",
    );
    let begun = Instant::now();
    eventually("it is ready again", WAIT, || condition("status") == "True");
    println!("ready again after {:.1?}", begun.elapsed());
    assert_ne!(condition("lastTransitionTime"), before, "since now");
}

/// Fifty clients, each with one request after the other, while every pod is replaced.
pub fn rolling_update(world: &World) {
    world.apply(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: roll}, spec: {replicas: 3, selector: {matchLabels: {app: roll}}, \
         strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}, template: {metadata: {labels: {app: roll}}, spec: \
         {terminationGracePeriodSeconds: 30, containers: [{name: c, image: nginx, imagePullPolicy: IfNotPresent, \
         readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}, \
         lifecycle: {preStop: {exec: {command: [sleep, '8']}}}}]}}}}\n---\n\
         {apiVersion: v1, kind: Service, metadata: {name: roll}, spec: {type: NodePort, selector: {app: roll}, \
         ports: [{port: 80, nodePort: 30081}]}}",
    );
    world.k.run("rollout status deployment roll --timeout=240s");
    let targets: Vec<String> =
        ["node-1", "node-2", "node-3"].iter().map(|node| format!("{}:30081", world.address(node))).collect();
    for to in &targets {
        eventually("it answers", WAIT, || world.hub.get(to).is_ok());
    }
    let (stop, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    let lost = Lost::default();
    std::thread::scope(|scope| {
        for client in 0..50 {
            let (stop, requests, lost, to) = (&stop, &requests, &lost, &targets[client % targets.len()]);
            let ask = move || {
                while !stop.load(Ordering::Relaxed) {
                    match get(to) {
                        Ok(page) if page.contains("Welcome") => requests.fetch_add(1, Ordering::Relaxed),
                        other => lost.note(format!("{to}: {other:?}")),
                    };
                    std::thread::sleep(Duration::from_millis(50));
                }
            };
            scope.spawn(move || world.hub.within(ask));
        }
        // The clients must end whatever becomes of this.
        let rolled = world.k.try_with("rollout restart deployment roll", "").ok
            && world.k.try_with("rollout status deployment roll --timeout=240s", "").ok;
        // Until the last of the old pods has ended.
        let left = || world.k.try_with("get pods -l app=roll -o name", "");
        let begun = Instant::now();
        while left().out.lines().count() != 3 && begun.elapsed() < WAIT {
            std::thread::sleep(Duration::from_millis(200));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(rolled, "the Deployment was not rolled");
    });
    println!("{} requests", requests.load(Ordering::Relaxed));
    let lost = lost.all();
    assert!(
        lost.is_empty(),
        "{} of {} requests lost: {:?}",
        lost.len(),
        requests.into_inner(),
        &lost[..lost.len().min(5)]
    );
    world.k.run("delete deployment,service roll --wait=false");
}

/// What was lost, noted from many threads.
#[derive(Default)]
struct Lost(Mutex<Vec<String>>);

impl Lost {
    fn note(&self, text: String) -> usize {
        let mut all = self.0.lock().unwrap();
        all.push(text);
        all.len()
    }

    fn all(self) -> Vec<String> {
        self.0.into_inner().unwrap()
    }
}

/// Last: the node does not come back.
pub fn removed_node(world: &World) {
    let routes = || world.cluster.inside("node-1", &["ip", "route"]);
    let tunnel = || world.cluster.inside("node-1", &["bridge", "fdb", "show", "dev", "coracle-vxlan"]);
    let range = world.k.run("get node node-3 -o jsonpath={.spec.podCIDR}");
    let address = world.address("node-3");
    assert!(routes().contains(&range) && tunnel().contains(&address), "{}{}", routes(), tunnel());
    world.cluster.kill_agent("node-3");
    world.k.run("delete node node-3");
    eventually("it is removed", WAIT, || !routes().contains(&range) && !tunnel().contains(&address));
}
