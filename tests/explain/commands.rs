//! `coracle trace` as a user runs it.

use crate::checks;
use crate::world::{WAIT, World, spans};
use coracle_tests::{eventually, program};
use coracle_timeline::TraceView;
use serde_json::json;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// `coracle trace` with these arguments.
fn tracing(world: &World, args: &[&str]) -> Command {
    let mut command = Command::new(program("coracle"));
    command
        .args(["trace", "--kubeconfig"])
        .arg(world.cluster.data_dir().join("admin.kubeconfig"))
        .args(args)
        .env("HOME", world.cluster.data_dir());
    command
}

/// Exit code, standard output and standard error of `coracle trace`.
pub fn trace(world: &World, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = tracing(world, args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout), text(&stderr))
}

/// Runs kubectl as `coracle trace -o json -- kubectl …` does; the tree of the request that changed something, as soon as all is ready.
pub fn kubectl(world: &World, line: &str) -> TraceView {
    let program = world.k.command(&[]).get_program().to_string_lossy().into_owned();
    let mut args = vec!["-o", "json", "--timeout", "3m", "--", program.as_str()];
    args.extend(line.split_whitespace());
    let (code, json, told) = trace(world, &args);
    assert_eq!(code, Some(0), "{line}: {told}");
    let mut list: serde_json::Value = serde_json::from_str(&json).unwrap();
    let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let views = items.into_iter().map(|item| serde_json::from_value::<TraceView>(item).unwrap());
    let mut changes: Vec<TraceView> = views.filter(|view| !spans(view, "write").is_empty()).collect();
    assert_eq!(changes.len(), 1, "{line}: one request of kubectl changes something\n{json}");
    changes.remove(0)
}

pub fn objects(world: &World) {
    world.namespace("commands");
    world.deploy("commands", 3);
    // It is complete by then.
    let pods = world.pods("commands");
    world.trace("deployments.apps", "commands", "web", |view| crate::scenarios::all_ready(view, &pods));
    let (code, drawn, told) = trace(world, &["deployment/web", "-n", "commands"]);
    assert_eq!(code, Some(0), "{told}");
    for part in ["deployment/web", "3 pods ready", "% explained", "critical path:", "replicaset-controller"] {
        assert!(drawn.contains(part), "{part}\n{drawn}");
    }
    // As a plugin of kubectl.
    let plugins = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(program("coracle"), plugins.path().join("kubectl-trace")).unwrap();
    let path = format!("{}:{}", plugins.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut kubectl = world.k.command(&["trace", "deployment/web", "-n", "commands"]);
    let Output { status, stdout, stderr } = kubectl.env("PATH", path).output().unwrap();
    let drawn = String::from_utf8_lossy(&stdout);
    assert!(
        status.success() && drawn.contains("3 pods ready"),
        "{drawn}{}",
        String::from_utf8_lossy(&stderr)
    );
    let (code, json, told) = trace(world, &["deploy", "web", "-n", "commands", "-o", "json"]);
    assert_eq!(code, Some(0), "{told}");
    checks::complete(&serde_json::from_str::<TraceView>(&json).unwrap());
    let (code, otlp, told) = trace(world, &["deploy/web", "-n", "commands", "-o", "otlp"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(otlp.contains("resourceSpans") && otlp.contains("\"traceId\""), "{otlp}");
    compare(world);
    let cases: [(&[&str], i32, &str); 5] = [
        (
            &["deployment/none", "-n", "commands"],
            2,
            "no deployments.apps \"none\" in commands, and none was written since ",
        ),
        (&["boat/none"], 2, "the server has no kind boat"),
        (&[], 2, "name an object as KIND/NAME, a trace with --trace, or a command after --"),
        (&["deployment/web", "--since", "soon"], 2, "soon is no duration: want one such as 30s or 10m"),
        (&["deployment/web", "--server", "https://127.0.0.1:1"], 3, "cannot ask https://127.0.0.1:1"),
    ];
    for (args, wanted, why) in cases {
        let (code, out, told) = trace(world, args);
        assert_eq!(code, Some(wanted), "{args:?}: {out}{told}");
        assert!(told.contains(&format!("coracle trace: {why}")), "{args:?} says {why:?}: {told}");
    }
}

/// What stages usually took is beside what they took now.
fn compare(world: &World) {
    world.namespace("compared");
    world.deploy("compared", 1);
    let object = ["deployment/web", "-n", "commands"];
    let usual = |args: &[&str]| -> (String, Vec<bool>) {
        let (code, drawn, told) = trace(world, args);
        assert_eq!(code, Some(0), "{told}");
        let (code, json, told) = trace(world, &[args, &["-o", "json"]].concat());
        assert_eq!(code, Some(0), "{told}");
        let view: TraceView = serde_json::from_str(&json).unwrap();
        let stages = ["request", "write", "reconcile", "sandbox", "cni-plugin"];
        let spans = stages.iter().flat_map(|stage| spans(&view, stage));
        (drawn, spans.map(|span| span.usual.is_some_and(|median| median > 0)).collect())
    };
    // Times in the row of the request: how long it took, and what is usual.
    let times = |drawn: &str| -> usize {
        let row = drawn.lines().find(|line| line.starts_with("kubectl"));
        let row = row.unwrap_or_else(|| panic!("no request\n{drawn}"));
        row.split_whitespace().filter(|word| word.trim_end_matches('!').parse::<f64>().is_ok()).count()
    };
    let (drawn, medians) = usual(&object);
    assert!(!drawn.contains("usual") && times(&drawn) == 1, "{drawn}");
    assert!(!medians.contains(&true), "nobody asked for them\n{drawn}");
    let (drawn, medians) = usual(&[&object[..], &["--compare"]].concat());
    assert!(drawn.contains(" usual ") && times(&drawn) == 2, "{drawn}");
    assert!(!medians.is_empty() && !medians.contains(&false), "each has a median\n{drawn}");
}

pub fn command(world: &World) {
    world.namespace("command");
    let kubectl = world.k.command(&[]).get_program().to_string_lossy().into_owned();
    let create = ["create", "deployment", "once", "-n", "command", "--image=busybox", "--replicas=2"];
    let mut args = vec!["--timeout", "2m", "--", kubectl.as_str()];
    args.extend(create);
    args.extend(["--", "sleep", "3600"]);
    let (code, drawn, told) = trace(world, &args);
    assert_eq!(code, Some(0), "{drawn}{told}");
    for part in ["created", "2 pods ready", "% explained"] {
        assert!(drawn.contains(part), "{part}\n{drawn}{told}");
    }
    // Standard output is the answer alone.
    let (code, json, told) = trace(world, &["-o", "json", "--", &kubectl, "get", "pods", "-n", "command"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        serde_json::from_str::<serde_json::Value>(&json).is_ok() && told.contains("once-"),
        "{json}{told}"
    );
    // A command that fails, and one that does not exist.
    let (code, _, told) = trace(world, &["--", &kubectl, "get", "pods", "none", "-n", "command"]);
    assert_eq!(code, Some(1), "{told}");
    let (code, _, told) = trace(world, &["--", "coracle-test-no-such-program"]);
    assert_eq!(code, Some(127), "{told}");
    stuck(world, &kubectl);
}

/// What is stuck is not waited for until the timeout, and the text names what says more.
fn stuck(world: &World, kubectl: &str) {
    let begun = Instant::now();
    let run = ["run", "missing", "-n", "command", "--image=127.0.0.1:5078/none:1"];
    let (code, drawn, told) = trace(world, &[&["--timeout", "10m", "--", kubectl][..], &run].concat());
    assert!(begun.elapsed() < WAIT, "{drawn}{told}");
    assert_eq!(code, Some(1), "{drawn}{told}");
    assert!(drawn.contains("pod/missing   created by kubectl"), "{drawn}{told}");
    let last = told.lines().last().unwrap_or_default();
    assert!(last.starts_with("coracle trace: pod/missing: container missing: "), "{told}");
    let reasons = ["ImagePullBackOff", "ErrImagePull", "RegistryUnavailable"];
    assert!(reasons.iter().any(|reason| last.contains(reason)), "{told}");
    assert!(last.ends_with("; `coracle why pod/missing -n command` says more"), "{told}");
    world.k.run("delete pod missing -n command --wait=false");
}

/// A Deployment that takes some seconds, followed, and then its history.
pub fn history(world: &World) {
    world.namespace("history");
    let container = json!({"name": "c", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["/bin/sleep", "3600"]});
    let mut first = container.clone();
    first["name"] = json!("first");
    // Enough for two commands on a machine that does other things.
    first["command"] = json!(["/bin/sleep", "15"]);
    let pod =
        json!({"terminationGracePeriodSeconds": 1, "initContainers": [first], "containers": [container]});
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod}}});
    world.create("history", &web.to_string());
    let ready = world.k.run("get deployment web -n history -o jsonpath={.status.readyReplicas}");
    assert_eq!(ready, "", "it has only begun");
    let mut follow = tracing(world, &["deployment/web", "-n", "history", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap_or_default();
    let ready = world.k.run("get deployment web -n history -o jsonpath={.status.readyReplicas}");
    let rest: Vec<String> = lines.collect();
    let Output { status, stderr, .. } = follow.wait_with_output().unwrap();
    let (drawn, told) = (format!("{first}\n{}", rest.join("\n")), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(0), "{drawn}{told}");
    assert!(
        !first.is_empty() && ready.is_empty(),
        "what is over is drawn before all is ready\n{drawn}{told}"
    );
    assert!(drawn.contains("2 pods ready after"), "{drawn}{told}");
    let ready = world.k.run("get deployment web -n history -o jsonpath={.status.readyReplicas}");
    assert_eq!(ready, "2", "it was followed to the end\n{drawn}");
    for replicas in [3, 4] {
        world.k.run(&format!("scale deployment web -n history --replicas={replicas}"));
        world.rolled_out("history");
    }
    // One after the other, the newest last.
    for (more, wanted) in [
        (["--last", "2"], &["scaled", "scaled"][..]),
        (["--last", "1"], &["scaled"]),
        (["--since", "1h"], &["created", "scaled", "scaled"]),
    ] {
        let args = [&["deployment/web", "-n", "history"][..], &more].concat();
        // A report whose cause the node has not told yet is a change of its own until then.
        eventually(&format!("{more:?} shows {wanted:?}"), WAIT, || {
            let (code, drawn, told) = trace(world, &args);
            assert_eq!(code, Some(0), "{more:?}: {drawn}{told}");
            let heads = drawn.lines().filter_map(|line| line.strip_prefix("deployment/web "));
            let verbs: Vec<&str> = heads.filter_map(|head| head.split_whitespace().next()).collect();
            verbs == wanted
        });
    }
    let json = ["deployment/web", "-n", "history", "--last", "2", "-o", "json"];
    let list: serde_json::Value = serde_json::from_str(&trace(world, &json).1).unwrap();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list:#}");
}
