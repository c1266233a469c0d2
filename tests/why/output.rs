//! Other ways to ask, and bad input.

use crate::ask::Answer;
use crate::run::Run;
use coracle_tests::program;
use std::time::Instant;

/// As text, and as a plugin of kubectl.
pub fn for_people(run: &Run) {
    let plugins = tempfile::tempdir().expect("a temporary directory");
    std::os::unix::fs::symlink(program("coracle"), plugins.path().join("kubectl-why")).expect("a link");
    let path = format!("{}:{}", plugins.path().display(), std::env::var("PATH").unwrap_or_default());
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
            run.why.run(&["pod/p", "-n", "w-exit-code", "--as", "w-stranger"]),
            3,
            "cannot read pod/p",
        ),
    ] {
        let fine = answer.code == code && answer.err.contains(said);
        run.line(what, begun, &format!("exit code {}: {}", answer.code, answer.err.trim()), !fine);
    }
}
