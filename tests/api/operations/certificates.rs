//! `coracle certificate check` and `rotate`, with a server that runs.

use super::{coracle, well};
use coracle_tests::caller::Caller;
use coracle_tests::server::Server;
use serde_json::Value;

/// The certificate of a file in the answer of `check`.
fn certificate<'a>(json: &'a Value, file: &str) -> &'a Value {
    let all = json["certificates"].as_array().unwrap();
    let found = all.iter().find(|one| one["file"].as_str().unwrap().starts_with(file));
    found.unwrap_or_else(|| panic!("{file}: {json}"))
}

#[test]
fn certificates_are_checked_and_renewed_under_an_open_watch() {
    let server = Server::start();
    let before = well(&server, &["certificate", "check", "-o", "json"]).json();
    assert!(certificate(&before, "apiserver.crt")["daysLeft"].as_i64().unwrap() >= 364);
    assert_eq!(certificate(&before, "served")["serial"], certificate(&before, "apiserver.crt")["serial"]);
    assert_eq!(certificate(&before, "admin.crt")["subject"], "CN=kubernetes-admin, O=system:masters");
    let said = well(&server, &["certificate", "check"]);
    assert!(said.out.contains("names of apiserver.crt: ") && said.out.contains("kubernetes.default.svc"));
    // All of them expire within ten years.
    let strict = coracle(&server, &["certificate", "check", "--days", "4000"]);
    assert!(!strict.ok && strict.out.contains("problem: ca.crt expires in "), "{}", strict.out);

    let mut watch = Caller::admin(&server).watch("/api/v1/configmaps?watch=true");
    let rotated = well(&server, &["certificate", "rotate", "-o", "json"]).json();
    let states: Vec<_> = rotated.as_array().unwrap().iter().map(|one| one["inUse"].as_bool()).collect();
    assert_eq!(states, [Some(true), Some(true), None], "{rotated}");
    let after = well(&server, &["certificate", "check", "-o", "json"]).json();
    for file in ["apiserver.crt", "admin.crt", "front-proxy-client.crt", "served"] {
        let (old, new) = (certificate(&before, file), certificate(&after, file));
        assert_ne!(old["serial"], new["serial"], "{file}");
        assert_eq!((&old["subject"], &old["names"]), (&new["subject"], &new["names"]), "{file}");
    }
    assert_eq!(certificate(&before, "ca.crt")["serial"], certificate(&after, "ca.crt")["serial"]);
    well(&server, &["status"]);
    assert!(!watch.over(), "the watch goes on");

    let only = well(&server, &["certificate", "rotate", "admin"]);
    assert!(only.out.contains("renewed and in use") && !only.out.contains("apiserver"), "{}", only.out);
    let unknown = coracle(&server, &["certificate", "rotate", "ca"]);
    assert!(!unknown.ok && unknown.err.contains("\"ca\" cannot be renewed"), "{}", unknown.err);
}

#[test]
fn certificates_of_a_stopped_server_are_renewed_for_its_next_start() {
    let mut server = Server::start();
    server.stop();
    let said = well(&server, &["certificate", "rotate"]);
    assert!(said.out.contains("no server runs"), "{}", said.out);
    let said = well(&server, &["certificate", "check"]);
    assert!(said.out.contains("is not known"), "{}", said.out);
    server.restart();
    well(&server, &["status"]);
    // A file that holds no certificate is a problem, and named.
    std::fs::write(server.data_dir().join("pki/other.crt"), "nothing").unwrap();
    let said = coracle(&server, &["certificate", "check"]);
    assert!(!said.ok && said.out.contains("other.crt"), "{}", said.out);
}

#[test]
fn certificates_that_live_shortly_are_reported() {
    let server = Server::with(&["--certificate-lifetime-seconds", "864000"]);
    let said = coracle(&server, &["certificate", "check", "-o", "json"]);
    assert!(!said.ok, "{}", said.out);
    // Within the second of its start, the days are still ten.
    let soon = ["apiserver.crt expires in 9 days", "apiserver.crt expires in 10 days"];
    assert!(said.problems().iter().any(|problem| soon.contains(&problem.as_str())), "{}", said.out);
    well(&server, &["status"]);
    well(&server, &["certificate", "check", "--days", "5"]);
}
