//! Who reaches whom.

use coracle_tests::eventually;
use std::time::{Duration, Instant};

use crate::place::ask;
use crate::world::{WAIT, World, names};

/// Over the tunnel with the pod's own address, by TCP and UDP, of both families.
pub fn pods_by_address(world: &World) {
    let pods = world.pods("web");
    assert_eq!(pods.len(), 3);
    for to in &pods {
        let servers: Vec<_> = to.ips.iter().map(|ip| to.place.answer_udp(*ip, 9000, &to.name)).collect();
        for from in &pods {
            for ip in &to.ips {
                let http = std::net::SocketAddr::new(*ip, 8080).to_string();
                if ip.is_ipv4() {
                    assert_eq!(from.place.get(&http).unwrap(), to.name, "{} → {http}", from.node);
                }
                let udp = std::net::SocketAddr::new(*ip, 9000).to_string();
                let socket = from.place.udp(&udp);
                let own = from.ips.iter().find(|own| own.is_ipv4() == ip.is_ipv4()).unwrap();
                let mut answer = None;
                eventually("an answer by UDP", WAIT, || {
                    answer = ask(&socket);
                    answer.is_some()
                });
                assert_eq!(answer.unwrap(), format!("{} {own}", to.name), "the source is the pod's own");
            }
        }
        drop(servers);
    }
    // Packets as large as pods may send arrive.
    let link = world.cluster.inside("node-1", &["ip", "link", "show", "coracle-vxlan"]);
    assert!(link.contains("mtu 1450"), "{link}");
}

pub fn cluster_ip(world: &World) {
    let pods = world.pods("web");
    let to = format!("{}:80", world.cluster_ip("web"));
    for node in ["node-1", "node-2", "node-3"] {
        world.all_answer(&world.node(node), &to, &names(&pods));
    }
    for pod in &pods {
        world.all_answer(&pod.place, &to, &names(&pods));
    }
}

/// A program in a pod of each node, by the Service's short name and by its long one.
pub fn by_name(world: &World) {
    world.apply(
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: asker}, spec: {selector: {matchLabels: {app: asker}}, \
         template: {metadata: {labels: {app: asker}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, \
         image: coracle.local/tools, imagePullPolicy: IfNotPresent, command: [sleep, infinity]}]}}}}",
    );
    world.k.run("rollout status daemonset asker --timeout=240s");
    let wanted = names(&world.pods("web"));
    let askers = world.pods("asker");
    assert_eq!(askers.len(), 3);
    for asker in askers {
        for name in ["web", "web.default.svc.cluster.local"] {
            let line = format!("exec {} -- curl -s -m 20 http://{name}/", asker.name);
            eventually(&format!("{name} answers on {}", asker.node), WAIT, || {
                let page = world.k.try_with(&line, "");
                page.ok && wanted.contains(&page.out.trim().to_owned())
            });
        }
    }
    world.k.run("delete daemonset asker --wait=false");
}

pub fn node_ports(world: &World) {
    let pods = world.pods("web");
    for node in ["node-1", "node-2", "node-3"] {
        world.all_answer(&world.hub, &format!("{}:30080", world.address(node)), &names(&pods));
        world.all_answer(&world.node(node), "127.0.0.1:30080", &names(&pods));
        world.all_answer(&pods[0].place, &format!("{}:30080", world.address(node)), &names(&pods));
    }
}

pub fn exposed_nginx(world: &World) {
    world.k.run("create deployment nginx --image=nginx --replicas=3");
    world.k.run("rollout status deployment nginx --timeout=240s");
    world.k.run("expose deployment nginx --port=80 --type=NodePort");
    let port = world.k.run("get service nginx -o jsonpath={.spec.ports[0].nodePort}");
    let slices = || {
        let list = world.json("get endpointslices -l kubernetes.io/service-name=nginx");
        let all = list["items"].as_array().unwrap().iter();
        all.map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len)).sum::<usize>()
    };
    eventually("three endpoints", WAIT, || slices() == 3);
    let to = format!("{}:{port}", world.address("node-2"));
    eventually("nginx answers", WAIT, || world.hub.get(&to).is_ok_and(|page| page.contains("Welcome")));
    let answered = || {
        let pods = world.k.run("get pods -l app=nginx -o name");
        pods.lines().filter(|pod| world.k.run(&format!("logs {pod}")).contains("GET / ")).count()
    };
    eventually("all three replicas answered", WAIT, || {
        (0..20).for_each(|_| drop(world.hub.get(&to)));
        answered() == 3
    });
    world.k.run("delete deployment,service nginx");
}

pub fn from_outside(world: &World) {
    let pods = world.pods("web");
    world.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: outside}, spec: {type: LoadBalancer, selector: {app: web}, \
         externalIPs: [198.51.100.7], ports: [{port: 8081, targetPort: 8080}]}}",
    );
    let ingress = || world.json("get service outside")["status"]["loadBalancer"]["ingress"].clone();
    eventually("addresses of the balancer", WAIT, || ingress().as_array().is_some_and(|all| all.len() == 3));
    for address in ingress().as_array().unwrap() {
        let to = format!("{}:8081", address["ip"].as_str().unwrap());
        world.all_answer(&world.hub, &to, &names(&pods));
    }
    let hub = world.cluster.hub().to_string();
    let route = |what: &str| {
        let line = format!(
            "nsenter --net=/proc/{hub}/ns/net ip route {what} 198.51.100.7 via {}",
            world.address("node-1")
        );
        std::process::Command::new("sh").args(["-c", &line]).status().unwrap()
    };
    assert!(route("add").success());
    world.all_answer(&world.hub, "198.51.100.7:8081", &names(&pods));
    assert!(route("del").success());
    // Only from where it is allowed.
    world.k.run_with(
        "patch service outside --patch-file=/dev/stdin",
        "{\"spec\": {\"loadBalancerSourceRanges\": [\"203.0.113.0/24\"]}}",
    );
    let to = format!("{}:8081", world.address("node-1"));
    eventually("strangers are kept out", WAIT, || world.hub.get(&to).is_err());
    world.k.run("delete service outside");
}

pub fn hairpin(world: &World) {
    let pod = world.pods("web").remove(0);
    world.k.run(&format!("label pod {} alone=yes", pod.name));
    world.k.run(&format!(
        "expose pod {} --name=alone --selector=alone=yes --port=80 --target-port=8080",
        pod.name
    ));
    let to = format!("{}:80", world.cluster_ip("alone"));
    eventually("it answers itself", WAIT, || pod.place.get(&to).is_ok());
    let median = |to: &str| {
        let mut taken: Vec<Duration> = (0..11)
            .map(|_| {
                let begun = Instant::now();
                assert_eq!(pod.place.get(to).unwrap(), pod.name);
                begun.elapsed()
            })
            .collect();
        taken.sort_unstable();
        taken[5]
    };
    // Through the Service as fast as without it: a lost SYN costs a second.
    let (direct, looped) = (median(&format!("{}:8080", pod.ip)), median(&to));
    assert!(looped < direct + Duration::from_millis(900), "{looped:?}, without the Service {direct:?}");
    world.k.run("delete service alone");
    world.k.run(&format!("label pod {} alone-", pod.name));
}

pub fn refused(world: &World) {
    world.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: nobody}, spec: {type: NodePort, selector: {app: nobody}, \
         ports: [{port: 80, nodePort: 30099}]}}",
    );
    let pod = world.pods("web").remove(0);
    let ip = world.cluster_ip("nobody");
    let kind = |from: &crate::place::Place, to: &str| from.get(to).err().map(|error| error.kind());
    let refused = Some(std::io::ErrorKind::ConnectionRefused);
    let to = format!("{ip}:80");
    for (from, to) in [
        (&pod.place, to.clone()),
        (&world.node("node-1"), to),
        (&pod.place, format!("{}:81", world.cluster_ip("web"))),
        (&world.hub, format!("{}:30099", world.address("node-2"))),
    ] {
        eventually("refused", WAIT, || kind(from, &to) == refused);
        // The kernel tells each host only some times a second; a busy machine may be late once.
        let mut fastest = Duration::MAX;
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(1500));
            let begun = Instant::now();
            assert_eq!(kind(from, &to), refused);
            fastest = fastest.min(begun.elapsed());
            if fastest < Duration::from_secs(1) {
                break;
            }
        }
        assert!(fastest < Duration::from_secs(1), "{to}: {fastest:?}");
    }
    world.k.run("delete service nobody");
}

/// People look at rules with nft; it must understand them.
pub fn printable(world: &World) {
    let text = world.cluster.inside("node-1", &["nft", "list", "ruleset"]);
    assert!(
        text.contains("table inet coracle-services") && text.contains("table inet coracle-network"),
        "{text}"
    );
    assert!(text.contains("numgen random mod 3"), "{text}");
    let again = world.cluster.inside("node-1", &["nft", "-j", "list", "table", "inet", "coracle-services"]);
    assert!(again.starts_with('{'), "{again}");
}
