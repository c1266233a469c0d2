use std::path::Path;

use coracle_tests::lab::{in_lab, run};
use serde_json::json;

use crate::{
    bridge::{ask, serve},
    caller::{Caller, addresses, elements},
};

#[test]
fn ports_of_the_host_lead_to_the_container() {
    in_lab(|lab| {
        run("ip", &["address", "add", "192.0.2.1/32", "dev", "lo"]);
        let (server, client) = (lab.netns("server"), lab.netns("client"));
        let bridge = Caller::bridge(lab).with("ipMasq", json!(false));
        let result = bridge.call("ADD", "server", &server).unwrap();
        let client_address = &addresses(&bridge.call("ADD", "client", &client).unwrap())[0];
        serve(lab, &server, 80);

        let ports = json!({ "portMappings": [
            { "hostPort": 8080, "containerPort": 80, "protocol": "tcp" },
            { "hostPort": 8081, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1" },
        ] });
        let portmap =
            bridge.with("type", json!("portmap")).with("prevResult", result).with("runtimeConfig", ports);
        portmap.call("ADD", "server", &server).unwrap();
        portmap.call("CHECK", "server", &server).unwrap();

        assert_eq!(ask("127.0.0.1", 8080).unwrap(), "10.77.0.1", "from the host's loopback");
        assert!(ask("192.0.2.1", 8080).is_ok(), "by any address of the host");
        assert!(ask("192.0.2.1", 8081).is_ok(), "by the address asked for");
        assert!(ask("10.77.0.1", 8081).is_err(), "by no other");
        for netns in [&client, &server] {
            let seen = lab.within(netns, || ask("192.0.2.1", 8080).unwrap());
            assert_ne!(seen, *client_address, "neighbours come back the way they went");
            assert!(lab.within(netns, || ask("fd77::1", 8080)).is_ok(), "IPv6");
        }

        // Another container takes a port over that was left behind; the late DEL does not hurt it.
        let other = bridge.call("ADD", "other", &lab.netns("other")).unwrap();
        let takeover = portmap.with("prevResult", other);
        takeover.call("ADD", "other", Path::new("/proc/self/ns/net")).unwrap();
        portmap.call("DEL", "server", &server).unwrap();
        takeover.call("CHECK", "other", Path::new("/proc/self/ns/net")).unwrap();
        assert!(portmap.call("CHECK", "server", &server).is_err());
        for _ in 0..2 {
            takeover.call("DEL", "other", Path::new("")).unwrap();
        }
        assert_eq!(elements(), 0);
    });
}

/// UDP knows no end of a connection: a client that keeps sending is led to the container that has the port now.
#[test]
fn udp_clients_follow_the_port() {
    use std::net::UdpSocket;
    use std::time::Duration;
    in_lab(|lab| {
        let bridge = Caller::bridge(lab).with("ipMasq", json!(false));
        let ports = json!({ "portMappings": [{ "hostPort": 5300, "containerPort": 53, "protocol": "udp" }] });
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        // The answer to a question of this call: those to earlier ones may be late.
        let question = std::cell::Cell::new(0_u32);
        let ask = |tries: u32| {
            question.set(question.get() + 1);
            let asked = question.get().to_string();
            for _ in 0..tries {
                client.send_to(asked.as_bytes(), "127.0.0.1:5300").unwrap();
                let mut buffer = [0; 64];
                while let Ok(length) = client.recv(&mut buffer) {
                    let answer = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    if let Some(name) = answer.strip_suffix(&format!(" {asked}")) {
                        return Some(name.to_owned());
                    }
                }
            }
            None
        };
        let mut before = None;
        for name in ["first", "second"] {
            let netns = lab.netns(name);
            let result = bridge.call("ADD", name, &netns).unwrap();
            let server = lab.within(&netns, || UdpSocket::bind("0.0.0.0:53").unwrap());
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok((length, from)) = server.recv_from(&mut buffer) {
                    let asked = String::from_utf8_lossy(&buffer[..length]);
                    let _ = server.send_to(format!("{name} {asked}").as_bytes(), from);
                }
            });
            let tries = if before.is_some() { 60 } else { 1 };
            assert_eq!(ask(tries), before, "nobody, or the one before");
            let portmap = bridge
                .with("type", json!("portmap"))
                .with("prevResult", result)
                .with("runtimeConfig", ports.clone());
            portmap.call("ADD", name, &netns).unwrap();
            assert_eq!(ask(60).as_deref(), Some(name));
            before = Some(name.to_owned());
        }
    });
}
