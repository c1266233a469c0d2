#![allow(clippy::unwrap_used)]

use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, Record, RecordType};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::answer::{Answer, answer};
use super::lookup::{Endpoint, Owner, Port, Service, ServiceAddress, ServiceLookup};
use super::wire::{self, Packet};
use super::zone::Zone;

#[derive(Default)]
struct Fake {
    services: BTreeMap<(String, String), (Service, Vec<Endpoint>)>,
    incomplete: bool,
}

impl ServiceLookup for Fake {
    fn is_complete(&self) -> bool {
        !self.incomplete
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Service> {
        self.services.get(&(namespace.to_owned(), name.to_owned())).map(|(service, _)| service.clone())
    }

    fn endpoints(&self, namespace: &str, name: &str) -> Vec<Endpoint> {
        let found = self.services.get(&(namespace.to_owned(), name.to_owned()));
        found.map(|(_, endpoints)| endpoints.clone()).unwrap_or_default()
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        self.services.keys().any(|(of, _)| of == namespace)
    }

    fn owners(&self, address: IpAddr) -> Vec<Owner> {
        let mut owners = Vec::new();
        for ((namespace, service), (of, endpoints)) in &self.services {
            let owner = |endpoint| Owner { namespace: namespace.clone(), service: service.clone(), endpoint };
            if matches!(&of.reach, ServiceAddress::Addresses(list) if list.contains(&address)) {
                owners.push(owner(None));
            }
            let here = endpoints.iter().filter(|endpoint| endpoint.address == address);
            owners.extend(here.map(|endpoint| owner(Some(endpoint.label()))));
        }
        owners
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn port(name: &str, protocol: &str, number: u16) -> Port {
    Port { name: name.into(), protocol: protocol.into(), number }
}

fn endpoint(address: &str, hostname: Option<&str>, ports: &[Port]) -> Endpoint {
    Endpoint { address: ip(address), hostname: hostname.map(str::to_owned), ports: ports.to_vec() }
}

fn cluster() -> Fake {
    let mut fake = Fake::default();
    let mut add =
        |namespace: &str, name: &str, reach: ServiceAddress, ports: &[Port], endpoints: Vec<Endpoint>| {
            let service = Service { reach, ports: ports.to_vec() };
            fake.services.insert((namespace.into(), name.into()), (service, endpoints));
        };
    let web = [port("http", "TCP", 80), port("dns", "UDP", 53)];
    add(
        "default",
        "web",
        ServiceAddress::Addresses(vec![ip("10.96.0.5"), ip("fd00:96::5")]),
        &web,
        vec![endpoint("10.0.0.1", None, &[port("http", "TCP", 8080)])],
    );
    add("default", "plain", ServiceAddress::Addresses(vec![ip("10.96.0.6")]), &[port("", "TCP", 80)], vec![]);
    let db = [port("db", "TCP", 5432)];
    add(
        "data",
        "db",
        ServiceAddress::Headless,
        &db,
        vec![
            endpoint("10.0.1.1", Some("db-0"), &db),
            endpoint("10.0.1.2", Some("db-1"), &db),
            endpoint("10.0.1.3", None, &db),
            endpoint("fd00::3", None, &db),
        ],
    );
    add("data", "empty", ServiceAddress::Headless, &db, vec![]);
    add("default", "ext", ServiceAddress::Alias("www.example.org".into()), &[], vec![]);
    add("default", "inner", ServiceAddress::Alias("web.default.svc.cluster.local".into()), &[], vec![]);
    add("default", "chain", ServiceAddress::Alias("ext.default.svc.cluster.local.".into()), &[], vec![]);
    add("default", "loop", ServiceAddress::Alias("loop.default.svc.cluster.local".into()), &[], vec![]);
    add("default", "digits", ServiceAddress::Alias("192.0.2.1".into()), &[], vec![]);
    fake
}

fn zone() -> Zone {
    Zone::new("cluster.local", vec![ip("10.96.0.10")]).unwrap()
}

fn query(name: &str, kind: RecordType) -> Message {
    let mut query = Message::query();
    query.metadata.recursion_desired = true;
    query.queries.push(Query::query(Name::from_ascii(name).unwrap(), kind));
    query
}

fn data(record: &Record) -> String {
    format!("{} {}", record.record_type(), record.data)
}

/// Everything of an answer on one line.
fn line(answer: &Answer) -> String {
    let (message, rest) = match answer {
        Answer::Reply(message) => (message, String::new()),
        Answer::Elsewhere(message, name) => (message, format!(" then {name}")),
        Answer::Forward(_) => return "forward".into(),
    };
    let mut answers: Vec<String> = message.answers.iter().map(data).collect();
    answers.sort();
    let code = match (message.response_code, answers.is_empty()) {
        (ResponseCode::NoError, true) => "NODATA".to_owned(),
        (ResponseCode::NoError, false) => String::new(),
        (code, _) => format!("{code:?} "),
    };
    format!("{code}{}{rest}", answers.join(", ")).trim().to_owned()
}

#[test]
fn every_kind_of_name() {
    use RecordType::{A, AAAA, ANY, CNAME, MX, NS, PTR, SOA, SRV, TXT};
    let web_aaaa = "AAAA fd00:96::5";
    let soa = "SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5";
    for (name, kind, want) in [
        // Services with addresses.
        ("web.default.svc.cluster.local.", A, "A 10.96.0.5"),
        ("web.default.svc.cluster.local.", AAAA, web_aaaa),
        ("WEB.Default.sVc.Cluster.LOCAL.", A, "A 10.96.0.5"),
        ("web.default.svc.cluster.local.", MX, "NODATA"),
        ("web.default.svc.cluster.local.", ANY, "A 10.96.0.5, AAAA fd00:96::5"),
        ("plain.default.svc.cluster.local.", AAAA, "NODATA"),
        ("missing.default.svc.cluster.local.", A, "NXDomain"),
        ("web.other.svc.cluster.local.", A, "NXDomain"),
        // Search paths that lead nowhere.
        ("web.default.svc.cluster.local.default.svc.cluster.local.", A, "NXDomain"),
        ("example.org.default.svc.cluster.local.", A, "NXDomain"),
        ("example.org.svc.cluster.local.", A, "NXDomain"),
        ("example.org.cluster.local.", A, "NXDomain"),
        // Ports.
        ("_http._tcp.web.default.svc.cluster.local.", SRV, "SRV 0 100 80 web.default.svc.cluster.local."),
        ("_DNS._UDP.web.default.svc.cluster.local.", SRV, "SRV 0 100 53 web.default.svc.cluster.local."),
        ("_http._udp.web.default.svc.cluster.local.", SRV, "NXDomain"),
        ("_none._tcp.web.default.svc.cluster.local.", SRV, "NXDomain"),
        ("http.tcp.web.default.svc.cluster.local.", SRV, "NXDomain"),
        ("_http._tcp.web.default.svc.cluster.local.", A, "NODATA"),
        ("_tcp.web.default.svc.cluster.local.", A, "NODATA"),
        ("_sctp.web.default.svc.cluster.local.", A, "NXDomain"),
        ("_._tcp.plain.default.svc.cluster.local.", SRV, "NXDomain"),
        (
            "web.default.svc.cluster.local.",
            SRV,
            "SRV 0 100 53 web.default.svc.cluster.local., SRV 0 100 80 web.default.svc.cluster.local.",
        ),
        // Headless ones.
        ("db.data.svc.cluster.local.", A, "A 10.0.1.1, A 10.0.1.2, A 10.0.1.3"),
        ("db.data.svc.cluster.local.", AAAA, "AAAA fd00::3"),
        ("empty.data.svc.cluster.local.", A, "NODATA"),
        ("db-0.db.data.svc.cluster.local.", A, "A 10.0.1.1"),
        ("db-0.db.data.svc.cluster.local.", AAAA, "NODATA"),
        ("DB-1.db.data.svc.cluster.local.", A, "A 10.0.1.2"),
        ("db-2.db.data.svc.cluster.local.", A, "NXDomain"),
        ("10-0-1-3.db.data.svc.cluster.local.", A, "A 10.0.1.3"),
        ("fd00--3.db.data.svc.cluster.local.", AAAA, "AAAA fd00::3"),
        ("10-0-0-1.web.default.svc.cluster.local.", A, "A 10.0.0.1"),
        ("x.db-0.db.data.svc.cluster.local.", A, "NXDomain"),
        (
            "_db._tcp.db.data.svc.cluster.local.",
            SRV,
            "SRV 0 25 5432 10-0-1-3.db.data.svc.cluster.local., SRV 0 25 5432 db-0.db.data.svc.cluster.local., \
             SRV 0 25 5432 db-1.db.data.svc.cluster.local., SRV 0 25 5432 fd00--3.db.data.svc.cluster.local.",
        ),
        // Pods by address.
        ("10-0-0-1.default.pod.cluster.local.", A, "A 10.0.0.1"),
        ("10-0-0-1.default.pod.cluster.local.", AAAA, "NODATA"),
        ("fd00--1.default.pod.cluster.local.", AAAA, "AAAA fd00::1"),
        ("10-0-0-256.default.pod.cluster.local.", A, "NXDomain"),
        ("pod-1.default.pod.cluster.local.", A, "NXDomain"),
        ("10-0-0-1.nobody.pod.cluster.local.", A, "NXDomain"),
        ("nobody.pod.cluster.local.", A, "NXDomain"),
        // Other names.
        ("ext.default.svc.cluster.local.", CNAME, "CNAME www.example.org."),
        ("ext.default.svc.cluster.local.", A, "CNAME www.example.org. then www.example.org."),
        ("inner.default.svc.cluster.local.", AAAA, "AAAA fd00:96::5, CNAME web.default.svc.cluster.local."),
        (
            "chain.default.svc.cluster.local.",
            A,
            "CNAME ext.default.svc.cluster.local., CNAME www.example.org. then www.example.org.",
        ),
        ("digits.default.svc.cluster.local.", A, "NODATA"),
        ("x.ext.default.svc.cluster.local.", A, "NXDomain"),
        // Addresses back to names.
        ("5.0.96.10.in-addr.arpa.", PTR, "PTR web.default.svc.cluster.local."),
        ("2.1.0.10.IN-ADDR.arpa.", PTR, "PTR db-1.db.data.svc.cluster.local."),
        ("3.1.0.10.in-addr.arpa.", PTR, "PTR 10-0-1-3.db.data.svc.cluster.local."),
        ("5.0.96.10.in-addr.arpa.", A, "NODATA"),
        (
            "5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.0.d.f.ip6.arpa.",
            PTR,
            "PTR web.default.svc.cluster.local.",
        ),
        ("1.2.0.192.in-addr.arpa.", PTR, "forward"),
        ("96.10.in-addr.arpa.", PTR, "forward"),
        // The zone itself.
        ("cluster.local.", SOA, soa),
        ("cluster.local.", NS, "NS ns.dns.cluster.local."),
        ("cluster.local.", A, "NODATA"),
        ("ns.dns.cluster.local.", A, "A 10.96.0.10"),
        ("dns-version.cluster.local.", TXT, "TXT 1.1.0"),
        ("dns-version.cluster.local.", A, "NODATA"),
        ("svc.cluster.local.", A, "NODATA"),
        ("default.svc.cluster.local.", A, "NODATA"),
        ("nowhere.svc.cluster.local.", A, "NXDomain"),
        ("pod.cluster.local.", A, "NODATA"),
        ("other.cluster.local.", A, "NXDomain"),
        // Everything else.
        ("example.org.", A, "forward"),
        ("notcluster.local.", A, "forward"),
        ("local.", SOA, "forward"),
        (".", NS, "forward"),
    ] {
        let got = answer(&zone(), &query(name, kind), &cluster(), 0);
        assert_eq!(line(&got), want, "{name} {kind}");
        if let Answer::Reply(reply) = got {
            assert!(reply.authoritative && reply.recursion_available && reply.recursion_desired, "{name}");
            let names = reply.queries.iter().all(|q| q.name.eq_case(&Name::from_ascii(name).unwrap()));
            assert!(names, "{name}: the question comes back as it was asked");
            let negative = reply.answers.is_empty();
            assert_eq!(
                reply.authorities.iter().map(data).collect::<Vec<_>>().join(""),
                if negative { soa } else { "" }
            );
        }
    }
}

#[test]
fn targets_come_with_their_addresses() {
    let name = "_db._tcp.db.data.svc.cluster.local.";
    let Answer::Reply(reply) = answer(&zone(), &query(name, RecordType::SRV), &cluster(), 0) else {
        panic!()
    };
    let more: Vec<String> = reply.additionals.iter().map(|r| format!("{} {}", r.name, data(r))).collect();
    assert_eq!(more.len(), 4);
    assert_eq!(more[0], "db-0.db.data.svc.cluster.local. A 10.0.1.1");
}

#[test]
fn addresses_take_turns() {
    let firsts: Vec<String> = (0..4)
        .map(|turn| {
            let query = query("db.data.svc.cluster.local.", RecordType::A);
            let Answer::Reply(reply) = answer(&zone(), &query, &cluster(), turn) else { panic!() };
            assert_eq!(reply.answers.len(), 3);
            data(&reply.answers[0])
        })
        .collect();
    assert_eq!(firsts, ["A 10.0.1.1", "A 10.0.1.2", "A 10.0.1.3", "A 10.0.1.1"]);
}

#[test]
fn what_is_not_answered() {
    let code = |query: &Message, view: &Fake| match answer(&zone(), query, view, 0) {
        Answer::Reply(reply) => reply.response_code,
        other => panic!("{other:?}"),
    };
    let full = cluster();
    let incomplete = Fake { incomplete: true, ..Fake::default() };
    let web = query("web.default.svc.cluster.local.", RecordType::A);
    assert_eq!(code(&web, &incomplete), ResponseCode::ServFail, "not known yet is not 'no such name'");
    assert_eq!(code(&query("loop.default.svc.cluster.local.", RecordType::A), &full), ResponseCode::ServFail);
    assert_eq!(code(&query("cluster.local.", RecordType::AXFR), &full), ResponseCode::Refused);
    let mut chaos = query("version.bind.", RecordType::TXT);
    chaos.queries[0].query_class = DNSClass::CH;
    assert_eq!(code(&chaos, &full), ResponseCode::Refused);
    let mut new = web.clone();
    let mut edns = Edns::new();
    edns.set_version(1);
    new.edns = Some(edns);
    assert_eq!(code(&new, &full), ResponseCode::BADVERS);
}

#[test]
fn long_answers_are_cut() {
    let mut view = cluster();
    let many = (0..200).map(|n| endpoint(&format!("10.1.0.{n}"), None, &[]));
    let service = Service { reach: ServiceAddress::Headless, ports: vec![] };
    view.services.insert(("default".into(), "many".into()), (service, many.collect()));
    let mut query = query("many.default.svc.cluster.local.", RecordType::A);
    for (size, limit) in [(None, 512), (Some(100), 512), (Some(1232), 1232), (Some(4096), 1232)] {
        query.edns = size.map(|size| {
            let mut edns = Edns::new();
            edns.set_max_payload(size);
            edns
        });
        let Answer::Reply(mut reply) = answer(&zone(), &query, &view, 0) else { panic!() };
        assert_eq!(wire::datagram_limit(&query), limit);
        let bytes = wire::write(&mut reply, limit);
        let got = Message::from_vec(&bytes).unwrap();
        assert!(
            got.truncation && bytes.len() <= limit && bytes.len() + 16 > limit,
            "{size:?}: {}",
            bytes.len()
        );
        assert_eq!(got.edns.is_some(), size.is_some());
    }
    let Answer::Reply(mut reply) = answer(&zone(), &query, &view, 0) else { panic!() };
    let whole = Message::from_vec(&wire::write(&mut reply, 65535)).unwrap();
    assert!(!whole.truncation && whole.answers.len() == 200);
    // What was not asked for goes first, without a mark.
    let Answer::Reply(mut reply) =
        answer(&zone(), &self::query("_db._tcp.db.data.svc.cluster.local.", RecordType::SRV), &cluster(), 0)
    else {
        panic!()
    };
    let length = wire::write(&mut reply, 65535).len();
    let cut = Message::from_vec(&wire::write(&mut reply, length - 1)).unwrap();
    assert!(!cut.truncation && cut.answers.len() == 4 && cut.additionals.is_empty());
}

/// A packet through everything that is not a socket; what would be sent.
fn pass(bytes: &[u8], view: &Fake) -> Option<Vec<u8>> {
    let (mut reply, limit) = match wire::read(bytes) {
        Packet::Ignored => return None,
        Packet::Refused(reply) => (*reply, 512),
        Packet::Query(query) => match answer(&zone(), &query, view, 3) {
            Answer::Reply(reply) | Answer::Elsewhere(reply, _) | Answer::Forward(reply) => {
                (reply, wire::datagram_limit(&query))
            }
        },
    };
    Some(wire::write(&mut reply, limit))
}

/// Runs for `CORACLE_FUZZ_SECONDS` where that is set, else for a number of rounds; `CORACLE_FUZZ_SEED` repeats a run.
#[test]
fn fuzz_garbage_is_survived() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("CORACLE_FUZZ_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64 | 1
    });
    println!("CORACLE_FUZZ_SEED={seed}");
    let seconds = number("CORACLE_FUZZ_SECONDS").map(Duration::from_secs);
    let view = cluster();
    let seeds = [
        query("web.default.svc.cluster.local.", RecordType::A),
        query("_db._tcp.db.data.svc.cluster.local.", RecordType::SRV),
        query("5.0.96.10.in-addr.arpa.", RecordType::PTR),
        query("example.org.", RecordType::ANY),
    ];
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec().unwrap()).collect();
    let mut state = seed;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let begun = Instant::now();
    let mut answered = 0;
    for round in 0_usize.. {
        let over = seconds.map_or(round >= 40_000, |seconds| begun.elapsed() > seconds);
        if over {
            println!("{round} packets, {answered} answered");
            break;
        }
        let mut packet = match round % 4 {
            // Noise.
            0 => (0..random() % 600).map(|_| random() as u8).collect(),
            // A query with bytes changed, cut, or more behind it.
            way => {
                let mut packet = seeds[(random() % 4) as usize].clone();
                for _ in 0..random() % 4 {
                    let at = (random() as usize) % packet.len();
                    packet[at] = random() as u8;
                }
                match way {
                    2 => packet.truncate((random() as usize) % (packet.len() + 1)),
                    3 => packet.extend((0..random() % 80).map(|_| random() as u8)),
                    _ => {}
                }
                packet
            }
        };
        if round % 8 == 0 && packet.len() > 12 {
            // Looks like a query with one question.
            packet[2..12].copy_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        }
        if let Some(reply) = pass(&packet, &view) {
            answered += 1;
            assert!(reply.len() >= 12 && reply.len() <= 1232, "{packet:02x?}");
            assert_eq!(reply[..2], packet[..2], "the number comes back");
            assert!(reply[2] & 0x80 != 0, "it is an answer: two servers must not talk for ever");
            assert!(pass(&reply, &view).is_none());
        }
    }
    assert!(answered > 10_000);
    // Pointers in circles, and counts of what is not there.
    let mut circle = seeds[0].clone();
    circle[12..14].copy_from_slice(&[0xc0, 12]);
    assert!(pass(&circle, &view).is_some_and(|reply| reply[3] & 15 == 1));
    let mut many = seeds[0].clone();
    many[4..6].copy_from_slice(&[0xff, 0xff]);
    assert!(pass(&many, &view).is_some_and(|reply| reply[3] & 15 == 1));
}
