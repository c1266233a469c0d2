//! Pods with a user namespace: root inside is nobody outside.

use std::os::unix::fs::MetadataExt;

use coracle_engine::runtime::{Containers, RuntimeError, Sandboxes};
use coracle_proto::cri;

use crate::node::Node;

const FIRST: u32 = 655_360;

fn mapping() -> cri::IdMapping {
    cri::IdMapping { host_id: FIRST, container_id: 0, length: 65_536 }
}

fn options() -> cri::NamespaceOption {
    cri::NamespaceOption {
        pid: cri::NamespaceMode::Container.into(),
        userns_options: Some(cri::UserNamespace {
            mode: cri::NamespaceMode::Pod.into(),
            uids: vec![mapping()],
            gids: vec![mapping()],
        }),
        ..Default::default()
    }
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn root_inside_is_nobody_outside() {
    let node = Node::start().await;
    // The first pod makes the bridge and the network's files, which stay.
    let warm = node.sandbox("warm").await;
    node.cri.remove_pod_sandbox(&warm).await.unwrap();
    let before = node.picture();
    let mut pod = node.sandbox_config("mapped");
    let linux = pod.linux.as_mut().unwrap();
    linux.security_context =
        Some(cri::LinuxSandboxSecurityContext { namespace_options: Some(options()), ..Default::default() });
    linux.sysctls = [("net.ipv4.ip_unprivileged_port_start", "0"), ("kernel.shm_rmid_forced", "1")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let sandbox = node.cri.run_pod_sandbox(pod.clone(), "").await.unwrap();

    let data = node.path("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("theirs"), "x").unwrap();
    let mut config = node.container_config("c", &["sleep", "1000"]);
    config.mounts.push(cri::Mount {
        container_path: "/data".into(),
        host_path: data.display().to_string(),
        uid_mappings: vec![mapping()],
        gid_mappings: vec![mapping()],
        ..Default::default()
    });
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(options());
    let id = node.cri.create_container(&sandbox, config.clone(), pod.clone()).await.unwrap();
    node.cri.start_container(&id).await.unwrap_or_else(|e| panic!("{e}\n{}", node.log()));

    let pid = node.pid(&id).await;
    assert_eq!(std::fs::metadata(format!("/proc/{pid}")).unwrap().uid(), FIRST);
    let text = async |script: &str| {
        let output = node.exec(&id, script).await;
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    assert_eq!(
        text("id -u; cat /proc/self/uid_map").await.split_whitespace().collect::<Vec<_>>(),
        ["0", "0", &FIRST.to_string(), "65536"]
    );
    // The image is root's, seen from inside, and what is written belongs to it too.
    assert_eq!(text("ls -ln /bin/busybox | { read a b c d e; echo $c $d; }").await, "0 0\n");
    assert_eq!(text("touch /new && ls -ln /new | { read a b c d e; echo $c $d; }").await, "0 0\n");
    assert_eq!(text("ls -ln /data/theirs | { read a b c d e; echo $c $d; }").await, "0 0\n");
    assert_eq!(text("echo hi > /data/ours; cat /etc/hostname").await, "mapped\n");
    let ours = std::fs::metadata(data.join("ours")).unwrap();
    assert_eq!((ours.uid(), ours.gid()), (0, 0), "on disk a volume has the pod's own ids");
    assert_eq!(text("cat /proc/sys/net/ipv4/ip_unprivileged_port_start").await, "0\n");

    config.metadata.as_mut().unwrap().name = "plain".into();
    let other = node.sandbox("plain").await;
    let refused = node.cri.create_container(&other, config, node.sandbox_config("plain")).await;
    assert!(matches!(refused, Err(RuntimeError::InvalidArgument(_))), "{refused:?}");
    for sandbox in [&sandbox, &other] {
        node.cri.remove_pod_sandbox(sandbox).await.unwrap();
    }
    let new = node.left_behind(&before).await;
    assert!(new.is_empty(), "left behind: {new:#?}");
}
