//! A server that runs its own etcd: `--datastore etcd`.

use coracle_tests::caller::Caller;
use coracle_tests::etcd::free_port;
use coracle_tests::kubectl::newest;
use coracle_tests::managed::etcd_pid;
use coracle_tests::server::Server;
use coracle_tests::{eventually, program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Command, Output};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

/// The etcd of a server.
fn etcd_of(server: &Server) -> Option<Pid> {
    etcd_pid(server).map(|pid| Pid::from_raw(i32::try_from(pid).unwrap()))
}

fn coracle(server: &Server, args: &[&str]) -> Output {
    let mut command = Command::new(program("coracle"));
    command.args(args).arg("--data-dir").arg(server.data_dir()).output().unwrap()
}

fn errors(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_ready(server: &Server) -> bool {
    Caller::admin(server).send("GET", "/readyz", None).0 == 200
}

#[test]
fn a_server_runs_its_own_etcd() {
    let (client, peer) = (free_port().to_string(), free_port().to_string());
    let flags = ["--datastore", "etcd", "--etcd-client-port", &client, "--etcd-peer-port", &peer];
    let mut server = Server::with(&flags);
    let kubectl = newest(&server.kubeconfig());
    kubectl.run("create configmap kept --from-literal=a=1");
    let kept = |when: &str| {
        let value = kubectl.run("get configmap kept -o jsonpath={.data.a}");
        assert_eq!(value, "1", "{when}");
    };

    // Nobody without a certificate of its own authority talks to it.
    for port in [&client, &peer] {
        let stranger = |more: &[&str]| {
            let url = format!("https://127.0.0.1:{port}/version");
            Command::new("curl")
                .args(["-sk", "--http1.1", "--max-time", "10", &url])
                .args(more)
                .output()
                .unwrap()
                .status
        };
        let pki = server.data_dir().join("pki");
        let file = |name: &str| pki.join(name).display().to_string();
        assert!(!stranger(&[]).success(), "{port}");
        assert!(!stranger(&["--cert", &file("admin.crt"), "--key", &file("admin.key")]).success(), "{port}");
        let known = stranger(&["--cert", &file("etcd-client.crt"), "--key", &file("etcd-client.key")]);
        assert!(known.success(), "{port}");
    }

    // Its members, as an operator sees them.
    let listed = coracle(&server, &["member", "ls", "-o", "json"]);
    let members: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let members = members.as_array().unwrap();
    assert_eq!((members.len(), &members[0]["leader"]), (1, &true.into()), "{members:?}");
    let name = members[0]["name"].as_str().unwrap();
    let table = String::from_utf8(coracle(&server, &["member", "ls"]).stdout).unwrap();
    assert!(table.starts_with("NAME") && table.contains(name) && table.contains("leader"), "{table}");
    let refused = errors(&coracle(&server, &["member", "remove", name]));
    assert!(refused.contains("only voting member"), "{refused}");
    let unknown = errors(&coracle(&server, &["member", "remove", "nobody"]));
    assert!(unknown.contains("there is no member nobody") && unknown.contains(name), "{unknown}");

    // An etcd that dies is started again.
    let etcd = etcd_of(&server).unwrap();
    kill(etcd, Signal::SIGKILL).unwrap();
    eventually("etcd is started again", WAIT, || etcd_of(&server).is_some_and(|pid| pid != etcd));
    eventually("the server is ready again", WAIT, || is_ready(&server));
    kept("after the death of etcd");
    assert!(server.log().contains("etcd has ended, will restart"), "{}", server.log());

    // It does not outlive the server, however that ends.
    server.kill();
    eventually("etcd has ended", WAIT, || etcd_of(&server).is_none());
    server.restart();
    kept("after the server was killed");
    let refused = errors(&coracle(&server, &["server", "--datastore", "etcd", "--cluster-reset"]));
    assert!(refused.contains("a server runs on"), "{refused}");
    server.stop();
    assert!(etcd_of(&server).is_none(), "a clean stop ends etcd");

    // A reset keeps what is there.
    let reset = coracle(&server, &["server", "--datastore", "etcd", "--cluster-reset"]);
    let said = String::from_utf8_lossy(&reset.stdout).into_owned();
    assert!(reset.status.success() && said.contains("has one etcd member now"), "{reset:?}");
    assert!(etcd_of(&server).is_none());
    server.restart();
    kept("after a reset");
    // An upgrade in place starts etcd anew.
    let etcd = etcd_of(&server);
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    kill(pid, Signal::SIGUSR2).unwrap();
    eventually("the new program runs an etcd", WAIT, || {
        etcd_of(&server).is_some_and(|pid| Some(pid) != etcd)
    });
    eventually("it is ready", WAIT, || is_ready(&server));
    kept("after an upgrade");
}

#[test]
fn resets_need_a_member() {
    let server = Server::with(&["--api-only"]);
    let other = errors(&coracle(&server, &["server", "--cluster-reset"]));
    assert!(other.contains("only for --datastore etcd"), "{other}");
    let none = errors(&coracle(&server, &["server", "--datastore", "etcd", "--cluster-reset"]));
    assert!(none.contains("has no data of an etcd member"), "{none}");
    let members = errors(&coracle(&server, &["member", "ls"]));
    assert!(members.contains("this command is for --datastore etcd"), "{members}");
}
