use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    time::Duration,
};

use coracle_tests::eventually;
use coracle_tests::lab::{Lab, in_lab, run};
use serde_json::{Value, json};

use crate::caller::{Caller, addresses, elements, reserved, veths};

/// Listens in a container and tells each client its address.
pub fn serve(lab: &Lab, netns: &Path, port: u16) {
    let listener = lab.within(netns, || TcpListener::bind(("::", port)).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let peer = stream.peer_addr().unwrap().ip().to_canonical();
            stream.write_all(peer.to_string().as_bytes()).unwrap();
        }
    });
}

/// What `serve` says to a client here.
pub fn ask(address: &str, port: u16) -> std::io::Result<String> {
    let to = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(3))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn containers_reach_each_other_the_host_and_beyond() {
    in_lab(|lab| {
        let (a, b, outside) = (lab.netns("a"), lab.netns("b"), lab.netns("outside"));
        let bridge = Caller::bridge(lab);
        let ips_a = addresses(&bridge.call("ADD", "a", &a).unwrap());
        let ips_b = addresses(&bridge.call("ADD", "b", &b).unwrap());
        serve(lab, &b, 80);
        for (from, to) in ips_a.iter().zip(&ips_b) {
            assert_eq!(
                lab.within(&a, || ask(to, 80).unwrap()),
                *from,
                "between containers, with their own addresses"
            );
            assert!(ask(to, 80).is_ok(), "from the host");
        }
        // A bridge that was down keeps the gateway's addresses, of IPv6 too.
        for state in ["down", "up"] {
            run("ip", &["link", "set", "lab0", state]);
        }
        for to in &ips_b {
            eventually("the host reaches them again", Duration::from_secs(30), || ask(to, 80).is_ok());
        }
        // Beyond the host nobody knows the containers: masquerading hides them.
        run("ip", &["link", "add", "up0", "type", "veth", "peer", "name", "up1"]);
        run("ip", &["address", "add", "192.0.2.1/24", "dev", "up0"]);
        run("ip", &["link", "set", "up0", "up"]);
        run("ip", &["link", "set", "up1", "netns", &format!("/proc/self/fd/{}", hold(&outside))]);
        lab.within(&outside, || {
            run("ip", &["address", "add", "192.0.2.2/24", "dev", "up1"]);
            run("ip", &["link", "set", "up1", "up"]);
        });
        serve(lab, &outside, 81);
        assert_eq!(lab.within(&a, || ask("192.0.2.2", 81).unwrap()), "192.0.2.1");
    });
}

/// An open descriptor that a child inherits.
fn hold(path: &Path) -> i32 {
    use std::os::fd::IntoRawFd;
    let fd = std::fs::File::open(path).unwrap();
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    fd.into_raw_fd()
}

#[test]
fn del_leaves_nothing_and_can_be_repeated() {
    in_lab(|lab| {
        let a = lab.netns("a");
        let bridge = Caller::bridge(lab);
        let prev = bridge.call("ADD", "a", &a).unwrap();
        assert_eq!((reserved(lab).len(), veths().len(), elements()), (2, 1, 2));
        let with_result = bridge.with("prevResult", prev);
        for caller in [&with_result, &with_result, &bridge] {
            caller.call("DEL", "a", &a).unwrap();
            assert_eq!((reserved(lab).len(), veths().len(), elements()), (0, 0, 0));
        }
        // Again in the same namespace, then without the namespace.
        bridge.call("ADD", "a", &a).unwrap();
        lab.end_netns(&a);
        bridge.call("DEL", "a", &a).unwrap();
        bridge.call("DEL", "a", Path::new("")).unwrap();
        bridge.call("DEL", "never-was", Path::new("")).unwrap();
        assert_eq!((reserved(lab).len(), elements()), (0, 0));
    });
}

#[test]
fn check_notices_every_kind_of_tampering() {
    in_lab(|lab| {
        type Tamper = fn(&Lab, &Path, &Value);
        let tampers: [(&str, Tamper); 7] = [
            ("failed to match addr", |lab, netns, _| {
                lab.within(netns, || run("ip", &["address", "del", "10.77.0.2/16", "dev", "eth0"]));
            }),
            ("expected route", |lab, netns, _| {
                lab.within(netns, || run("ip", &["route", "del", "default"]));
            }),
            ("is down", |lab, netns, _| {
                lab.within(netns, || run("ip", &["link", "set", "eth0", "down"]));
            }),
            ("doesn't match", |lab, netns, _| {
                lab.within(netns, || run("ip", &["link", "set", "eth0", "address", "02:00:00:00:00:01"]));
            }),
            ("is not attached", |_, _, result| {
                let host_end = result["interfaces"][1]["name"].as_str().unwrap();
                run("ip", &["link", "set", host_end, "nomaster"]);
            }),
            ("masquerading", |_, _, _| {
                run("nft", &["flush", "map", "inet", "coracle_cni", "masquerade4"]);
            }),
            ("Failed to find address", |lab, _, _| {
                std::fs::remove_file(lab.path("ipam/net/10.77.0.2")).unwrap();
                std::fs::remove_file(lab.path("ipam/net/fd77::2")).unwrap();
            }),
        ];
        let bridge = Caller::bridge(lab);
        for (number, (complaint, tamper)) in tampers.iter().enumerate() {
            let _ = std::fs::remove_dir_all(lab.path("ipam"));
            let id = format!("c{number}");
            let netns = lab.netns(&id);
            let result = bridge.call("ADD", &id, &netns).unwrap();
            let check = bridge.with("prevResult", result.clone());
            check.call("CHECK", &id, &netns).unwrap();
            tamper(lab, &netns, &result);
            let error = check.call("CHECK", &id, &netns).unwrap_err();
            assert!(error["msg"].as_str().unwrap().contains(complaint), "{error}");
            bridge.call("DEL", &id, &netns).unwrap();
        }
    });
}

#[test]
fn results_have_the_shape_of_their_version() {
    in_lab(|lab| {
        let netns = lab.netns("a");
        for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
            let bridge = Caller::bridge(lab).with("cniVersion", json!(version));
            let result = bridge.call("ADD", "a", &netns).unwrap();
            assert_eq!(result["cniVersion"], version);
            assert_eq!(result["ips"][0].get("version").is_some(), version < "1.0.0");
            assert_eq!(result["ips"][0]["gateway"], "10.77.0.1");
            assert_eq!(result["interfaces"][2]["sandbox"], netns.to_str().unwrap());
            bridge.with("prevResult", result).call("DEL", "a", &netns).unwrap();
        }
        let versions = Caller::bridge(lab).call("VERSION", "a", &netns).unwrap();
        assert_eq!(versions["supportedVersions"].as_array().unwrap().last().unwrap(), "1.1.0");
    });
}

#[test]
fn failures_have_codes_and_leave_nothing() {
    in_lab(|lab| {
        let netns = lab.netns("a");
        let bridge = Caller::bridge(lab);
        let small = json!({ "type": "host-local", "dataDir": lab.path("ipam"), "subnet": "10.78.0.0/30" });
        let elsewhere = json!({ "type": "static-elsewhere" });
        for (caller, netns, code, message) in [
            (bridge.with("vlan", json!(5)), netns.as_path(), 2, "vlan"),
            (bridge.with("promiscMode", json!(true)), &netns, 7, "hairpin"),
            (bridge.with("cniVersion", json!("2.0.0")), &netns, 1, "incompatible"),
            (bridge.with("isGateway", json!("yes")), &netns, 7, "netconf"),
            (bridge.with("ipam", elsewhere), &netns, 999, "failed to find plugin"),
            (bridge.with("bridge", json!("lo")), &netns, 999, "not a bridge"),
            (Caller::bridge(lab), Path::new("/proc/none"), 3, "failed to open netns"),
        ] {
            let error = caller.call("ADD", "a", netns).unwrap_err();
            assert_eq!(error["code"], code, "{error}");
            assert!(error["msg"].as_str().unwrap().contains(message), "{error}");
            assert_eq!((reserved(lab).len(), veths().len()), (0, 0));
        }
        // An exhausted range, and an interface that is already there.
        let small = bridge.with("ipam", small).with("bridge", json!("lab1"));
        small.call("ADD", "a", &netns).unwrap();
        let error = small.call("ADD", "b", &lab.netns("b")).unwrap_err();
        assert!(error["msg"].as_str().unwrap().contains("no IP addresses available in range set"), "{error}");
        let error = bridge.call("ADD", "c", &netns).unwrap_err();
        assert!(error["msg"].as_str().unwrap().contains("already exists"), "{error}");
        assert_eq!(reserved(lab), ["10.78.0.2"]);
    });
}

#[test]
fn another_address_on_the_bridge_is_an_error_unless_forced() {
    in_lab(|lab| {
        let netns = lab.netns("a");
        run("ip", &["link", "add", "lab0", "type", "bridge"]);
        run("ip", &["address", "add", "10.99.0.1/16", "dev", "lab0"]);
        let bridge = Caller::bridge(lab);
        let error = bridge.call("ADD", "a", &netns).unwrap_err();
        assert!(
            error["msg"].as_str().unwrap().contains("already has an IP address different from"),
            "{error}"
        );
        assert_eq!((reserved(lab).len(), veths().len()), (0, 0));
        bridge.with("forceAddress", json!(true)).call("ADD", "a", &netns).unwrap();
        let shown = run("ip", &["address", "show", "lab0"]);
        assert!(shown.contains("10.77.0.1/16") && !shown.contains("10.99.0.1"), "{shown}");
    });
}
