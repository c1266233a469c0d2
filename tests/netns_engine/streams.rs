//! Logs, exec, attach and port-forward.

use std::time::Duration;

use coracle_engine::runtime::{Containers, Execs, RuntimeError, Sandboxes, TerminalSize};
use coracle_proto::cri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
    node.logged("rotate", "c", "stdout F one").await;
    let path = node.path("logs/rotate/c.log");
    std::fs::rename(&path, path.with_extension("old")).unwrap();
    node.cri.reopen_container_log(&id).await.unwrap();
    node.exec(&id, "touch /tmp/go").await;
    node.logged("rotate", "c", "stdout F two").await;
    assert_eq!(node.container_log("rotate", "c"), "stdout F two\n");
    let old = std::fs::read_to_string(path.with_extension("old")).unwrap();
    assert!(old.ends_with("stdout F one\n"), "{old}");
}

fn exec_request(id: &str, script: &str, tty: bool) -> cri::ExecRequest {
    cri::ExecRequest {
        container_id: id.into(),
        cmd: ["sh", "-c", script].map(str::to_owned).to_vec(),
        tty,
        stdin: true,
        stdout: true,
        stderr: !tty,
    }
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn exec_has_streams_a_terminal_and_an_exit_code() {
    let node = Node::start().await;
    let sandbox = node.sandbox("exec").await;
    let id = node.run(&sandbox, "exec", node.container_config("c", &["sleep", "1000"])).await;

    let mut session = node.cri.exec(exec_request(&id, "cat; echo done >&2; exit 4", false)).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"over the wire").await.unwrap();
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    session.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
    session.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!((out.as_str(), err.as_str()), ("over the wire", "done\n"));
    assert_eq!(session.exit.await.unwrap(), Ok(4));

    // The loop ends without the size, too.
    let sized = "i=0; until stty size | grep -q '^37 101' || [ $i = 1000 ]; do i=$((i+1)); sleep 0.02; done";
    let script = format!("{sized}; stty size; read line; echo got $line; tty; exit 2");
    let mut session = node.cri.exec(exec_request(&id, &script, true)).await.unwrap();
    session.resize.send(TerminalSize { width: 101, height: 37 }).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"typed\n").await.unwrap();
    let mut out = String::new();
    session.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
    assert!(out.contains("37 101") && out.contains("got typed"), "{out:?}");
    assert_eq!(session.exit.await.unwrap(), Ok(2));

    let mut session = node
        .cri
        .exec(exec_request(&id, "dd if=/dev/zero bs=1000 count=5000 2>/dev/null", false))
        .await
        .unwrap();
    let mut bytes = Vec::new();
    session.stdout.take().unwrap().read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes.len(), 5_000_000);

    let mut missing = exec_request(&id, "", false);
    missing.cmd = vec!["/no/such".into()];
    let session = node.cri.exec(missing).await.unwrap();
    // A shell's code for what cannot be found; in the process itself the reason is an error.
    let exit = session.exit.await.unwrap();
    assert!(
        matches!(&exit, Ok(127)) || matches!(&exit, Err(RuntimeError::Internal(m)) if m.contains("/no/such")),
        "{exit:?}"
    );
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn attach_joins_output_and_input() {
    let node = Node::start().await;
    let sandbox = node.sandbox("attach").await;
    let mut config =
        node.container_config("c", &["sh", "-c", "while read x; do echo $x; done; echo end; exit 6"]);
    (config.stdin, config.stdin_once) = (true, true);
    let id = node.run(&sandbox, "attach", config).await;
    let request = |stdin: bool| cri::AttachRequest {
        container_id: id.clone(),
        stdin,
        stdout: true,
        stderr: true,
        ..Default::default()
    };
    let mut watcher = node.cri.attach(request(false)).await.unwrap();
    let mut session = node.cri.attach(request(true)).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"one\ntwo\n").await.unwrap();
    drop(stdin);
    for stream in [session.stdout.take(), watcher.stdout.take()] {
        let mut out = String::new();
        stream.unwrap().read_to_string(&mut out).await.unwrap();
        assert_eq!(out, "one\ntwo\nend\n");
    }
    assert_eq!(node.exited(&id).await.exit_code, 6);
    assert_eq!(node.container_log("attach", "c"), "stdout F one\nstdout F two\nstdout F end\n");

    let mut config = node.container_config("tty", &["sh"]);
    (config.stdin, config.tty) = (true, true);
    let id = node.run(&sandbox, "attach", config).await;
    let request = cri::AttachRequest {
        container_id: id.clone(),
        stdin: true,
        stdout: true,
        tty: true,
        ..Default::default()
    };
    let mut session = node.cri.attach(request).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"echo $((40+2)); exit 8\n").await.unwrap();
    let mut out = String::new();
    session.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
    assert!(out.contains("42"), "{out:?}");
    assert_eq!(node.exited(&id).await.exit_code, 8);
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn ports_are_forwarded_into_the_sandbox() {
    let node = Node::start().await;
    let sandbox = node.sandbox("ports").await;
    let script =
        "mkdir -p /tmp/www; echo inside > /tmp/www/index.html; exec httpd -f -p 127.0.0.1:8080 -h /tmp/www";
    node.run(&sandbox, "ports", node.container_config("c", &["sh", "-c", script])).await;
    let begun = std::time::Instant::now();
    loop {
        let page = async {
            let mut connection = node.cri.port_forward(&sandbox, 8080).await.ok()?;
            connection.write_all(b"GET / HTTP/1.0\r\n\r\n").await.ok()?;
            let mut page = String::new();
            connection.read_to_string(&mut page).await.ok()?;
            Some(page)
        };
        let page = page.await;
        if page.as_ref().is_some_and(|page| page.ends_with("inside\n")) {
            break;
        }
        // The server in the container needs a moment to listen.
        assert!(begun.elapsed() < Duration::from_secs(60), "{page:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_terminal_survives_the_keeper() {
    let node = Node::start().await;
    let sandbox = node.sandbox("tty").await;
    let mut config = node.container_config("c", &["sh"]);
    (config.stdin, config.tty) = (true, true);
    let id = node.run(&sandbox, "tty", config).await;
    let old = node.kill_keeper();
    // As soon as it is dead: whoever attaches then waits for the next keeper.
    node.ended(old).await;
    let request = cri::AttachRequest {
        container_id: id.clone(),
        stdin: true,
        stdout: true,
        tty: true,
        ..Default::default()
    };
    let mut session = node.cri.attach(request).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    node.other_keeper(old).await;
    assert_eq!(node.status(&id).await.state(), cri::ContainerState::ContainerRunning);
    stdin.write_all(b"exit 11\n").await.unwrap();
    assert_eq!(node.exited(&id).await.exit_code, 11);
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}
