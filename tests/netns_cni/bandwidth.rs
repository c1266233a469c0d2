//! Limits of traffic: how long it takes, in each direction.

use std::{
    io::{Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use coracle_engine::cni::{Bandwidth, Network, NetworkDirs, PodNet};
use coracle_tests::lab::{in_lab, run};
use serde_json::{Value, json};

use crate::caller::{Caller, addresses, our_dir, veths};

/// Bits per second, and what may be sent at once.
const RATE: u64 = 8_000_000;
const BURST: u64 = 64 * 1024 * 8;
/// Takes about a second and a half.
const BYTES: usize = 1_500_000;

fn bandwidth(prev: &Value, limits: Value) -> Caller {
    let config = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "capabilities": { "bandwidth": true },
        "runtimeConfig": { "bandwidth": limits }, "prevResult": prev,
    });
    Caller { config, dir: our_dir() }
}

/// Reads what clients send, then answers; its port.
fn sink() -> u16 {
    let listener = TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let read = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
            stream.write_all(&read.to_be_bytes()).unwrap();
        }
    });
    port
}

/// How long it takes until all bytes have arrived.
fn send(address: &str, port: u16) -> Duration {
    let to = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(3)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let begun = Instant::now();
    stream.write_all(&vec![7; BYTES]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(u64::from_be_bytes(answer), BYTES as u64);
    begun.elapsed()
}

#[test]
fn each_direction_has_its_own_limit() {
    const LIMITED: Duration = Duration::from_secs(1);
    in_lab(|lab| {
        for (name, limits, (towards, from)) in [
            ("in", json!({ "ingressRate": RATE, "ingressBurst": BURST }), (true, false)),
            ("out", json!({ "egressRate": RATE, "egressBurst": BURST }), (false, true)),
            ("none", json!({}), (false, false)),
        ] {
            let netns = lab.netns(name);
            let joined = Caller::bridge(lab).call("ADD", name, &netns).unwrap();
            let plugin = bandwidth(&joined, limits);
            assert_eq!(plugin.call("ADD", name, &netns).unwrap(), joined, "the result is passed on");
            plugin.call("CHECK", name, &netns).unwrap();
            let pod = addresses(&joined).remove(0);
            let port = lab.within(&netns, sink);
            let took = send(&pod, port);
            assert_eq!(took > LIMITED, towards, "{name}: towards the pod, {took:?}");
            let port = sink();
            let took = lab.within(&netns, || send("10.77.0.1", port));
            assert_eq!(took > LIMITED, from, "{name}: from the pod, {took:?}");
        }
    });
}

#[test]
fn a_limit_that_is_gone_is_found_and_put_back() {
    in_lab(|lab| {
        let netns = lab.netns("a");
        let joined = Caller::bridge(lab).call("ADD", "a", &netns).unwrap();
        let plugin = bandwidth(&joined, json!({ "ingressRate": RATE, "egressRate": RATE }));
        plugin.call("ADD", "a", &netns).unwrap();
        let shown = run("tc", &["qdisc", "show", "dev", &veths()[0]]);
        assert!(shown.contains("tbf") && shown.contains("rate 8Mbit"), "{shown}");
        plugin.call("CHECK", "a", &netns).unwrap();
        run("tc", &["qdisc", "del", "dev", &veths()[0], "root"]);
        let error = plugin.call("CHECK", "a", &netns).unwrap_err();
        assert!(error["msg"].as_str().unwrap().contains("does not have the limit"), "{error}");
        // Again, and with another rate: nothing is there twice.
        plugin.call("ADD", "a", &netns).unwrap();
        plugin.call("ADD", "a", &netns).unwrap();
        plugin.call("CHECK", "a", &netns).unwrap();
        let faster = bandwidth(&joined, json!({ "ingressRate": 2 * RATE }));
        faster.call("CHECK", "a", &netns).unwrap_err();
        faster.call("ADD", "a", &netns).unwrap();
        faster.call("CHECK", "a", &netns).unwrap();
        // The limits go with the links.
        plugin.call("DEL", "a", &netns).unwrap();
        Caller::bridge(lab).call("DEL", "a", &netns).unwrap();
        assert!(veths().is_empty());
        lab.end_netns(&netns);
        plugin.call("DEL", "a", &netns).unwrap();
    });
}

#[test]
fn what_cannot_be_limited_is_refused() {
    in_lab(|lab| {
        let netns = lab.netns("a");
        let joined = Caller::bridge(lab).call("ADD", "a", &netns).unwrap();
        let says = |plugin: &Caller, id: &str, netns: &Path| {
            let error = plugin.call("ADD", id, netns).unwrap_err();
            (error["code"].as_u64().unwrap(), error["msg"].as_str().unwrap().to_owned())
        };
        let alone = bandwidth(&Value::Null, json!({ "ingressRate": RATE }));
        assert_eq!(says(&alone, "a", &netns).0, 7);
        let burst = bandwidth(&joined, json!({ "egressBurst": BURST }));
        assert_eq!(says(&burst, "a", &netns), (7, "egressBurst is set without egressRate".into()));
        let subnets = bandwidth(&joined, json!({ "ingressRate": RATE }));
        let subnets = subnets.with("unshapedSubnets", json!(["10.0.0.0/8"]));
        assert_eq!(says(&subnets, "a", &netns).0, 2);
        let empty = lab.netns("empty");
        let nothing = bandwidth(&joined, json!({ "ingressRate": RATE }));
        assert!(says(&nothing, "b", &empty).1.contains("has no interface eth0"));
    });
}

#[test]
fn the_runtime_side_hands_limits_to_the_plugin() {
    in_lab(|lab| {
        let conf = lab.path("conf");
        std::fs::create_dir_all(&conf).unwrap();
        let bridge = json!({ "type": "bridge", "bridge": "lab0", "isDefaultGateway": true,
            "ipam": { "type": "host-local", "dataDir": lab.path("ipam"), "subnet": "10.77.0.0/16" } });
        let list = json!({ "cniVersion": "1.0.0", "name": "net", "plugins": [bridge,
            { "type": "bandwidth", "capabilities": { "bandwidth": true } }] });
        std::fs::write(conf.join("10-net.conflist"), list.to_string()).unwrap();
        let network = Network::new(NetworkDirs { conf, bin: vec![our_dir()], cache: lab.path("cache") });
        let limits = Some(Bandwidth { ingress: RATE, egress: 2 * RATE });
        let pod = PodNet { id: "a".into(), netns: lab.netns("a"), bandwidth: limits, ..PodNet::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            network.status().await.unwrap();
            network.attach(&pod).await.unwrap();
            network.check(&pod).await.unwrap();
            let here = run("tc", &["qdisc", "show", "dev", &veths()[0]]);
            assert!(here.contains("rate 8Mbit"), "{here}");
            let inside = lab.within(&pod.netns, || run("tc", &["qdisc", "show", "dev", "eth0"]));
            assert!(inside.contains("rate 16Mbit"), "{inside}");
            network.detach(&pod).await.unwrap();
            assert!(veths().is_empty());
        });
    });
}
