//! Clients and agents that go away in the middle.

use std::time::Duration;

use crate::cluster::{IMAGE, run as shell};
use crate::ports::Forward;
use crate::tools::{PODS, Running, Stage, run};
use coracle_tests::eventually;

const WAIT: Duration = Duration::from_secs(60);

pub fn client_is_killed(stage: &mut Stage) {
    for k in &stage.kubectls {
        let mark = format!("/tmp/eof{}", k.version.1);
        let script = format!("echo up; cat > /dev/null; echo eof > {mark}");
        let mut running = Running::start(k, &["exec", "-i", "talk", "--", "sh", "-c", &script]);
        assert_eq!(running.line(), "up\n");
        running.kill();
        eventually("the process sees the end of its input", WAIT, || {
            k.try_with(&format!("exec talk -- cat {mark}"), "").out == "eof\n"
        });
        // One that writes for ever gets SIGPIPE.
        let mut running =
            Running::start(k, &["exec", "talk", "--", "sh", "-c", "while echo endless1; do :; done"]);
        assert_eq!(running.line(), "endless1\n");
        running.kill();
        eventually("the writer is gone", WAIT, || !k.run("exec talk -- ps").contains("endless1"));
        let follow = Running::start(k, &["logs", "-f", "talk"]);
        std::thread::sleep(Duration::from_millis(500));
        follow.kill();
    }
}

/// An exec and a port-forward that nobody uses for a while are still there afterwards. `CORACLE_IDLE_SECONDS` says
/// how long: a few seconds unless it is set.
pub fn idle(stage: &mut Stage) {
    let seconds = std::env::var("CORACLE_IDLE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let start = |k| {
        let script = "echo up; read x; echo got $x; read y; echo $y again";
        let mut exec = Running::start(k, &["exec", "-i", "talk", "--", "sh", "-c", script]);
        assert_eq!(exec.line(), "up\n");
        let forward = Forward::start(k, "pod/web", 80);
        assert!(forward.get().ends_with("hello\n"));
        (exec, forward)
    };
    let mut sessions: Vec<_> = stage.kubectls.iter().map(start).collect();
    let follow = Running::start(stage.newest(), &["logs", "-f", "talk"]);
    std::thread::sleep(Duration::from_secs(seconds));
    for (exec, forward) in &mut sessions {
        exec.say("this\n");
        assert_eq!(exec.line(), "got this\n");
        assert!(forward.get().ends_with("hello\n"));
    }
    for (mut exec, forward) in sessions {
        exec.say("that\n");
        let (code, out, err) = exec.end();
        assert_eq!((code, out.as_str()), (Some(0), "that again\n"), "{err}");
        forward.running.kill();
    }
    let mut follow = follow;
    assert!(follow.child.try_wait().unwrap().is_none(), "the follow goes on");
    follow.kill();
    eprintln!("idle for {seconds} s");
}

/// After everything above server, agent and keeper have no more open than before, and the container no process of ours.
pub fn nothing_leaks(stage: &mut Stage) {
    let k = stage.newest();
    eventually("only the container's own process is left", WAIT, || {
        let processes = k.run("exec talk -- ps -o comm");
        processes.lines().filter(|line| !["COMMAND", "sleep", "ps"].contains(&line.trim())).count() == 0
    });
    // Pods of other parts have descriptors of their own, also those of a part that failed.
    let pods = k.run("get pods -o jsonpath={.items[*].metadata.name}");
    let others: Vec<&str> = pods.split_whitespace().filter(|pod| !PODS.contains(pod)).collect();
    if !others.is_empty() {
        stage.cluster.delete(&others.join(" "));
    }
    // Watches and idle connections come and go.
    const SLACK: usize = 16;
    let before = stage.descriptors;
    let begun = std::time::Instant::now();
    while stage.open().iter().zip(before).any(|(now, before)| *now > before + SLACK) {
        assert!(
            begun.elapsed() < WAIT,
            "descriptors of server, agent and keeper: before {before:?}, now {:?}",
            stage.open()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

pub fn agent_restarts_under_a_follow(stage: &mut Stage) {
    let script = "i=0; while true; do i=$((i+1)); echo n $i; sleep 0.1; done";
    stage
        .cluster
        .pod("count", &format!("containers: [{{name: c, image: {IMAGE}, command: [sh, -c, {script:?}]}}]"));
    stage.cluster.wait_ready("count");
    let mut running = Running::start(stage.newest(), &["logs", "-f", "count"]);
    assert_eq!(running.line(), "n 1\n");
    stage.cluster.kill_agent();
    let (_, rest, err) = running.end();
    let last = rest.lines().last().unwrap_or("n 1").to_owned();
    eprintln!("the follow ended at {last:?}: {err:?}");
    stage.cluster.start_agent();
    let k = stage.newest();
    eventually("logs are to be had again", WAIT, || k.try_with("logs count --tail=1", "").ok);
    eventually("it goes on", WAIT, || k.run("logs count").lines().count() > 10);
    let all = k.run("logs count");
    for (at, line) in all.lines().enumerate() {
        assert_eq!(line, format!("n {}", at + 1), "no line is lost or doubled");
    }
    assert!(all.starts_with(&format!("n 1\n{rest}")), "what was followed is what was written");
}

/// A node that the server cannot dial opens the connections itself.
pub fn behind_nat(stage: &mut Stage) {
    shell(
        "nft add table inet nodial
         nft add chain inet nodial in '{ type filter hook input priority -200; }'
         nft add rule inet nodial in tcp dport 10250 reject with tcp reset",
    );
    let err = stage.newest().fails("exec talk -- true");
    assert!(err.contains("10250"), "the server dials in vain: {err}");
    stage.cluster.restart_agent_with("--tunnel");
    for k in &stage.kubectls {
        eventually("the agent is to be reached", WAIT, || k.try_with("exec talk -- true", "").ok);
        assert_eq!(run(k, &["exec", "-i", "talk", "--", "cat"], "through\n").1, "through\n");
        assert_eq!(k.run("logs talk --tail=1"), "last\n");
        let forward = Forward::start(k, "pod/web", 80);
        for _ in 0..20 {
            assert!(forward.get().ends_with("hello\n"));
        }
        forward.running.kill();
        eventually("figures come through, too", WAIT, || k.try_with("top pod talk", "").ok);
    }
    shell("nft delete table inet nodial");
}
