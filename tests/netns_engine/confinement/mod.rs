//! What a process can see of its confinement, through our own OCI runtime and through runc: all of it, in many security
//! contexts. Each context runs the same program twice, in pods of either handler, and compares every line that it prints.

mod contexts;
mod mounts;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use coracle_engine::runtime::{Containers, Execs, Sandboxes};
use coracle_proto::cri;
use coracle_tests::skipped;

use self::contexts::{CONTEXTS, Context, FLAG, WITH_FLAG};
use crate::node::Node;

/// What differs and is not mended: how the lines begin, and why. `docs/howto/runtimes.md` lists it, too.
const KNOWN: [(&str, &str); 2] = [
    ("keyring keyring;0;0;3f1", "in a user namespace, everybody may search the keyring that runc makes"),
    ("command keyring keyring;0;0;3f1", "likewise; its commands do not always find that of the container"),
];

/// The program that looks around: `probe.c`, linked statically.
fn probe(dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("netns_engine/confinement/probe.c");
    let program = dir.join("probe");
    let mut command = Command::new("cc");
    command.args(["-static", "-O1", "-o"]).arg(&program).arg(source);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "gcc is needed, see scripts/deps: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// Everything that a pod of this handler shows, one line each.
async fn seen(node: &Node, probe: &Path, context: &Context, handler: &str) -> Vec<String> {
    let pod = "confined";
    let mut sandbox = node.sandbox_config(pod);
    let mut config = node.container_config("c", &["/probe", "one", "two"]);
    config.mounts.push(cri::Mount {
        container_path: "/probe".into(),
        host_path: probe.display().to_string(),
        readonly: true,
        ..Default::default()
    });
    contexts::base(&mut sandbox, &mut config);
    (context.change)(&mut sandbox, &mut config);
    let sandbox_id = node.cri.run_pod_sandbox(sandbox.clone(), handler).await.unwrap();
    let id = node.cri.create_container(&sandbox_id, config, sandbox).await.unwrap();
    let name = context.name;
    node.cri
        .start_container(&id)
        .await
        .unwrap_or_else(|e| panic!("{name} by {handler}: {e}\n{}", node.log()));
    let log = log(node, pod, &id).await;
    let pid = node.pid(&id).await;
    let mut lines: Vec<String> = log.iter().map(|line| plain(line, &[&id, &sandbox_id])).collect();
    lines.extend(namespaces(pid));
    // A command sees what the container's own process sees.
    let command = vec!["/probe".to_owned(), "--command".to_owned()];
    let output = node.cri.exec_sync(&id, command, std::time::Duration::from_secs(60)).await.unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.extend(output.lines().map(|line| format!("command {}", plain(line, &[&id, &sandbox_id]))));
    node.cri.remove_pod_sandbox(&sandbox_id).await.unwrap();
    let _ = fs::remove_dir_all(node.path("logs").join(pod));
    lines
}

/// The output of the probe, once it is complete.
async fn log(node: &Node, pod: &str, id: &str) -> Vec<String> {
    let begun = std::time::Instant::now();
    loop {
        let text = node.container_log(pod, "c");
        // `stream tag text`
        let texts = text.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap_or_default().trim_end());
        let lines: Vec<String> = texts.map(str::to_owned).collect();
        if lines.last().is_some_and(|line| line == "end") {
            return lines;
        }
        assert!(begun.elapsed().as_secs() < 60, "{id} says nothing more: {text}\n{}", node.log());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// A line without what is different in every pod.
fn plain(line: &str, ids: &[&str]) -> String {
    ids.iter().fold(line.to_owned(), |line, id| line.replace(id, "ID"))
}

/// Which namespaces are those of the host, seen from outside.
fn namespaces(pid: i32) -> Vec<String> {
    let kinds = ["cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "user", "uts"];
    let link = |whose: &str, kind: &str| fs::read_link(format!("/proc/{whose}/ns/{kind}")).ok();
    let host = |kind: &str| link(&pid.to_string(), kind) == link("self", kind);
    kinds.iter().map(|kind| format!("namespace {kind} host={}", host(kind))).collect()
}

/// Whether a runtime accepts a flag in seccomp profiles; those that accept none do not list any.
fn has_seccomp_flag(runtime: &str, flag: &str) -> bool {
    let output = Command::new(runtime).arg("features").output().unwrap();
    let features: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let flags = features.pointer("/linux/seccomp/supportedFlags").and_then(|flags| flags.as_array());
    flags.is_some_and(|flags| flags.iter().any(|known| known == flag))
}

/// Fails with all lines that differ.
async fn compare(contexts: impl IntoIterator<Item = &'static Context>) {
    let node = Node::start().await;
    let probe = probe(&node.path("."));
    let mut wrong = Vec::new();
    for context in contexts {
        let theirs = seen(&node, &probe, context, "runc").await;
        let ours = seen(&node, &probe, context, "coracle").await;
        let different = differences(&ours, &theirs);
        wrong.extend(different.into_iter().map(|line| format!("{}: {line}", context.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Lines of one and not of the other. Both may have a line more than once, in another order.
fn differences(ours: &[String], theirs: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
    for line in ours {
        *counts.entry(line).or_default() += 1;
    }
    for line in theirs {
        *counts.entry(line).or_default() -= 1;
    }
    let known = |line: &str| KNOWN.iter().any(|(begin, _)| line.starts_with(begin));
    let differing = counts.into_iter().filter(|(line, count)| *count != 0 && !known(line));
    differing
        .map(|(line, count)| format!("{} {line}", if count > 0 { "coracle" } else { "runc   " }))
        .collect()
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_process_sees_what_it_sees_with_runc() {
    if !crate::is_own_runtime_wanted("confinement::a_process_sees_what_it_sees_with_runc") {
        return;
    }
    compare(CONTEXTS.iter().chain(mounts::CONTEXTS)).await;
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_process_with_a_flag_of_seccomp_sees_what_it_sees_with_runc() {
    let test = "confinement::a_process_with_a_flag_of_seccomp_sees_what_it_sees_with_runc";
    if !crate::is_own_runtime_wanted(test) {
        return;
    }
    if !has_seccomp_flag("runc", FLAG) {
        let reason = format!("the installed runc refuses {FLAG}: `runc features` does not list it; 1.2 can");
        return skipped(&format!("netns_engine::{test}"), &reason);
    }
    compare([&WITH_FLAG]).await;
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn the_order_of_mounts_and_variables_is_that_of_runc() {
    if !crate::is_own_runtime_wanted("confinement::the_order_of_mounts_and_variables_is_that_of_runc") {
        return;
    }
    let node = Node::start().await;
    let probe = probe(&node.path("."));
    let ordered = |lines: Vec<String>| -> Vec<String> {
        lines.into_iter().filter(|line| line.starts_with("mount ") || line.starts_with("env ")).collect()
    };
    let context = &CONTEXTS[0];
    let ours = ordered(seen(&node, &probe, context, "coracle").await);
    assert_eq!(ours, ordered(seen(&node, &probe, context, "runc").await));
}
