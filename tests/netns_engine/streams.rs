//! Logs.

use std::time::Duration;

use coracle_agent::runtime::Runtime;

use crate::node::Node;

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn every_byte_of_a_busy_container_is_in_its_log() {
    let node = Node::start().await;
    let sandbox = node.sandbox("busy").await;
    let id = node.run(&sandbox, "busy", node.container_config("c", &["seq", "1", "200000"])).await;
    assert_eq!(node.exited(&id).await.exit_code, 0);
    let log = node.container_log("busy", "c");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 200_000);
    assert_eq!(lines.last(), Some(&"stdout F 200000"));
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_rotated_log_goes_on_in_a_new_file() {
    let node = Node::start().await;
    let sandbox = node.sandbox("rotate").await;
    let script = "echo one; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo two; sleep 100";
    let id = node.run(&sandbox, "rotate", node.container_config("c", &["sh", "-c", script])).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let path = node.path("logs/rotate/c.log");
    std::fs::rename(&path, path.with_extension("old")).unwrap();
    node.cri.reopen_container_log(&id).await.unwrap();
    node.exec(&id, "touch /tmp/go").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(node.container_log("rotate", "c"), "stdout F two\n");
    let old = std::fs::read_to_string(path.with_extension("old")).unwrap();
    assert!(old.ends_with("stdout F one\n"), "{old}");
}
