//! Sandboxes and containers from birth to nothing.

use std::time::Duration;

use coracle_engine::runtime::{Containers, Execs, Runtime, RuntimeError, Sandboxes, Stats};
use coracle_proto::cri;

use crate::node::{Node, run};

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_pod_lives_and_leaves_nothing() {
    let node = Node::start().await;
    // The first pod makes the bridge, which stays.
    let warm = node.sandbox("warm").await;
    node.cri.remove_pod_sandbox(&warm).await.unwrap();
    let before = node.picture();

    let sandbox = node.sandbox("web").await;
    let status = node.cri.pod_sandbox_status(&sandbox, false).await.unwrap().status.unwrap();
    assert_eq!(status.state(), cri::PodSandboxState::SandboxReady);
    let ip = status.network.unwrap().ip;
    assert!(ip.starts_with("10.88.0."), "{ip}");

    let script = "echo hello; echo oops >&2; echo -n cut; mkdir -p /tmp/www; echo page > /tmp/www/index.html; \
        exec httpd -f -p 80 -h /tmp/www";
    let web = node.run(&sandbox, "web", node.container_config("web", &["sh", "-c", script])).await;
    assert_eq!(node.status(&web).await.state(), cri::ContainerState::ContainerRunning);

    // From the host's side, and from a second sandbox.
    let page = run(&format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do curl -s http://{ip}/ && exit 0; sleep 0.1; done; exit 1"
    ));
    assert_eq!(page, "page\n");
    let other = node.sandbox("other").await;
    let client = node.run(&other, "other", node.container_config("c", &["sleep", "1000"])).await;
    let fetched = node.exec(&client, &format!("wget -q -O - http://{ip}/")).await;
    assert_eq!((fetched.exit_code, fetched.stdout.as_slice()), (0, &b"page\n"[..]), "{fetched:?}");

    let inside = node.exec(&web, "hostname; cat /etc/resolv.conf; echo err >&2; exit 3").await;
    assert_eq!(String::from_utf8(inside.stdout).unwrap(), "web\nnameserver 10.96.0.10\n");
    assert_eq!((inside.stderr.as_slice(), inside.exit_code), (&b"err\n"[..], 3));

    // What a container writes into its hostname file does not become the environment of another one.
    let forged = node.exec(&web, "echo forged > /etc/hostname && cat /etc/hostname").await;
    assert_eq!(forged.stdout, b"forged\n");
    let next = node.run(&sandbox, "web", node.container_config("next", &["sleep", "1000"])).await;
    assert_eq!(node.exec(&next, "echo $HOSTNAME").await.stdout, b"web\n");

    node.cri.stop_container(&web, Duration::from_secs(1)).await.unwrap();
    let status = node.status(&web).await;
    assert_eq!(status.state(), cri::ContainerState::ContainerExited);
    assert_eq!(node.container_log("web", "web"), "stdout F hello\nstderr F oops\nstdout P cut\n");

    node.cri.remove_container(&web).await.unwrap();
    node.cri.remove_container(&web).await.unwrap();
    for sandbox in [&sandbox, &other] {
        node.cri.stop_pod_sandbox(sandbox).await.unwrap();
        node.cri.stop_pod_sandbox(sandbox).await.unwrap();
        node.cri.remove_pod_sandbox(sandbox).await.unwrap();
        node.cri.remove_pod_sandbox(sandbox).await.unwrap();
    }
    assert!(node.cri.list_containers(None).await.unwrap().is_empty());
    let new = node.left_behind(&before).await;
    assert!(new.is_empty(), "left behind: {new:#?}");
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn exits_are_told_with_code_and_reason() {
    let node = Node::start().await;
    let sandbox = node.sandbox("exits").await;
    for (name, script, code, reason) in [
        ("ok", "exit 0", 0, "Completed"),
        ("seven", "exit 7", 7, "Error"),
        ("killed", "kill -9 $$; sleep 5", 137, "Error"),
        ("term", "kill -15 $$; sleep 5", 143, "Error"),
    ] {
        let mut config = node.container_config(name, &["sh", "-c", script]);
        if code > 128 {
            // A first process cannot be killed from inside its own namespace.
            let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
            security.namespace_options =
                Some(cri::NamespaceOption { pid: cri::NamespaceMode::Node.into(), ..Default::default() });
        }
        let id = node.run(&sandbox, "exits", config).await;
        let status = node.exited(&id).await;
        assert_eq!((status.exit_code, status.reason.as_str()), (code, reason), "{name}");
        assert!(status.started_at > 0 && status.finished_at >= status.started_at);
    }
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn what_ignores_its_signal_is_killed_after_the_grace() {
    let node = Node::start().await;
    let sandbox = node.sandbox("stubborn").await;
    let script = "trap 'echo no' TERM; echo ready; while true; do sleep 0.05; done";
    let id = node.run(&sandbox, "stubborn", node.container_config("c", &["sh", "-c", script])).await;
    node.logged("stubborn", "c", "stdout F ready").await;
    let begun = std::time::Instant::now();
    node.cri.stop_container(&id, Duration::from_secs(1)).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let status = node.status(&id).await;
    assert_eq!((status.exit_code, status.state()), (137, cri::ContainerState::ContainerExited));
    assert!(node.container_log("stubborn", "c").contains("stdout F no"));
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn bad_input_is_a_clear_error_and_the_engine_goes_on() {
    let node = Node::start().await;
    let sandbox = node.sandbox("bad").await;
    let create = async |config| node.cri.create_container(&sandbox, config, node.sandbox_config("bad")).await;

    let mut config = node.container_config("noimage", &["true"]);
    config.image = Some(cri::ImageSpec { image: "example.test/none:1".into(), ..Default::default() });
    assert!(matches!(create(config).await, Err(RuntimeError::NotFound(_))));

    let id = create(node.container_config("nocommand", &["/no/such/thing"])).await.unwrap();
    let error = node.cri.start_container(&id).await.unwrap_err().to_string();
    let said = error.contains("no such file") || error.contains("not found");
    assert!(error.contains("/no/such/thing") && said, "{error}");
    let status = node.status(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
    assert!(matches!(node.cri.start_container(&id).await, Err(RuntimeError::FailedPrecondition(_))));

    let mut config = node.container_config("nocap", &["true"]);
    let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    security.capabilities =
        Some(cri::Capability { add_capabilities: vec!["FLY".into()], ..Default::default() });
    assert!(matches!(create(config).await, Err(RuntimeError::InvalidArgument(_))));

    let mut config = node.container_config("nouser", &["true"]);
    let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    security.run_as_username = "nobody-here".into();
    assert!(matches!(create(config).await, Err(RuntimeError::InvalidArgument(_))));

    let again = node.cri.run_pod_sandbox(node.sandbox_config("bad"), "").await;
    assert!(matches!(again, Err(RuntimeError::AlreadyExists(_))), "{again:?}");
    let handler = node.cri.run_pod_sandbox(node.sandbox_config("h"), "kata").await;
    assert!(matches!(handler, Err(RuntimeError::InvalidArgument(_))), "{handler:?}");
    let mut ports = node.sandbox_config("ports");
    ports.port_mappings =
        vec![cri::PortMapping { host_port: 80, container_port: 80 + 65536, ..Default::default() }];
    let mut ids = node.sandbox_config("ids");
    let user =
        cri::UserNamespace { mode: cri::NamespaceMode::Container.into(), ..cri::UserNamespace::default() };
    ids.linux.as_mut().unwrap().security_context = Some(cri::LinuxSandboxSecurityContext {
        namespace_options: Some(cri::NamespaceOption { userns_options: Some(user), ..Default::default() }),
        ..Default::default()
    });
    for config in [ports, ids] {
        let refused = node.cri.run_pod_sandbox(config, "").await;
        assert!(matches!(refused, Err(RuntimeError::InvalidArgument(_))), "{refused:?}");
    }
    assert!(matches!(node.cri.container_status("nope", false).await, Err(RuntimeError::NotFound(_))));
    node.cri.stop_pod_sandbox("nope").await.unwrap();
    let running = node.run(&sandbox, "bad", node.container_config("late", &["sleep", "100"])).await;
    let slow = node.cri.exec_sync(&running, vec!["sleep".into(), "50".into()], Duration::from_secs(1)).await;
    assert!(matches!(slow, Err(RuntimeError::DeadlineExceeded(_))), "{slow:?}");
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn security_settings_hold_inside() {
    let node = Node::start().await;
    let sandbox = node.sandbox("secure").await;
    let mut config = node.container_config("c", &["sleep", "1000"]);
    config.envs.push(cri::KeyValue { key: "GREETING".into(), value: "hi there".into() });
    let data = node.path("data");
    std::fs::create_dir(&data).unwrap();
    config.mounts.push(cri::Mount {
        container_path: "/data".into(),
        host_path: data.display().to_string(),
        readonly: true,
        ..Default::default()
    });
    let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    security.run_as_username = "web".into();
    security.readonly_rootfs = true;
    security.no_new_privs = true;
    security.supplemental_groups = vec![7];
    security.masked_paths = vec!["/proc/keys".into()];
    security.capabilities =
        Some(cri::Capability { drop_capabilities: vec!["ALL".into()], ..Default::default() });
    let id = node.run(&sandbox, "secure", config).await;
    let text = async |script: &str| String::from_utf8(node.exec(&id, script).await.stdout).unwrap();
    assert_eq!(text("id -u; id -g; id -G; echo $GREETING").await, "101\n102\n102 7\nhi there\n");
    assert_eq!(
        text("touch /x 2>/dev/null || echo ro; touch /data/x 2>/dev/null || echo ro").await,
        "ro\nro\n"
    );
    let status = text("cat /proc/self/status").await;
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(field("CapBnd:"), "0000000000000000");
    assert_eq!(field("NoNewPrivs:"), "1");
    let own = std::fs::read_to_string(format!("/proc/{}/status", node.pid(&id).await)).unwrap();
    assert!(own.lines().any(|line| line == "Seccomp:\t2"), "{own}");
    assert_eq!(field("Seccomp:"), "2");
    assert_eq!(text("cat /proc/keys").await, "");
    assert_eq!(text("cat /proc/1/cgroup").await.lines().last(), Some("0::/"), "its own view of cgroups");
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_shared_pid_namespace_has_pause_first_and_hides_the_host() {
    let node = Node::start().await;
    let mut config = node.sandbox_config("shared");
    config.linux.as_mut().unwrap().security_context = Some(Default::default());
    config.linux.as_mut().unwrap().sysctls =
        [("net.ipv4.ip_unprivileged_port_start".into(), "7".into())].into();
    let sandbox = node.cri.run_pod_sandbox(config, "").await.unwrap();
    let container = |name: &str| {
        let mut config = node.container_config(name, &["sleep", "1000"]);
        let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
        security.namespace_options = Some(Default::default());
        security.privileged = true;
        config
    };
    let first = node.run(&sandbox, "shared", container("a")).await;
    node.run(&sandbox, "shared", container("b")).await;
    let text = async |script: &str| String::from_utf8(node.exec(&first, script).await.stdout).unwrap();
    let list = text("ps").await;
    assert!(list.contains("1 65535") || list.contains("/pause"), "{list}");
    assert_eq!(list.matches("sleep 1000").count(), 2, "{list}");
    assert_eq!(text("ls /proc/1/root/").await, "pause\n", "nothing of the host behind pause");
    assert_eq!(text("cat /proc/sys/net/ipv4/ip_unprivileged_port_start").await, "7\n");
    // What is orphaned in the namespace is reaped.
    text("sh -c 'sleep 0.1 & true'").await;
    let begun = std::time::Instant::now();
    while text("ps").await.contains("sleep 0.1") {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not reaped");
    }
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn host_namespaces_are_the_host_s() {
    let node = Node::start().await;
    let options = cri::NamespaceOption {
        network: cri::NamespaceMode::Node.into(),
        pid: cri::NamespaceMode::Node.into(),
        ipc: cri::NamespaceMode::Node.into(),
        ..Default::default()
    };
    let mut config = node.sandbox_config("host");
    config.linux.as_mut().unwrap().security_context = Some(cri::LinuxSandboxSecurityContext {
        namespace_options: Some(options.clone()),
        ..Default::default()
    });
    let sandbox = node.cri.run_pod_sandbox(config, "").await.unwrap();
    let mut config = node.container_config("c", &["sleep", "1000"]);
    config.linux.as_mut().unwrap().security_context =
        Some(cri::LinuxContainerSecurityContext { namespace_options: Some(options), ..Default::default() });
    let id = node.run(&sandbox, "host", config).await;
    let pid = node.pid(&id).await;
    for kind in ["net", "pid", "ipc", "uts"] {
        let link = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        assert_eq!(link(&pid.to_string()), link("self"), "{kind}");
    }
    let status = node.cri.pod_sandbox_status(&sandbox, false).await.unwrap().status.unwrap();
    assert_eq!(status.network.unwrap().ip, "");
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn stats_and_status_tell_the_truth() {
    let node = Node::start().await;
    let sandbox = node.sandbox("stats").await;
    let id = node
        .run(&sandbox, "stats", node.container_config("c", &["sh", "-c", "while true; do true; done"]))
        .await;
    node.cri.container_stats(&id).await.unwrap();
    // A machine with much else to do lets it wait for a while.
    let begun = std::time::Instant::now();
    let stats = loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let stats = node.cri.container_stats(&id).await.unwrap();
        if stats.cpu.as_ref().unwrap().usage_nano_cores.unwrap().value > 10_000_000 {
            break stats;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", stats.cpu);
    };
    assert!(stats.memory.unwrap().working_set_bytes.unwrap().value > 0);
    let pod = node.cri.pod_sandbox_stats(&sandbox).await.unwrap().linux.unwrap();
    assert_eq!(pod.network.unwrap().default_interface.unwrap().name, "eth0");
    assert!(pod.process.unwrap().process_count.unwrap().value >= 2);
    let status = node.cri.status(true).await.unwrap();
    let conditions = status.status.unwrap().conditions;
    assert!(conditions.iter().all(|c| c.r#type == "ResourceLimitsEnforced" || c.status), "{conditions:?}");
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}
