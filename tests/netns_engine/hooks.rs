//! Hooks of devices that run after the end of a container.

use std::fs;
use std::time::{Duration, Instant};

use coracle_engine::runtime::Sandboxes;
use coracle_proto::cri::{self, ContainerState};

use crate::node::{Node, kill};

const DEVICE: &str = "test.example/card=0";

/// Describes a device with two hooks after the end: both write to `hooks`, and the second one waits for `go`.
fn write_device(node: &Node) {
    let hook = |script: String| {
        serde_json::json!({"hookName": "poststop", "path": "/bin/sh", "args": ["sh", "-c", script],
            "env": ["PATH=/usr/bin:/bin"]})
    };
    let (log, pid, go) = (node.path("hooks"), node.path("hook-pid"), node.path("go"));
    let (log, pid, go) = (log.display(), pid.display(), go.display());
    let second = format!(
        "echo $$ > {pid}; echo begin >> {log}; while [ ! -e {go} ]; do sleep 0.05; done; echo end >> {log}"
    );
    let spec = serde_json::json!({"cdiVersion": "0.6.0", "kind": "test.example/card", "devices": [
        {"name": "0", "containerEdits": {"hooks": [hook(format!("echo first >> {log}")), hook(second)]}}]});
    fs::create_dir_all(node.path("cdi")).unwrap();
    fs::write(node.path("cdi/test.json"), spec.to_string()).unwrap();
}

/// What the hooks have written.
fn written(node: &Node) -> String {
    fs::read_to_string(node.path("hooks")).unwrap_or_default()
}

async fn wait_written(node: &Node, text: &str) {
    let begun = Instant::now();
    while written(node) != text {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}: {}", written(node), node.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn assert_running(node: &Node, id: &str) {
    let status = node.status(id).await;
    assert_eq!((status.state(), status.finished_at), (ContainerState::ContainerRunning, 0), "{status:?}");
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_container_runs_until_its_hooks_have_ended_also_after_a_killed_engine() {
    let mut node = Node::start().await;
    write_device(&node);
    let sandbox = node.sandbox("hooks").await;
    let config = cri::ContainerConfig {
        cdi_devices: vec![cri::CdiDevice { name: DEVICE.into() }],
        ..node.container_config("c", &["sleep", "1000"])
    };
    let id = node.run(&sandbox, "hooks", config).await;
    kill(node.pid(&id).await, 9);
    wait_written(&node, "first\nbegin\n").await;
    assert_running(&node, &id).await;

    node.kill_engine();
    // Its group: the next engine would wait for it.
    let hook: i32 = fs::read_to_string(node.path("hook-pid")).unwrap().trim().parse().unwrap();
    kill(-hook, 9);
    // The engine starts while the hook still runs, which was interrupted; the other one does not run again.
    node.start_engine().await;
    wait_written(&node, "first\nbegin\nbegin\n").await;
    assert_running(&node, &id).await;
    fs::write(node.path("go"), "").unwrap();
    assert_eq!(node.exited(&id).await.exit_code, 137);
    let all = "first\nbegin\nbegin\nend\n";
    assert_eq!(written(&node), all);

    node.kill_engine();
    node.start_engine().await;
    assert_eq!(node.status(&id).await.state(), ContainerState::ContainerExited);
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
    assert_eq!(written(&node), all, "hooks that had ended ran again");
}
