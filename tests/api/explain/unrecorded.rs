//! What is not recorded, as the commands tell it: what is known is shown, and what is not is said.

use super::{MAPS, TRACE, config_map, create_pod, question};
use coracle_tests::caller::Caller;
use coracle_tests::program;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::process::Command;

const PODS: &str = "/api/v1/namespaces/default/pods";
const TIME: &str = "2026-11-17T04:00:00Z";

/// Exit code, standard output and standard error of a command; lines are joined, since long ones are broken.
fn coracle(server: &Server, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program("coracle"));
    command.args(words).arg("--kubeconfig").arg(server.kubeconfig()).env("HOME", server.data_dir());
    let output = command.output().unwrap();
    let joined = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    (output.status.code(), joined(&output.stdout), joined(&output.stderr))
}

/// Runs a command, and looks for its exit code and for parts of what it says.
fn says(server: &Server, words: &[&str], code: i32, parts: &[&str]) {
    let (ended, drawn, told) = coracle(server, words);
    assert_eq!(ended, Some(code), "{words:?}: {drawn}\n{told}");
    for part in parts {
        assert!(
            drawn.contains(part) || told.contains(part),
            "{words:?} does not say {part:?}: {drawn}\n{told}"
        );
    }
}

/// A kubelet of somebody else: its node, and reports about its pods.
struct Kubelet(Caller);

impl Kubelet {
    fn start(server: &Server) -> Self {
        let caller = Caller::certified(server, "system:node:stock", &["system:nodes"]);
        let caller = caller.header("User-Agent: kubelet/v1.36.0 (linux/amd64) kubernetes/0000000");
        let ready =
            json!({"type": "Ready", "status": "True", "lastHeartbeatTime": TIME, "lastTransitionTime": TIME});
        let status = json!({"nodeInfo": {"kubeletVersion": "v1.36.0"}, "conditions": [ready]});
        caller.create("/api/v1/nodes", &json!({"metadata": {"name": "stock"}, "status": status}));
        Self(caller)
    }

    fn reports(&self, pod: &str, ready: bool, container: &Value) {
        let mut status = json!({"name": "c", "image": "i", "imageID": "", "ready": ready, "restartCount": 0});
        for (key, value) in container.as_object().unwrap() {
            status[key] = value.clone();
        }
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": TIME});
        let status = json!({"phase": "Running", "startTime": TIME, "conditions": [condition], "containerStatuses": [status]});
        let path = format!("{PODS}/{pod}/status");
        let (code, answer) = self.0.send("PATCH", &path, Some(&json!({"status": status})));
        assert_eq!(code, 200, "{answer}");
    }
}

#[test]
fn a_stock_kubelet_tells_no_times_and_that_is_said() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let kubelet = Kubelet::start(&server);
    // No controller makes it, and pods mount it.
    let mut authorities = config_map("kube-root-ca.crt");
    authorities["data"] = json!({"ca.crt": ""});
    admin.create(MAPS, &authorities);
    create_pod(&admin, "quiet", "stock");
    says(&server, &["trace", "pod/quiet"], 0, &["waits for stock"]);
    kubelet.reports("quiet", true, &json!({"state": {"running": {"startedAt": TIME}}}));
    let note = "stock runs kubelet v1.36.0, which records no spans: what happened to pod/quiet after the binding is not known";
    let unknown = "ready, it is not known when";
    says(&server, &["trace", "pod/quiet"], 0, &[unknown, note, "POST pods"]);
    says(&server, &["trace", "pod/quiet", "--last", "3"], 0, &[unknown]);
    says(&server, &["why", "pod/quiet"], 0, &["pod/quiet is running and ready"]);
    let (_, answer) = admin.get(&question("pods", "quiet"));
    assert_eq!((&answer["objects"][0]["untold"], &answer["end"]), (&json!(true), &Value::Null), "{answer:#}");
    // The log cannot be read: the node has no address.
    let ended = json!({"exitCode": 3, "reason": "Error", "finishedAt": TIME});
    let waiting =
        json!({"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"});
    let crashed = json!({"restartCount": 3, "state": {"running": null, "waiting": waiting}, "lastState": {"terminated": ended}});
    kubelet.reports("quiet", false, &crashed);
    let parts = ["fails with exit code 3", "not looked at: previous log of container c"];
    says(&server, &["why", "pod/quiet"], 1, &parts);
    says(
        &server,
        &["trace", "pod/quiet"],
        1,
        &["crash back-off of container c", "`coracle why pod/quiet -n default` says more"],
    );
}

#[test]
fn what_is_older_than_the_spans_is_drawn_from_its_conditions() {
    let mut server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    admin.create(MAPS, &config_map("old"));
    server.stop();
    std::fs::remove_dir_all(server.data_dir().join("trace")).unwrap();
    server.restart();
    let (old, kept) = ("configmaps \"old\" in default was created at 20", "and spans are kept since ");
    let drawn = "from conditions, container states and Events; times are exact to a second";
    says(&server, &["trace", "configmap/old"], 0, &[old, kept, "configmap/old created", drawn]);
    says(&server, &["trace", "configmap/old", "--since", "1h"], 2, &[old, kept]);
    says(
        &server,
        &["trace", "--trace", TRACE],
        2,
        &[format!("no trace {TRACE} was recorded since ").as_str()],
    );
    says(&server, &["why", "configmap/old"], 0, &["configmap/old exists; it has no conditions"]);
}

#[test]
fn it_is_said_whether_an_object_ever_existed() {
    let mut server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    admin.create(MAPS, &config_map("was"));
    assert_eq!(admin.send("DELETE", &format!("{MAPS}/was"), None).0, 200);
    says(&server, &["trace", "configmap/was"], 0, &["configmap/was deleted by", "gone after"]);
    let missing = "configmap/was in namespace default does not exist";
    says(&server, &["why", "configmap/was"], 2, &[missing, "; it was deleted at 20"]);
    let never = "no configmaps \"never\" in default, and none was written since 20";
    says(&server, &["trace", "configmap/never"], 2, &[never]);
    says(&server, &["why", "configmap/never"], 2, &["configmap/never in namespace default does not exist"]);
    assert!(!coracle(&server, &["why", "configmap/never"]).2.contains("it was"), "nothing is made up");
    says(&server, &["trace", "boat/x"], 2, &["the server has no kind boat"]);
    says(&server, &["why", "boat/x"], 2, &["the server has no kind boat"]);
    server.stop();
    says(&server, &["trace", "configmap/was"], 3, &["coracle trace: cannot ask https://"]);
    says(&server, &["why", "configmap/was"], 3, &["cannot reach the API server"]);
}
