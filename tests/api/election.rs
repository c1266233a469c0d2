//! Two servers on one etcd: exactly one of them acts, and when it dies the other does, 15 seconds later at most.

use coracle_informer::election::{LEASE_SECONDS, TAKEOVER_SECONDS};
use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

#[test]
fn the_other_server_takes_over() {
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let first = Server::with(&["--datastore", &store]);
    let second = first.beside(&["--datastore", &store]);
    let mut servers = vec![first, second];
    let leads = |server: &Server| {
        server.log().contains("leading") && server.log().contains("kube-controller-manager")
    };
    eventually("one server leads", Duration::from_secs(60), || servers.iter().any(leads));
    let kubectl = newest(&servers[1].kubeconfig());
    kubectl.run("create deployment before --image=i --replicas=2");
    let pods = |app: &str, kubectl: &coracle_tests::kubectl::Kubectl| {
        kubectl.run(&format!("get pods -l app={app} -o name")).lines().count()
    };
    eventually("pods are made", Duration::from_secs(60), || pods("before", &kubectl) == 2);
    assert_eq!(servers.iter().filter(|server| leads(server)).count(), 1, "exactly one acts");
    let holder =
        kubectl.run("get lease kube-controller-manager -n kube-system -o jsonpath={.spec.holderIdentity}");

    // A candidate waits for the time in the Lease and for one look at most, both of which are whole seconds on any machine.
    let held = kubectl
        .run("get lease kube-controller-manager -n kube-system -o jsonpath={.spec.leaseDurationSeconds}");
    let held: i64 = held.trim().parse().unwrap();
    assert!(held + (TAKEOVER_SECONDS - LEASE_SECONDS) <= 15, "a lease of {held} s");

    let leader = servers.iter().position(leads).unwrap();
    let mut dead = servers.remove(leader);
    let kubectl = newest(&servers[0].kubeconfig());
    dead.kill();
    let begun = Instant::now();
    kubectl.run("create deployment after --image=i --replicas=2");
    eventually("the other takes over", Duration::from_secs(60), || leads(&servers[0]));
    println!("took over after {:?}", begun.elapsed());
    eventually("its pods are made", Duration::from_secs(60), || pods("after", &kubectl) == 2);
    let next =
        kubectl.run("get lease kube-controller-manager -n kube-system -o jsonpath={.spec.holderIdentity}");
    assert_ne!(holder, next);
    assert_eq!(pods("before", &kubectl), 2, "nothing was done twice");
}

/// The leader is stopped in its tracks, as a machine that is suspended is. When it goes on, its memory is old.
#[test]
fn a_leader_that_was_suspended_does_not_act() {
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let first = Server::with(&["--datastore", &store]);
    let second = first.beside(&["--datastore", &store]);
    let servers = [first, second];
    let said = |server: &Server, what: &str| {
        server.log().lines().any(|line| line.contains(what) && line.contains("kube-controller-manager"))
    };
    let leads = |server: &Server| said(server, "leading");
    eventually("one server leads", Duration::from_secs(60), || servers.iter().any(leads));
    let [old, new] = match leads(&servers[0]) {
        true => [&servers[0], &servers[1]],
        false => [&servers[1], &servers[0]],
    };
    let kubectl = newest(&new.kubeconfig());
    let pods = || kubectl.run("get pods -l app=steady -o jsonpath={.items[*].metadata.uid}");
    let count = || pods().split_whitespace().count();
    kubectl.run("create deployment steady --image=i --replicas=3");
    eventually("pods are made", Duration::from_secs(60), || count() == 3);

    let process = Pid::from_raw(i32::try_from(old.pid()).unwrap());
    kill(process, Signal::SIGSTOP).unwrap();
    // What it has not seen: it would scale up again.
    kubectl.run("scale deployment steady --replicas=1");
    eventually("the other takes over", Duration::from_secs(60), || leads(new));
    eventually("and acts", Duration::from_secs(60), || count() == 1);
    let left = pods();
    kill(process, Signal::SIGCONT).unwrap();
    eventually("it notices", Duration::from_secs(60), || said(old, "no longer leading"));
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(pods(), left, "nothing was done by the one that was suspended");
    assert!(!said(new, "no longer leading"), "{}", new.log());
}
