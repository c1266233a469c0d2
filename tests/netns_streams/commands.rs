//! `kubectl exec`, `attach`, `run -it` and `cp`.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::cluster::{IMAGE, run as shell};
use crate::tools::{Running, Stage, in_terminal, run};

pub fn exec(stage: &mut Stage) {
    for k in &stage.kubectls {
        let ran = |args: &[&str], input: &str| run(k, args, input);
        assert_eq!(ran(&["exec", "talk", "--", "echo", "hi"], "").1, "hi\n");
        let (code, out, err) = ran(&["exec", "talk", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], "");
        assert_eq!((code, out.as_str()), (Some(7), "out\n"));
        assert!(err.starts_with("err\n") && err.contains("command terminated with exit code 7"), "{err}");
        assert_eq!(ran(&["exec", "-i", "talk", "--", "cat"], "over there\n").1, "over there\n");
        // Closed input is seen as its end, and the process goes on.
        let script = "wc -c; sleep 1; echo after";
        assert_eq!(ran(&["exec", "-i", "talk", "--", "sh", "-c", script], "12345").1, "5\nafter\n");
        assert_eq!(ran(&["exec", "pair", "-c", "b", "--", "hostname"], "").1, "pair\n");
        assert_eq!(ran(&["exec", "talk", "--", "true"], ""), (Some(0), String::new(), String::new()));
    }
}

pub fn terminal(stage: &mut Stage) {
    for k in &stage.kubectls {
        // The size comes after the shell; the loop ends without it, too.
        let sized = "i=0; until stty size | grep -q '^33 1' || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done";
        let script = format!("tty; {sized}; stty size; exit 5\n");
        let seen = in_terminal(k, &["exec", "-it", "talk", "--", "sh"], &script);
        assert!(seen.contains("/dev/pts/"), "{seen}");
        assert!(seen.contains("33 111"), "the terminal's size: {seen}");
        assert!(seen.contains("command terminated with exit code 5"), "{seen}");
    }
}

pub fn refusals(stage: &mut Stage) {
    stage.cluster.wait("ended", "one has ended", |s| {
        s["containerStatuses"]
            .as_array()
            .is_some_and(|all| all.iter().any(|c| c["state"]["terminated"].is_object()))
    });
    for k in &stage.kubectls {
        let (code, _, err) = run(k, &["exec", "talk", "--", "no-such-program"], "");
        assert_eq!(code, Some(127), "{err}");
        assert!(err.contains("executable file not found in $PATH"), "{err}");
        let (code, _, err) = run(k, &["exec", "talk", "--", "/tmp"], "");
        assert_eq!(code, Some(126), "{err}");
        assert!(err.contains("permission denied") || err.contains("is a directory"), "{err}");
        let err = k.fails("exec talk -c nobody -- true");
        // Newer kubectls look for themselves.
        let own = "container nobody not found in pod talk_default";
        assert!(err.contains("container nobody is not valid for pod talk") || err.contains(own), "{err}");
        let err = k.fails("exec ended -c done -- true");
        assert!(err.contains("container is in CONTAINER_EXITED state"), "{err}");
        let err = k.fails("attach talk -c nobody");
        assert!(err.contains("nobody"), "{err}");
        let err = k.fails("exec missing -- true");
        assert!(err.contains(r#"pods "missing" not found"#), "{err}");
    }
    // No upgrade: an answer, not a hang.
    let err = stage
        .newest()
        .fails("get --raw '/api/v1/namespaces/default/pods/talk/exec?command=true&stdout=true'");
    assert!(err.contains("Upgrade request required"), "{err}");
    let raw =
        |query: &str| stage.newest().fails(&format!("get --raw '/api/v1/namespaces/default/pods/{query}'"));
    for (query, said) in [
        ("talk/exec?command=true&container=nobody", "container nobody is not valid for pod talk"),
        ("talk/exec?stdout=true", "you must specify at least one command for the container"),
        ("pair/exec?command=true", "a container name must be specified for pod pair, choose one of: [a b]"),
        ("missing/exec?command=true", "pods \"missing\" not found"),
    ] {
        let err = raw(query);
        assert!(err.contains(said), "{query}: {err}");
    }
}

pub fn attach_and_run(stage: &mut Stage) {
    for k in &stage.kubectls {
        let name = format!("loop{}", k.version.1);
        let script = "while read x; do echo got $x; done; echo closed";
        stage.cluster.pod(
            &name,
            &format!("restartPolicy: Never, containers: [{{name: c, image: {IMAGE}, stdin: true, stdinOnce: true, command: [sh, -c, {script:?}]}}]"),
        );
        stage.cluster.wait_ready(&name);
        let mut attached = Running::start(k, &["attach", "-i", &name]);
        attached.say("one\n");
        assert_eq!(attached.line(), "got one\n");
        let (code, out, err) = attached.end();
        assert_eq!((code, out.as_str()), (Some(0), "closed\n"), "{err}");
        stage.cluster.wait_phase(&name, "Succeeded");

        let name = format!("tmp{}", k.version.1);
        let image = format!("--image={IMAGE}");
        // Input that comes before the attach is kept for it.
        let args =
            ["run", &name, &image, "-i", "--rm", "--restart=Never", "--", "sh", "-c", "read x; echo got $x"];
        let (code, out, err) = run(k, &args, "it\n");
        assert_eq!(code, Some(0), "{out}{err}");
        assert!(out.contains("got it\n") && out.contains("deleted"), "{out}{err}");
    }
}

pub fn copy(stage: &mut Stage) {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path().display();
    shell(&format!(
        "mkdir -p {d}/tree/sub; head -c 300000 /dev/urandom > {d}/tree/sub/data; echo small > {d}/tree/small"
    ));
    for k in &stage.kubectls {
        let at = format!("/tmp/copied{}", k.version.1);
        k.run(&format!("cp {d}/tree talk:{at}"));
        k.run(&format!("cp talk:{at} {d}/back{}", k.version.1));
        shell(&format!("diff -r {d}/tree {d}/back{}", k.version.1));
        k.run(&format!("cp {d}/tree/small talk:/tmp/one -c c"));
        assert_eq!(k.run("exec talk -- cat /tmp/one"), "small\n");
    }
}

/// 100 MiB there and back at once, through `cat`.
pub fn large_streams(stage: &mut Stage) {
    const SIZE: usize = 100 << 20;
    for k in &stage.kubectls {
        let mut child = k
            .command(&["exec", "-i", "talk", "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            let (mut state, mut left) = (1u64, SIZE);
            while left > 0 {
                let block = pattern(&mut state);
                let n = left.min(block.len());
                stdin.write_all(&block[..n]).unwrap();
                left -= n;
            }
        });
        let mut stdout = child.stdout.take().unwrap();
        let (mut state, mut left) = (1u64, SIZE);
        while left > 0 {
            let block = pattern(&mut state);
            let n = left.min(block.len());
            let mut back = vec![0; n];
            stdout
                .read_exact(&mut back)
                .unwrap_or_else(|e| panic!("kubectl 1.{}: {left} missing: {e}", k.version.1));
            assert!(back == block[..n], "kubectl 1.{}: bytes differ {} from the end", k.version.1, left);
            left -= n;
        }
        writer.join().unwrap();
        assert_eq!(stdout.read(&mut [0]).unwrap(), 0);
        assert!(child.wait().unwrap().success());
    }
}

/// The next block of a sequence that does not repeat.
fn pattern(state: &mut u64) -> Vec<u8> {
    let mut block = Vec::with_capacity(64 << 10);
    while block.len() < 64 << 10 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        block.extend_from_slice(&state.to_le_bytes());
    }
    block
}
