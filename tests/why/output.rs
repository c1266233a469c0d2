//! Other ways to ask, and bad input.

use crate::ask::Answer;
use crate::case::{deployment, idle, object, pod};
use crate::run::Run;
use coracle_tests::program;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long something that is asked again and again may take.
const LONG: Duration = Duration::from_secs(90);

/// A directory with the plugin of kubectl, and a path that begins with it.
fn plugins() -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::os::unix::fs::symlink(program("coracle"), dir.path().join("kubectl-why")).expect("a link");
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap_or_default());
    (dir, path)
}

/// As text, and as a plugin of kubectl.
pub fn for_people(run: &Run) {
    let (_dir, path) = plugins();
    for (namespace, object, trouble, evidence) in [
        ("w-exit-code", "pod/p", "exit-code", "boom"),
        ("w-config-map-key-missing", "pod/p", "config-map-key-missing", "settings"),
        ("w-service-of-crashing-pods", "service/s", "exit-code", "no licence"),
        ("w-node-affinity-mismatch", "pod/p", "node-affinity-mismatch", "zone In nowhere"),
    ] {
        let begun = Instant::now();
        let mut plugin = run.kubectl.command(&["why", object, "-n", namespace]);
        for (how, answer) in [
            ("text", run.why.run(&[object, "-n", namespace])),
            ("kubectl why", Answer::of(plugin.env("PATH", &path))),
        ] {
            let named = format!("trouble   {trouble}");
            let wanted = [named.as_str(), evidence, "  evidence  ", "  remedy    "];
            let missing: Vec<&&str> = wanted.iter().filter(|part| !answer.out.contains(**part)).collect();
            let text =
                format!("exit code {}, missing {missing:?}: {}{}", answer.code, answer.out, answer.err);
            run.line(&format!("{trouble} as {how}"), begun, &text, answer.code != 1 || !missing.is_empty());
        }
    }
}

/// What cannot be answered is said, with an exit code of its own.
pub fn bad_input(run: &Run) {
    let begun = Instant::now();
    let nowhere = tempfile::tempdir().expect("a temporary directory");
    let kubeconfig = nowhere.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:9'}}]\n\
                contexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\ncurrent-context: x\n";
    std::fs::write(&kubeconfig, text).expect("a file");
    let away = crate::ask::Why::new(&kubeconfig);
    for (what, answer, code, said) in [
        (
            "an object that does not exist",
            run.why.run(&["pod/pp", "-n", "w-exit-code"]),
            2,
            "the closest that exists is p",
        ),
        ("a kind that does not exist", run.why.run(&["pdo/p"]), 2, "the server has no kind pdo"),
        ("an object without a name", run.why.run(&["pod"]), 2, "want KIND/NAME"),
        ("a server that is away", away.run(&["pod/p"]), 3, "cannot reach the API server"),
        (
            "a stranger",
            run.why.run(&["pod/p", "-n", "w-exit-code", "--as", "w-stranger", "--as-uid", "7"]),
            3,
            "cannot read pod/p",
        ),
    ] {
        let fine = answer.code == code && answer.err.contains(said);
        run.line(what, begun, &format!("exit code {}: {}", answer.code, answer.err.trim()), !fine);
    }
}

/// A pod that a quota refuses never existed: the refusal itself is named, with its code, its time and the quota.
pub fn refused(run: &Run) {
    let begun = Instant::now();
    run.kubectl.run("create namespace w-refused");
    let quota = object("v1", "ResourceQuota", "none", "spec: {hard: {pods: '0'}}");
    run.kubectl.run_with("-n w-refused apply --validate=false -f -", &quota);
    // The account of its pods comes from a controller, and so does what the quota counts.
    let apply = "-n w-refused apply --validate=false -f -";
    coracle_tests::eventually("the quota refuses a pod", LONG, || {
        let said = run.kubectl.try_with(apply, &pod("p", &idle())).err;
        said.contains("exceeded quota: none")
    });
    let wanted = [
        "pod/p in namespace w-refused does not exist",
        "a request to create it was refused at 20",
        "with 403 Forbidden by the admission plugin ResourceQuota",
        "resourcequota/none is used up: pods (0 of 0)",
    ];
    let ask = || run.why.run(&["pod/p", "-n", "w-refused"]);
    until(run, "refused pod", begun, ask, |answer| {
        answer.code == 2 && wanted.iter().all(|part| answer.err.contains(part))
    });
}

/// A server of a suite is reached at loopback, which is no endpoint.
pub fn loopback(run: &Run) {
    let ask = || run.why.run(&["service/kubernetes", "-n", "default"]);
    let wanted = ["trouble   api-server-unpublished", "is a loopback address", "--advertise ADDRESS"];
    until(run, "server on loopback", Instant::now(), ask, |answer| {
        answer.code == 1 && wanted.iter().all(|part| answer.out.contains(part))
    });
}

/// Of a pod that was there, both commands say that it was deleted.
pub fn deleted(run: &Run) {
    let begun = Instant::now();
    run.kubectl.run("create namespace w-deleted");
    let apply = "-n w-deleted apply --validate=false -f -";
    coracle_tests::eventually("a pod is accepted", LONG, || {
        run.kubectl.try_with(apply, &pod("gone", &idle())).ok
    });
    run.kubectl.run("-n w-deleted wait --for=condition=Ready pod/gone --timeout=90s");
    run.kubectl.run("-n w-deleted delete pod gone --now");
    let object = ["pod/gone", "-n", "w-deleted"];
    let said = "pod/gone in namespace w-deleted does not exist; it was deleted at 20";
    until(
        run,
        "deleted pod",
        begun,
        || run.why.run(&object),
        |answer| answer.code == 2 && answer.out.is_empty() && answer.err.contains(said),
    );
    // The node tells a moment later what it did.
    let ask = || Answer::of(&mut run.why.coracle(&[&["trace"][..], &object].concat()));
    until(run, "timeline of a deleted pod", Instant::now(), ask, |answer| {
        let drawn: Vec<&str> = answer.out.split_whitespace().collect();
        let drawn = drawn.join(" ");
        answer.code == 0
            && ["pod/gone deleted by kubectl", "gone after"].iter().all(|part| drawn.contains(part))
    });
}

/// Whether an object ever existed is known without Events, too: of a ConfigMap there are none.
pub fn existed(run: &Run) {
    run.kubectl.run("create namespace w-existed");
    run.kubectl.run("-n w-existed create configmap was");
    run.kubectl.run("-n w-existed delete configmap was");
    let ask = |object: &str| run.why.run(&[object, "-n", "w-existed"]);
    let said = "configmap/was in namespace w-existed does not exist; it was deleted at 20";
    until(
        run,
        "deleted ConfigMap",
        Instant::now(),
        || ask("configmap/was"),
        |answer| answer.code == 2 && answer.err.contains(said),
    );
    let (begun, answer) = (Instant::now(), ask("configmap/never"));
    let fine = answer.code == 2 && !answer.err.contains("it was");
    run.line(
        "ConfigMap that never was",
        begun,
        &format!("exit code {}: {}", answer.code, answer.err.trim()),
        !fine,
    );
}

/// Asks until the answer is right, and adds the line of the table.
fn until(
    run: &Run,
    what: &str,
    begun: Instant,
    ask: impl Fn() -> Answer,
    is_right: impl Fn(&Answer) -> bool,
) {
    loop {
        let answer = ask();
        let fine = is_right(&answer);
        if fine || begun.elapsed() > LONG {
            let text = format!("exit code {}: {}{}", answer.code, answer.out, answer.err.trim());
            return run.line(what, begun, &text, !fine);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// On a server that is not ours: as a plugin of kubectl, and the timeline that its Events give.
pub fn elsewhere(run: &Run) {
    let begun = Instant::now();
    let (_dir, path) = plugins();
    let mut plugin = run.kubectl.command(&["why", "deployment/d", "-n", "w-quota-refuses"]);
    let answer = Answer::of(plugin.env("PATH", &path));
    let fine = answer.code == 1
        && ["trouble   quota-refuses", "exceeded quota: few"].iter().all(|part| answer.out.contains(part));
    let text = format!("exit code {}: {}{}", answer.code, answer.out, answer.err);
    run.line("kubectl why on a server of others", begun, &text, !fine);

    run.kubectl.run("create namespace w-trace");
    run.kubectl.run_with("-n w-trace apply --validate=false -f -", &deployment("replicas: 0", &idle()));
    let answer = Answer::of(&mut run.why.coracle(&["trace", "deployment/d", "-n", "w-trace"]));
    let drawn: Vec<&str> = answer.out.split_whitespace().collect();
    let drawn = drawn.join(" ");
    let fine = answer.code == 0
        && ["deployment/d", "from conditions, container states and Events"]
            .iter()
            .all(|part| drawn.contains(part));
    let text = format!("exit code {}: {}{}", answer.code, answer.out, answer.err);
    run.line("coracle trace on a server of others", begun, &text, !fine);
}
