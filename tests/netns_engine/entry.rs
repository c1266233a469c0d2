//! Commands enter containers by the keeper's own way: what they are there is what the runtime would have made of them.

use std::process::Command;
use std::time::Duration;

use coracle_engine::runtime::{Containers, Execs, Sandboxes};
use coracle_proto::cri;

use crate::node::{Node, runtime};

/// Everything that confines a process, as it sees itself.
const SELF: &str = "id; pwd; umask; env | sort; tty; \
    grep -E '^(Cap|Seccomp|NoNewPrivs|Groups|Uid|Gid|SigIgn|SigBlk|Umask)' /proc/self/status; \
    cat /proc/self/cgroup /proc/self/oom_score_adj /proc/self/limits; \
    for kind in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$kind; done; \
    for fd in /proc/self/fd/*; do echo ${fd##*/}; done; \
    mount -t tmpfs none /tmp 2>&1; rm -f /tmp/sda; mknod /tmp/sda b 8 0 2>&1; chroot / true 2>&1; \
    cat /dev/null > /dev/stderr; unshare -n true 2>&1; hostname other 2>&1";

fn context(
    change: impl FnOnce(&mut cri::LinuxContainerSecurityContext),
) -> cri::LinuxContainerSecurityContext {
    let mut context = cri::LinuxContainerSecurityContext {
        seccomp: Some(cri::SecurityProfile::default()),
        namespace_options: Some(cri::NamespaceOption {
            pid: cri::NamespaceMode::Container.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    change(&mut context);
    context
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_command_is_what_the_runtime_would_have_made_of_it() {
    let node = Node::start().await;
    let sandbox = node.sandbox("entered").await;
    let number = |value| Some(cri::Int64Value { value });
    let capabilities = |add: &[&str], drop: &[&str]| {
        let strings = |list: &[&str]| list.iter().map(|text| text.to_string()).collect();
        Some(cri::Capability {
            add_capabilities: strings(add),
            drop_capabilities: strings(drop),
            ..Default::default()
        })
    };
    let cases = [
        ("plain", context(|_| {})),
        ("unconfined", context(|c| c.seccomp = None)),
        ("privileged", context(|c| c.privileged = true)),
        (
            "user",
            context(|c| {
                (c.run_as_user, c.run_as_group) = (number(1000), number(2000));
                c.supplemental_groups = vec![3000, 4000];
            }),
        ),
        (
            "least",
            context(|c| {
                (c.run_as_user, c.no_new_privs, c.readonly_rootfs) = (number(65534), true, true);
                c.capabilities = capabilities(&[], &["ALL"]);
            }),
        ),
        ("more", context(|c| c.capabilities = capabilities(&["NET_ADMIN", "SYS_ADMIN"], &["CHOWN"]))),
    ];
    for (name, context) in cases {
        let mut config = node.container_config(name, &["sleep", "1000"]);
        config.working_dir = "/etc".into();
        config.envs.push(cri::KeyValue { key: "GREETING".into(), value: "two words".into() });
        config.linux.as_mut().unwrap().security_context = Some(context);
        let pod = node.sandbox_config("entered");
        let id = node.cri.create_container(&sandbox, config, pod).await.unwrap();
        node.cri.start_container(&id).await.unwrap_or_else(|e| panic!("{e}\n{}", node.log()));
        let entered = node.exec(&id, SELF).await;
        let entered = String::from_utf8(entered.stdout).unwrap();
        let by_runtime = Command::new(runtime())
            .args(["--root", &node.path("run/runtime").display().to_string(), "exec", &id, "sh", "-c", SELF])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let by_runtime = String::from_utf8(by_runtime.stdout).unwrap();
        assert!(entered.contains("GREETING=two words"), "{name}: {entered}");
        let own_way = node.path("run/containers").join(&id).join("seccomp.bpf").exists();
        assert_eq!(own_way, !matches!(name, "unconfined" | "privileged"), "{name}");
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&entered), lines(&by_runtime), "{name}");
        node.cri.stop_container(&id, Duration::ZERO).await.unwrap();
        let gone = node.cri.exec_sync(&id, vec!["true".into()], Duration::from_secs(10)).await;
        assert!(gone.is_err(), "{name}");
    }
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn nothing_of_the_keeper_is_to_be_had_inside() {
    let node = Node::start().await;
    let sandbox = node.sandbox("watched").await;
    // Looks at every process it can see, as fast as it can, for one whose program it may open.
    let script = "while :; do for p in /proc/[0-9]*; do \
        case $(readlink $p/exe) in *enter*|*keeper*) echo exe $(readlink $p/exe);; esac; \
        case $(readlink $p/cwd) in /run/*|/tmp/*) echo cwd $(readlink $p/cwd);; esac; \
        for f in $p/fd/*; do case $(readlink $f) in *.json|*.pid|*.log|*cgroup*) echo fd $(readlink $f);; esac; done; \
        done; done";
    let id = {
        let config = node.container_config("spy", &["sh", "-c", script]);
        let id = node.cri.create_container(&sandbox, config, node.sandbox_config("watched")).await.unwrap();
        node.cri.start_container(&id).await.unwrap();
        id
    };
    for _ in 0..200 {
        let output = node.cri.exec_sync(&id, vec!["true".into()], Duration::from_secs(30)).await.unwrap();
        assert_eq!(output.exit_code, 0);
    }
    assert_eq!(node.container_log("watched", "spy"), "");
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_frozen_container_takes_no_command_and_runs_none_later() {
    let node = Node::start().await;
    let sandbox = node.sandbox("cold").await;
    let id = node.run(&sandbox, "cold", node.container_config("c", &["sleep", "1000"])).await;
    assert_eq!(node.exec(&id, "true").await.exit_code, 0);
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", node.pid(&id).await)).unwrap();
    let path = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    let freeze = format!("/sys/fs/cgroup{path}/cgroup.freeze");
    std::fs::write(&freeze, "1").unwrap();
    let command = ["sh", "-c", "touch /tmp/ran"].map(str::to_owned).to_vec();
    let refused = node.cri.exec_sync(&id, command, Duration::from_secs(20)).await.unwrap_err().to_string();
    assert!(refused.contains("paused"), "{refused}");
    std::fs::write(&freeze, "0").unwrap();
    assert_ne!(node.exec(&id, "test -e /tmp/ran").await.exit_code, 0);
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_container_keeps_the_runtime_that_started_it() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox("changed").await;
    let id = node.run(&sandbox, "changed", node.container_config("c", &["sleep", "1000"])).await;
    node.kill_engine();
    node.start_engine_with("/bin/false").await;
    // A terminal is the runtime's to give.
    let request = cri::ExecRequest {
        container_id: id.clone(),
        cmd: ["sh", "-c", "exit 7"].map(str::to_owned).to_vec(),
        tty: true,
        stdout: true,
        ..Default::default()
    };
    let session = node.cri.exec(request).await.unwrap();
    assert_eq!(session.exit.await.unwrap().unwrap(), 7);
    node.cri.stop_container(&id, Duration::ZERO).await.unwrap();
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}
