//! Two servers on one etcd: each is lost in turn, and neither the node nor a pod on it loses the API.

use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::lab::{in_lab, run};
use coracle_tests::pods::{IMAGE, archive, import};
use coracle_tests::server::Server;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Machine, SERVER, WAIT, link, token};

/// Where the second server is, and where none is.
const SECOND: &str = "198.51.100.3";
const NOBODY: &str = "198.51.100.9";
/// What the death of a process may cost a pod, and what the loss of a machine may.
const MOMENT: Duration = Duration::from_secs(2);
const SECONDS: Duration = Duration::from_secs(15);

pub const READY: &str = "get node machine-b -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
pub const RENEWED: &str = "get lease machine-b -n kube-node-lease -o jsonpath={.spec.renewTime}";
const PUBLISHED: &str = "get endpointslice kubernetes -o jsonpath={.endpoints[*].addresses[*]}";

/// A pod of the machine whose container runs a script.
pub fn pod(name: &str, script: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{nodeName: machine-b, \
         terminationGracePeriodSeconds: 1, containers: [{{name: c, image: {IMAGE}, imagePullPolicy: Never, \
         command: [sh, -c, '{script}']}}]}}}}"
    )
}

/// What a pod that connects to the Service `kubernetes` again and again has seen.
struct Caller {
    log: PathBuf,
}

impl Caller {
    fn start(kubectl: &Kubectl, machine: &Machine) -> Self {
        let script = "while :; do nc -w 1 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null >/dev/null 2>&1 \
                      && echo ok || echo failed; sleep 0.1; done";
        kubectl.run_with("apply --validate=false -f -", &pod("caller", script));
        let uid = kubectl.run("get pod caller -o jsonpath={.metadata.uid}");
        let caller = Self { log: machine.dir.join(format!("logs/default_caller_{uid}/c/0.log")) };
        eventually("the pod reaches the API", WAIT, || caller.seen().contains(&true));
        caller
    }

    /// Whether each attempt worked.
    fn seen(&self) -> Vec<bool> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter_map(|line| Some(line.splitn(4, ' ').nth(3)? == "ok")).collect()
    }

    /// Waits until twenty attempts in a row have worked: with one of two endpoints dead, half of them fail.
    fn reaches_the_api(&self, within: Duration) {
        let (begun, before) = (Instant::now(), self.seen().len());
        eventually("the pod reaches the API whenever it tries", within + Duration::from_secs(6), || {
            let seen = self.seen();
            seen.len() >= before + 20 && seen[seen.len() - 20..].iter().all(|worked| *worked)
        });
        let (lost, took) = (self.seen()[before..].iter().filter(|worked| !**worked).count(), begun.elapsed());
        println!("{lost} connections failed, all worked after {took:?} (twenty of them counted)");
    }
}

/// The node is told of new pods and renews its lease, at a server that `kubectl` talks to.
fn node_goes_on(kubectl: &Kubectl, name: &str) {
    let (before, begun) = (kubectl.run(RENEWED), Instant::now());
    kubectl.run_with("apply --validate=false -f -", &pod(name, "sleep 3600"));
    let phase = format!("get pod {name} -o jsonpath={{.status.phase}}");
    eventually("the node runs a new pod", WAIT, || kubectl.run(&phase) == "Running");
    println!("a new pod ran after {:?}", begun.elapsed());
    eventually("the node renews its lease", Duration::from_secs(40), || {
        assert_eq!(kubectl.run(READY), "True");
        kubectl.run(RENEWED) != before
    });
}

fn published(kubectl: &Kubectl, expected: &str, within: Duration) {
    eventually(expected, within, || {
        let mut found: Vec<String> = kubectl.run(PUBLISHED).split(' ').map(str::to_owned).collect();
        found.sort();
        found.join(" ") == expected
    });
}

#[test]
fn a_node_and_its_pods_survive_the_loss_of_any_server() {
    in_lab(|lab| {
        link();
        run("ip", &["addr", "add", &format!("{SECOND}/24"), "dev", "left"]);
        let etcd = Etcd::start();
        let store = format!("etcd://{}", etcd.address);
        let bind = |ip: &str| format!("{ip}:6443");
        let mut first = Server::with(&["--datastore", &store, "--bind", &bind(SERVER)]);
        let mut second = first.beside(&["--datastore", &store, "--bind", &bind(SECOND)]);
        let (at_first, at_second) = (newest(&first.kubeconfig()), newest(&second.kubeconfig()));
        let both = format!("{SERVER} {SECOND}");
        published(&at_first, &both, WAIT);

        let mut machine = Machine::new(lab, &first);
        import(&machine.dir.join("engine/images"), &archive(&lab.dir));
        let servers = format!("https://{NOBODY}:6443,{}", first.url());
        let (worked, said) = machine.join(&servers, &token(&first));
        assert!(worked, "{said}");
        machine.run();
        eventually("the machine is a ready node", WAIT, || at_first.try_with(READY, "").out == "True");
        let list = machine.dir.join("agent/servers");
        eventually("the servers are learned and kept", WAIT, || {
            std::fs::read_to_string(&list).is_ok_and(|text| text.contains(SECOND) && text.contains(NOBODY))
        });
        let caller = Caller::start(&at_first, &machine);
        caller.reaches_the_api(MOMENT);

        // Whichever of them the agent is connected to, one of these is it.
        first.kill();
        caller.reaches_the_api(MOMENT);
        node_goes_on(&at_second, "after-first");
        first.restart();
        published(&at_second, &both, WAIT);
        second.kill();
        caller.reaches_the_api(MOMENT);
        node_goes_on(&at_first, "after-second");
        second.restart();
        published(&at_first, &both, WAIT);
        caller.reaches_the_api(SECONDS);

        // A machine that is gone says nothing; its lease is still renewed here, so that nobody else withdraws it.
        for (lost, kubectl) in [(SECOND, &at_first), (SERVER, &at_second)] {
            run("nft", &["add", "table", "inet", "cut"]);
            run(
                "nft",
                &["add", "chain", "inet", "cut", "drops", "{ type filter hook prerouting priority -400; }"],
            );
            let rule =
                ["add", "rule", "inet", "cut", "drops", "iifname", "left", "ip", "daddr", lost, "drop"];
            run("nft", &rule);
            caller.reaches_the_api(SECONDS);
            node_goes_on(kubectl, &format!("without-{}", lost.rsplit('.').next().unwrap()));
            assert!(kubectl.run(PUBLISHED).contains(lost), "only the agent knows");
            run("nft", &["delete", "table", "inet", "cut"]);
            caller.reaches_the_api(Duration::from_secs(60));
        }
    });
}
