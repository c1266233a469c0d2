//! Clients and agents that go away in the middle.

use std::time::Duration;

use crate::cluster::IMAGE;
use crate::tools::{Running, Stage, open_files};
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

/// After everything above server and agent have no more open than before.
pub fn nothing_leaks(stage: &mut Stage) {
    let pids = [stage.cluster.server.pid(), stage.cluster.agent_pid()];
    // Watches and idle connections come and go.
    const SLACK: usize = 16;
    let now = || pids.map(open_files);
    let before = stage.descriptors;
    let begun = std::time::Instant::now();
    while now().iter().zip(before).any(|(now, before)| *now > before + SLACK) {
        assert!(
            begun.elapsed() < WAIT,
            "descriptors of server and agent: before {before:?}, now {:?}",
            now()
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
    std::thread::sleep(Duration::from_secs(1));
    let all = k.run("logs count");
    for (at, line) in all.lines().enumerate() {
        assert_eq!(line, format!("n {}", at + 1), "no line is lost or doubled");
    }
    assert!(all.lines().count() > 10);
    assert!(all.starts_with(&format!("n 1\n{rest}")), "what was followed is what was written");
}
