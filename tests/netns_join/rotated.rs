//! The CA is replaced while a pod asks the API all the time, with the CA and the token that are mounted into it.

use super::failover::{READY, pod};
use super::{Machine, SERVER, WAIT, link, token};
use coracle_tests::kubectl::newest;
use coracle_tests::lab::in_lab;
use coracle_tests::pods::{self, archive, import};
use coracle_tests::server::Server;
use coracle_tests::{eventually, program};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints the status of the answer, the exit code of curl, and the number of CAs in the file.
const SCRIPT: &str = "S=/var/run/secrets/kubernetes.io/serviceaccount; \
    A=kubernetes.default.svc:$KUBERNETES_SERVICE_PORT; \
    while :; do \
    R=$(curl -s -m 20 -o /dev/null -w \"%{http_code} %{exitcode}\" --resolve $A:$KUBERNETES_SERVICE_HOST \
    --cacert $S/ca.crt -H \"Authorization: Bearer $(cat $S/token)\" https://$A/api); \
    echo $R $(grep -c BEGIN $S/ca.crt); sleep 0.1; done";

/// How the line of a request begins that was answered.
const WELL: &str = "200 0 ";

/// An image with curl and its libraries.
fn image(dir: &Path) -> PathBuf {
    let root = dir.join("root");
    pods::run(&format!(
        "mkdir -p {0}/bin && cp -L $(command -v curl) {0}/bin/curl || exit 1
         for file in $(ldd $(command -v curl) | grep -o '/[^ ]*'); do
         mkdir -p {0}$(dirname $file) && cp -L $file {0}$file || exit 1; done",
        root.display()
    ));
    archive(dir)
}

fn step(server: &Server, step: &str) -> Result<(), String> {
    let mut command = Command::new(program("coracle"));
    command.args(["certificate", "rotate-ca", step, "--data-dir"]).arg(server.data_dir());
    let output = command.output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// What the pod has printed, a line for each request.
struct Asked {
    log: PathBuf,
}

impl Asked {
    /// From the first answer on: when the pod starts, its node may not know the Service yet.
    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        // The last line may not be whole.
        let whole = text.rsplit_once('\n').map(|(whole, _)| whole).unwrap_or_default();
        let lines = whole.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
        lines.skip_while(|line| !line.starts_with(WELL)).map(str::to_owned).collect()
    }

    /// Waits until requests with so many CAs are answered, twenty of them.
    fn with_authorities(&self, count: usize) {
        let wanted = format!("{WELL}{count}");
        eventually(&wanted, WAIT, || {
            let lines = self.lines();
            assert_well(&lines);
            lines.len() >= 20 && lines[lines.len() - 20..].iter().all(|line| *line == wanted)
        });
    }
}

fn assert_well(lines: &[String]) {
    let refused = lines.iter().find(|line| !line.starts_with(WELL));
    assert!(refused.is_none(), "a request failed: {refused:?}");
}

#[test]
fn a_pod_is_never_refused_while_the_ca_is_replaced() {
    in_lab(|lab| {
        link();
        let server = Server::with(&["--bind", &format!("{SERVER}:0")]);
        let mut machine = Machine::new(lab, &server);
        import(&machine.dir.join("engine/images"), &image(&lab.dir));
        let (worked, said) = machine.join(&server.url(), &token(&server));
        assert!(worked, "{said}");
        machine.run();
        let kubectl = || newest(&server.kubeconfig());
        eventually("the machine is a ready node", WAIT, || kubectl().try_with(READY, "").out == "True");
        kubectl().run_with("apply --validate=false -f -", &pod("asking", SCRIPT));
        let uid = kubectl().run("get pod asking -o jsonpath={.metadata.uid}");
        let asked = Asked { log: machine.dir.join(format!("logs/default_asking_{uid}/c/0.log")) };
        asked.with_authorities(1);
        let container = || {
            kubectl().run(
                "get pod asking -o jsonpath={.status.containerStatuses[0].containerID}/\
                 {.status.containerStatuses[0].restartCount}",
            )
        };
        let before = container();
        assert!(before.ends_with("/0"), "{before}");

        step(&server, "prepare").unwrap();
        asked.with_authorities(2);
        step(&server, "switch").unwrap();
        asked.with_authorities(2);
        // Refused as long as the node has a certificate of the old CA.
        eventually("nothing uses the old CA", WAIT, || step(&server, "finish").is_ok());
        asked.with_authorities(1);
        assert_eq!(container(), before, "the pod was not started again");
        assert_eq!(kubectl().run(READY), "True");
    });
}
