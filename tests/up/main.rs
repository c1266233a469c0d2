//! What a newcomer runs: `coracle up`, `down` and `doctor`, in a sandbox where everything that is left can be seen. Needs root.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

use coracle_tests::{eventually, program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Where the programs were built.
fn bin() -> PathBuf {
    program("coracle").parent().unwrap().to_owned()
}

/// Runs a script as the first process of new pid, mount, network and host name namespaces.
fn in_sandbox(script: &str) -> Output {
    assert!(nix::unistd::geteuid().is_root(), "this suite makes namespaces and mounts: run it as root");
    Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child"])
        .args(["--propagation", "private", "bash"])
        .arg(Path::new(TREE).join("tests/up").join(script))
        .env("BIN", bin())
        .env("TREE", TREE)
        .env("CORACLE_OUTBOUND", "false")
        .output()
        .unwrap()
}

#[test]
fn down_leaves_nothing_and_a_second_up_changes_nothing() {
    let output = in_sandbox("leaves_nothing.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("nothing is left\n"), "{text}");
}

#[test]
fn pods_reach_what_the_machine_reaches_or_are_refused_at_once() {
    let output = in_sandbox("way_out.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("in and out\n"), "{text}");
}

#[test]
fn a_cluster_is_as_before_and_what_is_not_done_is_said() {
    let output = in_sandbox("as_before.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("as before\n"), "{text}");
}

#[test]
fn the_demo_answers_and_ends_with_the_stages_of_its_timeline() {
    let output = in_sandbox("demo.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("answered and explained\n"), "{text}");
    // How long it took.
    print!("{text}");
}

#[test]
fn several_clusters_run_side_by_side_and_are_reached_from_the_machine() {
    let output = in_sandbox("several.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("side by side\n"), "{text}");
}

#[test]
fn what_is_wrong_is_said_in_one_line_and_nothing_is_changed() {
    let output = in_sandbox("bad_input.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("said, and nothing changed\n"), "{text}");
}

#[test]
fn a_reset_removes_the_state_of_server_and_node_and_nothing_else() {
    let output = in_sandbox("reset.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("reset\n"), "{text}");
}

#[test]
fn nodes_come_and_go_while_the_cluster_runs() {
    let output = in_sandbox("nodes.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("come and gone\n"), "{text}");
}

#[test]
fn pods_pull_what_is_pushed_to_the_registry_of_the_cluster() {
    let output = in_sandbox("registry.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("pushed and pulled\n"), "{text}");
}

#[test]
fn images_are_pulled_from_a_registry_with_a_private_ca() {
    let output = in_sandbox("private_ca.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("trusted by its CA\n"), "{text}");
}

#[test]
fn install_changes_and_removes_only_what_it_wrote() {
    installs("installs.sh", "only its own\n");
}

#[test]
fn packages_are_reproducible_and_leave_nothing() {
    installs("packages.sh", "packed and unpacked\n");
}

#[test]
fn a_release_is_reproducible_and_what_is_not_signed_is_refused() {
    installs("release.sh", "made, signed and checked\n");
}

#[test]
fn a_release_shows_its_page_and_leaves_nothing() {
    assert!(nix::unistd::geteuid().is_root(), "this suite makes namespaces and mounts: run it as root");
    let script = Path::new(TREE).join("tests/up/first_run.sh");
    let output = Command::new("bash").arg(script).env("TREE", TREE).env("BIN", bin()).output().unwrap();
    let text = text(&output);
    assert!(output.status.success() && text.contains("nothing is left of the first run\n"), "{text}");
    // How long it took.
    print!("{text}");
}

#[test]
fn an_rpm_package_is_reproducible_and_leaves_nothing() {
    installs("rpm.sh", "in and out of a root\n");
}

/// Runs a script that installs into a directory.
fn installs(script: &str, last: &str) {
    let script = Path::new(TREE).join("tests/up").join(script);
    let output = Command::new("bash").arg(script).env("TREE", TREE).output().unwrap();
    let text = text(&output);
    assert!(output.status.success() && text.ends_with(last), "{text}");
}

/// What `coracle up` puts between itself and a program.
fn supervise(command: &[&str]) -> Command {
    let mut supervise = Command::new(program("coracle"));
    supervise.args(["supervise", "--"]).args(command);
    supervise
}

#[test]
fn a_program_that_fails_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    // It asks to be started again, is killed, and ends.
    let script = r#"echo >> "$0"; case $(wc -l < "$0") in 1) exit 75 ;; 2) kill -9 $$ ;; esac"#;
    let output = supervise(&["sh", "-c", script]).arg(&runs).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 3);
    assert_eq!(text(&output).matches("failed and is started again").count(), 2, "{}", text(&output));
    // One that never ran has said what is wrong.
    let output = supervise(&["sh", "-c", "exit 3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("failed and is not started again"), "{}", text(&output));
}

#[test]
fn a_program_ends_with_the_process_that_keeps_it_running() {
    const WAIT: Duration = Duration::from_secs(20);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut supervisor = supervise(&["sleep", "600"]).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", supervisor.id());
        let child = || std::fs::read_to_string(&children).ok()?.trim().parse::<u32>().ok();
        eventually("it is started", WAIT, || child().is_some());
        let child = child().unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        eventually("it runs", WAIT, || stat().contains("(sleep)"));
        kill(Pid::from_raw(supervisor.id() as i32), signal).unwrap();
        supervisor.wait().unwrap();
        eventually("it is gone", WAIT, || stat().is_empty() || stat().contains(") Z"));
    }
}

#[test]
fn doctor_finds_this_machine_fit_and_says_what_is_missing_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let doctor = |flags: &[&str]| {
        let mut command = Command::new(program("coracle"));
        command.args(["doctor", "--data-dir"]).arg(dir.path()).args(flags);
        command
    };
    let outcome = |report: &Value, name: &str| {
        let findings = report["findings"].as_array().unwrap();
        let found = findings.iter().find(|f| f["name"] == name);
        found.unwrap_or_else(|| panic!("{name} in {report}"))["outcome"].as_str().unwrap().to_owned()
    };
    let output = doctor(&["--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["overlayfs", "veth", "bridge", "vxlan", "nftables nat", "runc or crun or youki"] {
        assert_eq!(outcome(&report, name), "ok", "{report:#}");
    }
    // Nothing stays of what was tried.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    let output = doctor(&["--json"]).env("PATH", "").env("CORACLE_DOCTOR_OUTPUT", "text").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        (report["fit"].as_bool(), outcome(&report, "runc or crun or youki").as_str()),
        (Some(false), "missing")
    );
    assert!(text(&output).contains("apt-get install runc"));
    // What could not be tried says nothing of the kernel; links need no program.
    for (name, expected) in [("veth", "ok"), ("nftables nat", "limited")] {
        assert_eq!(outcome(&report, name), expected, "{report:#}");
    }
}

#[test]
fn the_usage_is_the_command_s_own() {
    let output = Command::new(program("coracle")).args(["up", "--image", "x", "--wrong"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("Usage: coracle up [OPTIONS]\n"), "{}", text(&output));
}

#[test]
fn daily_commands_need_no_cluster() {
    let run = |line: &str| {
        let output = Command::new(program("coracle")).args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let version: Value = serde_json::from_str(&run("version -o json")).unwrap();
    assert!(version["kubernetesVersion"].as_str().unwrap().starts_with("v1."), "{version}");
    assert!(run("version -o yaml").contains("program: coracle\n"));
    // The environment comes before the default, and a flag before the environment.
    for (flags, begins) in [(vec![], "{"), (vec!["-o", "text"], "coracle ")] {
        let mut command = Command::new(program("coracle"));
        let output =
            command.arg("version").args(&flags).env("CORACLE_VERSION_OUTPUT", "json").output().unwrap();
        assert!(text(&output).starts_with(begins), "{flags:?}: {}", text(&output));
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&format!("completion {shell}")).contains("publish"), "{shell}");
    }
    let dir = tempfile::tempdir().unwrap();
    // Too long for an argument.
    let script = dir.path().join("completion.bash");
    std::fs::write(&script, run("completion bash")).unwrap();
    assert!(Command::new("bash").arg("-n").arg(script).status().unwrap().success());

    let (server, agent) = (dir.path().join("server.yaml"), dir.path().join("agent.yaml"));
    std::fs::write(&server, "bind: 127.0.0.1:0\nlogLevel: debug\n").unwrap();
    std::fs::write(&agent, "kubeconfig: /k\nmaxPods: many\n").unwrap();
    let validate = |files: &[&Path]| {
        let mut command = Command::new(program("coracle"));
        command.args(["config", "validate"]).args(files).output().unwrap()
    };
    assert_eq!(validate(&[&server]).status.code(), Some(0));
    let output = validate(&[&server, &agent]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("--max-pods"), "{}", text(&output));
    // The agent says the same of its own files, and lists images without a node.
    let agent_says = |words: &[&str], file: &Path| {
        let output = Command::new(program("coracle-agent")).args(words).arg(file).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), answer)
    };
    let (code, answer) = agent_says(&["config", "validate", "-o", "json"], &agent);
    assert_eq!((code, answer[0]["role"].as_str()), (Some(1), Some("agent")), "{answer}");
    assert!(answer[0]["problem"].as_str().unwrap().contains("--max-pods"), "{answer}");
    let (code, answer) =
        agent_says(&["image", "ls", "-o", "json", "--image-dir"], &dir.path().join("images"));
    assert_eq!((code, answer), (Some(0), serde_json::json!([])));
    let output =
        Command::new(program("coracle")).args(["kubeconfig", "--data-dir"]).arg(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("there is no cluster in"), "{}", text(&output));
}

/// A server as systemd runs it: with a socket for notifications, options in the environment and a log in JSON.
#[test]
fn a_server_is_a_service() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let log = dir.path().join("log");
    let file = dir.path().join("server.yaml");
    std::fs::write(&file, "bind: 127.0.0.1:1\nadvertise: from-the-file\nlogFormat: json\n").unwrap();
    let mut server = Command::new(program("coracle"))
        .args(["server", "--api-only", "--data-dir"])
        .arg(dir.path().join("data"))
        .arg("--config")
        .arg(&file)
        .env("CORACLE_SERVER_BIND", "127.0.0.1:0")
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000")
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut seen: Vec<String> = Vec::new();
    while !["READY=1", "WATCHDOG=1"].iter().all(|wanted| seen.iter().any(|message| message == wanted)) {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{seen:?}: {error}"));
        seen.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
    }
    kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM).unwrap();
    assert!(server.wait().unwrap().success());
    let log = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let serving = lines.iter().find(|line| line["message"] == "serving").unwrap_or_else(|| panic!("{log}"));
    assert!(serving["url"].as_str().unwrap().contains("from-the-file"), "{serving}");
}

#[test]
fn the_reference_is_what_the_programs_say() {
    let mut check = Command::new(Path::new(TREE).join("scripts/docs"));
    let output = check.args(["--reference", "--check"]).env("CORACLE_BIN", bin()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn who_ran_sudo_builds() {
    installs("builder.sh", "built by its user\n");
}

#[test]
fn without_root_it_says_so() {
    let copy = tempfile::tempdir().unwrap();
    let script = copy.path().join("scripts");
    let copied =
        Command::new("cp").arg("-r").arg(Path::new(TREE).join("scripts")).arg(&script).status().unwrap();
    assert!(copied.success());
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    std::fs::set_permissions(copy.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = command.arg(script.join("up")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("needs root: sudo scripts/up"), "{}", text(&output));
}
