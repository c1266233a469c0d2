#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::*;

fn call(dir: &Path, id: &str, ipam: Value, extra: Value) -> Call {
    let mut config = json!({ "cniVersion": "1.1.0", "name": "net", "ipam": ipam });
    config["ipam"]["type"] = "host-local".into();
    config["ipam"]["dataDir"] = dir.to_str().unwrap().into();
    for (key, value) in extra.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    Call {
        container_id: id.into(),
        ifname: "eth0".into(),
        version: "1.1.0".into(),
        network: "net".into(),
        config,
        ..Call::default()
    }
}

fn add(dir: &Path, id: &str, ipam: &Value) -> Result<Vec<String>> {
    let result = HostLocal.add(&call(dir, id, ipam.clone(), json!({})))?;
    Ok(result.ips.iter().map(|ip| ip.address.to_string()).collect())
}

#[test]
fn addresses_are_given_round_robin_and_the_gateway_never() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = json!({ "subnet": "10.1.2.0/29" });
    for (id, expected) in [("a", 2), ("b", 3), ("c", 4)] {
        assert_eq!(add(dir.path(), id, &ipam).unwrap(), [format!("10.1.2.{expected}/29")]);
    }
    HostLocal.del(&call(dir.path(), "a", ipam.clone(), json!({}))).unwrap();
    HostLocal.del(&call(dir.path(), "a", ipam.clone(), json!({}))).unwrap();
    for (id, expected) in [("d", 5), ("e", 6), ("f", 2)] {
        assert_eq!(add(dir.path(), id, &ipam).unwrap(), [format!("10.1.2.{expected}/29")]);
    }
    let error = add(dir.path(), "g", &ipam).unwrap_err();
    assert_eq!(error.message, "no IP addresses available in range set: 10.1.2.1-10.1.2.6");
}

#[test]
fn files_are_those_of_other_host_locals() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = json!({ "subnet": "10.1.2.0/24" });
    add(dir.path(), "a", &ipam).unwrap();
    let net = dir.path().join("net");
    assert_eq!(fs::read_to_string(net.join("10.1.2.2")).unwrap(), "a\r\neth0");
    assert_eq!(fs::read_to_string(net.join("last_reserved_ip.0")).unwrap(), "10.1.2.2");
    // Theirs: taken, and an empty one from a crash.
    fs::write(net.join("10.1.2.3"), "other\r\neth0").unwrap();
    fs::write(net.join("10.1.2.4"), "").unwrap();
    assert_eq!(add(dir.path(), "b", &ipam).unwrap(), ["10.1.2.4/24"]);
    assert_eq!(fs::read_dir(&net).unwrap().count(), 5, "no temporary file is left");
}

#[test]
fn several_sets_ranges_routes_and_dns() {
    let dir = tempfile::tempdir().unwrap();
    let resolv = dir.path().join("resolv.conf");
    fs::write(&resolv, "# x\nnameserver 1.1.1.1\nsearch a b\noptions ndots:5\n").unwrap();
    let ipam = json!({
        "ranges": [
            [{ "subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.9", "gateway": "10.0.0.254" },
             { "subnet": "10.0.1.0/24" }],
            [{ "subnet": "fd00::/64" }],
        ],
        "routes": [{ "dst": "0.0.0.0/0" }],
        "resolvConf": resolv.to_str().unwrap(),
    });
    let result = HostLocal.add(&call(dir.path(), "a", ipam.clone(), json!({}))).unwrap();
    assert_eq!(result.ips[0].address.to_string(), "10.0.0.9/24");
    assert_eq!(result.ips[0].gateway.unwrap().to_string(), "10.0.0.254");
    assert_eq!(result.ips[1].address.to_string(), "fd00::2/64");
    assert_eq!(result.routes.len(), 1);
    assert_eq!((result.dns.nameservers.len(), result.dns.search.len(), result.dns.options.len()), (1, 2, 1));
    assert_eq!(add(dir.path(), "b", &ipam).unwrap(), ["10.0.1.2/24", "fd00::3/64"]);
}

#[test]
fn requested_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = json!({ "subnet": "10.0.0.0/24" });
    let ask = |id: &str, ip: &str| {
        HostLocal.add(&call(dir.path(), id, ipam.clone(), json!({ "runtimeConfig": { "ips": [ip] } })))
    };
    assert_eq!(ask("a", "10.0.0.77").unwrap().ips[0].address.to_string(), "10.0.0.77/24");
    for (ip, message) in [
        ("10.0.0.77", "is not available"),
        ("10.0.0.1", "is subnet's gateway"),
        ("10.9.9.9", "failed to allocate all requested IPs: 10.9.9.9"),
        ("bad", "invalid requested IP"),
    ] {
        let error = ask("b", ip).unwrap_err();
        assert!(error.message.contains(message), "{error}");
    }
    assert_eq!(fs::read_dir(dir.path().join("net")).unwrap().count(), 3, "failures give back what they took");
}

#[test]
fn duplicates_are_refused_check_and_gc_see_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = json!({ "subnet": "10.0.0.0/24" });
    add(dir.path(), "a", &ipam).unwrap();
    add(dir.path(), "b", &ipam).unwrap();
    assert!(add(dir.path(), "a", &ipam).unwrap_err().message.contains("duplicate allocation"));
    let keep = json!({ "cni.dev/valid-attachments": [{ "containerID": "b", "ifname": "eth0" }] });
    HostLocal.gc(&call(dir.path(), "", ipam.clone(), keep)).unwrap();
    assert_eq!(HostLocal.check(&call(dir.path(), "a", ipam.clone(), json!({}))).unwrap_err().code, 3);
    HostLocal.check(&call(dir.path(), "b", ipam, json!({}))).unwrap();
}

#[test]
fn configurations_that_make_no_sense() {
    let dir = tempfile::tempdir().unwrap();
    for (ipam, message) in [
        (json!({}), "no IP ranges specified"),
        (json!({ "subnet": "10.0.0.0/31" }), "too small"),
        (json!({ "subnet": "10.0.0.1/24" }), "host bits set"),
        (json!({ "subnet": "10.0.0.0" }), "invalid CIDR"),
        (json!({ "subnet": "10.0.0.0/24", "rangeStart": "10.0.1.1" }), "RangeStart 10.0.1.1 not in network"),
        (json!({ "subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8" }), "is after"),
        (
            json!({ "ranges": [[{ "subnet": "10.0.0.0/24" }, { "subnet": "fd00::/64" }]] }),
            "mixed address families",
        ),
        (json!({ "ranges": [[{ "subnet": "10.0.0.0/24" }], [{ "subnet": "10.0.0.0/16" }]] }), "overlaps"),
    ] {
        let error = add(dir.path(), "a", &ipam).unwrap_err();
        assert_eq!(error.code, 7, "{error}");
        assert!(error.message.contains(message), "{error}");
    }
}
