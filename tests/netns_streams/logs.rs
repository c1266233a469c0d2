//! `kubectl logs`.

use crate::tools::{Running, Stage};
use coracle_tests::eventually;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

pub fn options(stage: &mut Stage) {
    for k in &stage.kubectls {
        let all = "line 1\nline 2\nline 3\nline 4\nline 5\noops\nlast\n";
        eventually("everything is said", WAIT, || k.run("logs talk").ends_with("last\n"));
        assert_eq!(k.run("logs talk"), all);
        assert_eq!(k.run("logs talk --tail=2"), "oops\nlast\n");
        assert_eq!(k.run("logs talk --tail=0"), "");
        assert_eq!(k.run("logs talk --tail=100"), all);
        assert_eq!(k.run("logs talk --limit-bytes=10"), "line 1\nlin");
        assert_eq!(k.run("logs talk --since=1h"), all);
        assert_eq!(k.run("logs talk --since-time=2999-01-01T00:00:00Z"), "");
        let stamped = k.run("logs talk --timestamps --tail=1");
        let (time, text) = stamped.split_once(' ').unwrap();
        assert_eq!(text, "last\n");
        assert!(time.parse::<k8s_openapi::jiff::Timestamp>().is_ok(), "{time}");
        // From the time of the last line on there is one line.
        assert_eq!(k.run(&format!("logs talk --since-time={time}")), "last\n");
    }
    // The server refuses a stream unless its gate is on; the node does not.
    let raw = |query: &str| {
        let node = "/api/v1/nodes/node1/proxy/containerLogs/default/talk/c";
        stage.newest().run(&format!("get --raw '{node}?{query}'"))
    };
    assert_eq!(raw("stream=Stderr"), "oops\n");
    assert!(!raw("stream=Stdout").contains("oops"));
}

pub fn previous_and_all_containers(stage: &mut Stage) {
    stage
        .cluster
        .wait("again", "a restart", |s| s["containerStatuses"][0]["restartCount"].as_u64() > Some(0));
    for k in &stage.kubectls {
        assert_eq!(k.run("logs again --previous"), "run\n");
        let both = k.run("logs pair --all-containers --prefix");
        assert!(both.contains("[pod/pair/a] from a\n") && both.contains("[pod/pair/b] from b\n"), "{both}");
        assert_eq!(k.run("logs pair -c b"), "from b\n");
        // Old kubectls say which they chose, new ones too: on stderr.
        assert_eq!(k.run("logs pair"), "from a\n");
        assert_eq!(k.run("logs -l app=web --tail=1"), "");
    }
}

pub fn follow(stage: &mut Stage) {
    for k in &stage.kubectls {
        let name = format!("slow{}", k.version.1);
        let script = "for i in 1 2 3; do echo tick $i; sleep 1; done; echo end";
        stage.cluster.pod(
            &name,
            &format!(
                "restartPolicy: Never, containers: [{{name: c, image: {}, command: [sh, -c, {script:?}]}}]",
                crate::cluster::IMAGE
            ),
        );
        stage.cluster.wait(&name, "it runs or ran", |s| s["phase"] != "Pending");
        let (code, out, err) = Running::start(k, &["logs", "-f", &name]).end();
        assert_eq!((code, out.as_str()), (Some(0), "tick 1\ntick 2\ntick 3\nend\n"), "{err}");
    }
}

/// A log that is cut while it is followed, and afterwards: nothing is lost, nothing comes twice.
pub fn rotation(stage: &mut Stage) {
    const LINES: usize = 15_000;
    let script = "i=0; while [ $i -lt 15000 ]; do i=$((i+1)); echo $i ------------------------------------------------------; \
                  [ $((i % 500)) != 0 ] || sleep 0.5; done; echo end; exec sleep 3600";
    stage.cluster.pod(
        "loud",
        &format!(
            "containers: [{{name: c, image: {}, command: [sh, -c, {script:?}]}}]",
            crate::cluster::IMAGE
        ),
    );
    stage.cluster.wait_ready("loud");
    let mut follow = Running::start(stage.newest(), &["logs", "-f", "loud"]);
    for wanted in 1..=LINES {
        let line = follow.line();
        assert_eq!(line.split(' ').next(), Some(wanted.to_string().as_str()), "{line}");
    }
    assert_eq!(follow.line(), "end\n");
    follow.kill();
    let uid = stage.cluster.get("loud")["metadata"]["uid"].as_str().unwrap().to_owned();
    let dir = stage.cluster.path("logs").join(format!("default_loud_{uid}/c"));
    let files = || {
        let names = std::fs::read_dir(&dir).unwrap().flatten().map(|f| f.file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.ends_with(".tmp")).collect();
        // `0.log` is the newest.
        names.sort_by_key(|name| (name == "0.log", name.clone()));
        names
    };
    assert!(files().len() > 1, "the log was cut: {:?}", files());
    let mut written = Vec::new();
    for name in files() {
        let shown = if name.ends_with(".gz") { "zcat" } else { "cat" };
        let text = crate::cluster::run(&format!("{shown} {}", dir.join(&name).display()));
        written.extend(text.lines().map(|line| line.split(' ').nth(3).unwrap_or_default().to_owned()));
    }
    let last: Vec<String> = (1..=LINES).map(|n| n.to_string()).chain(["end".to_owned()]).collect();
    assert!(last.ends_with(&written) && written.len() > 1000, "{} lines in {:?}", written.len(), files());
    for k in &stage.kubectls {
        assert_eq!(k.run("logs loud --tail=1"), "end\n");
        // Whatever is shown is whole and in order.
        let shown = k.run("logs loud");
        let shown: Vec<String> =
            shown.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect();
        assert!(!shown.is_empty() && last.ends_with(&shown), "{} lines are shown", shown.len());
    }
    stage.cluster.delete("loud");
}

pub fn refusals(stage: &mut Stage) {
    stage.cluster.pod("nowhere", "nodeSelector: {no: such}, containers: [{name: c, image: x}]");
    stage
        .cluster
        .pod("unpulled", "containers: [{name: c, image: 'example.test/none:1', imagePullPolicy: Never}]");
    stage.cluster.wait_waiting("unpulled", "ErrImageNeverPull");
    for k in &stage.kubectls {
        let err = k.fails("logs web --previous");
        assert!(err.contains(r#"previous terminated container "c" in pod "web" not found"#), "{err}");
        let err = k.fails("logs web -c nobody");
        assert!(err.contains("container nobody is not valid for pod web"), "{err}");
        let err = k.fails("logs unpulled");
        assert!(
            err.contains(r#"container "c" in pod "unpulled" is waiting to start: ErrImageNeverPull"#),
            "{err}"
        );
        assert_eq!(k.run("logs nowhere"), "");
        let err = k.fails("logs missing");
        assert!(err.contains(r#"pods "missing" not found"#), "{err}");
    }
    let raw = |query: &str| {
        stage.newest().fails(&format!("get --raw '/api/v1/namespaces/default/pods/talk/log?{query}'"))
    };
    let err = raw("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z");
    assert!(err.contains("at most one of `sinceTime` or `sinceSeconds` may be specified"), "{err}");
    for (query, said) in [
        ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
        ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
        ("stream=Stderr", "stream: Forbidden: may not be specified"),
        ("tailLines=many", "strconv.ParseInt: parsing \"many\": invalid syntax"),
    ] {
        let err = raw(query);
        assert!(err.contains(said), "{query}: {err}");
    }
    let err = stage.newest().fails("get --raw /api/v1/namespaces/default/pods/pair/log");
    assert!(err.contains("a container name must be specified for pod pair, choose one of: [a b]"), "{err}");
    stage.cluster.delete("nowhere unpulled");
}
