//! A rough world: full disks, no addresses left, garbage on the socket, broken network configurations.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use coracle_engine::runtime::{Containers, Images, Runtime, RuntimeError, Sandboxes};

use crate::node::{Node, run};

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn garbage_on_the_socket_harms_nobody() {
    let node = Node::start().await;
    let sandbox = node.sandbox("calm").await;
    let mut noise: Vec<u8> = Vec::new();
    let mut seed: u32 = 12345;
    for _ in 0..64 << 10 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise.push((seed >> 24) as u8);
    }
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let http = b"POST /runtime.v1.RuntimeService/RunPodSandbox HTTP/1.1\r\nContent-Length: 99999\r\n\r\n{";
    for begin in [&noise[..], preface, http, b"", &[0; 4096]] {
        let mut stream = UnixStream::connect(node.path("cri.sock")).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        // It may hang up in the middle.
        let _ = stream.write_all(begin).and_then(|()| stream.write_all(&noise));
    }
    let held: Vec<_> = (0..200).map(|_| UnixStream::connect(node.path("cri.sock")).unwrap()).collect();
    let id = node.run(&sandbox, "calm", node.container_config("c", &["true"])).await;
    assert_eq!(node.exited(&id).await.exit_code, 0);
    drop(held);
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn no_address_left_is_said_and_one_given_back_is_used() {
    let node = Node::start().await;
    // Two addresses besides the gateway's.
    node.network("10.88.1.0/30");
    let first = node.sandbox("first").await;
    let refused = node.cri.run_pod_sandbox(node.sandbox_config("second"), "").await.unwrap_err();
    assert!(refused.to_string().contains("no IP addresses available"), "{refused}");
    assert_eq!(node.cri.list_pod_sandboxes(None).await.unwrap().len(), 1, "the refused one is gone");
    node.cri.remove_pod_sandbox(&first).await.unwrap();
    let second = node.sandbox("second").await;
    node.cri.remove_pod_sandbox(&second).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_broken_network_configuration_is_a_condition_and_an_error() {
    let node = Node::start().await;
    let path = node.path("net.d/10-test.conflist");
    let good = std::fs::read_to_string(&path).unwrap();
    let plugin = r#"{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"no-such-plugin"}]}"#;
    for (name, bad, said) in [("bad", "{", "cni"), ("worse", plugin, "no-such-plugin")] {
        std::fs::write(&path, bad).unwrap();
        let refused = node.cri.run_pod_sandbox(node.sandbox_config(name), "").await.unwrap_err();
        assert!(refused.to_string().to_lowercase().contains(said), "{refused}");
    }
    std::fs::remove_file(&path).unwrap();
    let status = node.cri.status(false).await.unwrap().status.unwrap();
    let network = status.conditions.iter().find(|c| c.r#type == "NetworkReady").unwrap();
    assert!(!network.status && network.reason == "NetworkPluginNotReady", "{network:?}");
    std::fs::write(&path, good).unwrap();
    // What could not be taken back without a configuration is now.
    for sandbox in node.cri.list_pod_sandboxes(None).await.unwrap() {
        node.cri.remove_pod_sandbox(&sandbox.id).await.unwrap();
    }
    let sandbox = node.sandbox("bad").await;
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_full_disk_is_said_and_forgotten_once_there_is_room() {
    let mut node = Node::start().await;
    node.kill_engine();
    let images = node.path("root/images");
    run(&format!("rm -rf {0}; mkdir {0}; mount -t tmpfs -o size=600k none {0}", images.display()));
    node.start_engine().await;
    let registry = coracle_tests::registry::Registry::start(&node.path("."), false);
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("scripts/images");
    run(&format!("{} push {}", script.display(), registry.address));
    let name = format!("{}/library/busybox:latest", registry.address);
    let image = coracle_proto::cri::ImageSpec { image: name.clone(), ..Default::default() };
    let refused = node.cri.pull_image(image.clone(), None, None).await.unwrap_err();
    assert!(refused.to_string().contains("No space left on device"), "{refused}");
    assert!(node.cri.list_images(None).await.unwrap().is_empty());
    run(&format!("mount -o remount,size=64m {}", images.display()));
    node.cri.pull_image(image, None, None).await.unwrap();

    // The engine's own records have no room.
    let sandbox = node.sandbox("full").await;
    let mut config = node.container_config("c", &["sleep", "1000"]);
    config.image = Some(coracle_proto::cri::ImageSpec { image: name, ..Default::default() });
    let containers = node.path("root/containers");
    run(&format!("mount -t tmpfs -o size=4k,nr_inodes=1 none {}", containers.display()));
    let refused = node.cri.create_container(&sandbox, config.clone(), node.sandbox_config("full")).await;
    assert!(matches!(&refused, Err(RuntimeError::Internal(m)) if m.contains("No space left")), "{refused:?}");
    run(&format!("umount {}", containers.display()));
    let id = node.run(&sandbox, "full", config).await;
    node.cri.stop_container(&id, Duration::ZERO).await.unwrap();
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}
