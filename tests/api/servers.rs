//! Where the Service `kubernetes` leads: to all API servers that run, and to no others.

use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::server::Server;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(5);
const LEASES: &str = "get leases -n kube-system -l apiserver.kubernetes.io/identity=kube-apiserver";

fn endpoints(kubectl: &Kubectl) -> String {
    kubectl.run("get endpoints kubernetes -o jsonpath={.subsets[*].addresses[*].ip}")
}

fn slice(kubectl: &Kubectl) -> String {
    kubectl.run("get endpointslice kubernetes -o jsonpath={.endpoints[*].addresses[*]}")
}

fn lead_to(kubectl: &Kubectl, what: &str, within: Duration, expected: &str) {
    eventually(what, within, || endpoints(kubectl) == expected && slice(kubectl) == expected);
}

fn leases(kubectl: &Kubectl) -> usize {
    kubectl.run(&format!("{LEASES} -o name")).lines().count()
}

#[test]
fn all_running_servers_are_endpoints_and_no_others() {
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let first = Server::with(&["--api-only", "--datastore", &store, "--advertise", "192.0.2.1"]);
    let port = first.url().rsplit(':').next().unwrap().to_owned();
    let server = |number: u8| {
        let (bind, advertised) = (format!("127.0.0.{number}:{port}"), format!("192.0.2.{number}"));
        first.beside(&["--api-only", "--datastore", &store, "--bind", &bind, "--advertise", &advertised])
    };
    let (mut second, mut third) = (server(2), server(3));
    let kubectl = newest(&first.kubeconfig());
    lead_to(&kubectl, "all servers are published", SOON, "192.0.2.1 192.0.2.2 192.0.2.3");
    assert_eq!(leases(&kubectl), 3);

    third.stop();
    lead_to(&kubectl, "who stops leaves at once", SOON, "192.0.2.1 192.0.2.2");
    assert_eq!(leases(&kubectl), 2, "and takes its lease along");

    let version = || kubectl.run("get endpoints kubernetes -o jsonpath={.metadata.resourceVersion}");
    let before = version();
    kill(Pid::from_raw(second.pid() as i32), Signal::SIGUSR2).unwrap();
    eventually("the next program serves", Duration::from_secs(60), || {
        second.log().matches("serving").count() > 1
    });
    assert_eq!(version(), before, "who begins again stays published");
    assert_eq!(leases(&kubectl), 2);

    second.kill();
    assert_eq!(endpoints(&kubectl), "192.0.2.1 192.0.2.2", "its lease still holds");
    lead_to(&kubectl, "who dies leaves", Duration::from_secs(15), "192.0.2.1");
    second.restart();
    lead_to(&kubectl, "who comes back is published", SOON, "192.0.2.1 192.0.2.2");
    assert_eq!(leases(&kubectl), 2, "under the same lease");
}

#[test]
fn a_server_on_a_store_of_its_own_renews_nothing() {
    let flags = ["--api-only", "--datastore", "embedded", "--advertise", "192.0.2.1"];
    let mut server = Server::with(&flags);
    let kubectl = newest(&server.kubeconfig());
    lead_to(&kubectl, "the server is published", SOON, "192.0.2.1");
    let version = "-o jsonpath={.items[*].metadata.resourceVersion}";
    let versions = || {
        let rest = format!("get endpoints,endpointslices -n default {version}");
        (kubectl.run(&format!("{LEASES} {version}")), kubectl.run(&rest))
    };
    let before = versions();
    assert!(!before.0.is_empty() && !before.1.is_empty(), "{before:?}");
    // Longer than servers that share a store wait before they renew.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(versions(), before);
    let roles = || kubectl.run(&format!("get clusterrolebindings,roles,rolebindings -A {version}"));
    let roles_before = roles();
    kubectl.run(r#"patch clusterrole system:kube-dns --type merge -p {"rules":[]}"#);
    server.kill();
    server.restart();
    lead_to(&kubectl, "the server is published", SOON, "192.0.2.1");
    assert_eq!(versions().1, before.1, "a start changes nothing, either");
    assert_eq!(leases(&kubectl), 1);
    assert_eq!(roles(), roles_before);
    let completed = kubectl.run("get clusterrole system:kube-dns -o jsonpath={.rules[*].resources[*]}");
    assert_eq!(completed, "endpoints services endpoints services", "but a default role gets what it lacks");
}
