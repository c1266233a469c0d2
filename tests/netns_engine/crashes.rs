//! `kill -9` of the engine, and sometimes of the keeper, at random moments of creating and removing pods.

use std::time::Instant;

use coracle_engine::runtime::{Containers, RuntimeError, Sandboxes};

use crate::node::Node;

/// How many moments; `CORACLE_CRASHES` for more.
fn rounds() -> u32 {
    std::env::var("CORACLE_CRASHES").ok().and_then(|n| n.parse().ok()).unwrap_or(15)
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn nothing_leaks_whenever_the_engine_is_killed() {
    let mut node = Node::start().await;
    let begun = Instant::now();
    live(&node, "warm").await.unwrap();
    let length = begun.elapsed();
    println!("a life takes {length:?}");
    let before = node.picture();
    for round in 0..rounds() {
        let name = format!("crash-{round}");
        // Spread evenly over the whole of a life and a little more, however many there are.
        let delay = length.mul_f64(f64::from(round) * 0.618_034 % 1.0 * 1.1);
        let life = live(&node, &name);
        let _ = tokio::time::timeout(delay, life).await;
        if round % 3 == 2 {
            node.kill_keeper();
        }
        node.kill_engine();
        node.start_engine().await;
        let when = format!("round {round}, killed after {delay:?}");
        for sandbox in node.cri.list_pod_sandboxes(None).await.unwrap_or_else(|e| panic!("{when}: {e}")) {
            let removed = node.cri.remove_pod_sandbox(&sandbox.id).await;
            removed.unwrap_or_else(|e| panic!("{when}: removing {sandbox:?}: {e}"));
        }
        let containers = node.cri.list_containers(None).await.unwrap_or_else(|e| panic!("{when}: {e}"));
        assert!(containers.is_empty(), "{when}: {containers:#?}");
        let new = node.left_behind(&before).await;
        assert!(new.is_empty(), "{when}, left behind: {new:#?}");
    }
}

async fn live(node: &Node, name: &str) -> Result<(), RuntimeError> {
    let sandbox = node.cri.run_pod_sandbox(node.sandbox_config(name), "").await?;
    let config = node.container_config("c", &["sleep", "1000"]);
    let id = node.cri.create_container(&sandbox, config, node.sandbox_config(name)).await?;
    node.cri.start_container(&id).await?;
    node.cri.remove_pod_sandbox(&sandbox).await
}
