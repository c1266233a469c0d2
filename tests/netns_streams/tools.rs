//! The cluster with its pods, and kubectl with pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};

use coracle_tests::kubectl::{self, Kubectl};

use crate::cluster::{Cluster, IMAGE};

/// What the parts share.
pub struct Stage {
    pub cluster: Cluster,
    /// The oldest and the newest.
    pub kubectls: Vec<Kubectl>,
    /// Descriptors of server, agent and keeper when nothing was done yet.
    pub descriptors: [usize; 3],
}

/// The pods that are there from the beginning.
pub const PODS: [&str; 5] = ["talk", "web", "again", "pair", "ended"];

pub const TALK: &str =
    "for i in 1 2 3 4 5; do echo line $i; done; echo oops >&2; sleep 1; echo last; exec sleep 3600";

impl Stage {
    pub fn start() -> Self {
        // Small enough that logs are cut while they are followed.
        let cluster = Cluster::start_with("--container-log-max-size 256Ki");
        let kubectls = kubectl::oldest_and_newest(&cluster.server.kubeconfig());
        let container = |name: &str, script: &str| {
            format!("{{name: {name}, image: {IMAGE}, command: [sh, -c, {script:?}]}}")
        };
        let always = |name: &str, script: &str| format!("containers: [{}]", container(name, script));
        cluster.pod("talk", &always("c", TALK));
        cluster.pod(
            "web",
            &always("c", "mkdir -p /www; echo hello > /www/index.html; exec httpd -f -p 80 -h /www"),
        );
        cluster.pod("again", &always("c", "echo run; exit 1"));
        cluster.pod(
            "pair",
            &format!(
                "containers: [{}, {}]",
                container("a", "echo from a; exec sleep 3600"),
                container("b", "echo from b; exec sleep 3600")
            ),
        );
        cluster.pod(
            "ended",
            &format!(
                "restartPolicy: Never, containers: [{}, {}]",
                container("done", "echo bye"),
                container("stays", "exec sleep 3600")
            ),
        );
        for name in ["talk", "web", "pair"] {
            cluster.wait_ready(name);
        }
        let mut stage = Self { cluster, kubectls, descriptors: [0; 3] };
        stage.descriptors = stage.open();
        stage
    }

    /// Descriptors that server, agent and keeper have open.
    pub fn open(&self) -> [usize; 3] {
        [self.cluster.server.pid(), self.cluster.agent_pid(), self.cluster.keeper_pid()].map(open_files)
    }

    pub fn newest(&self) -> &Kubectl {
        self.kubectls.last().unwrap()
    }
}

/// How many descriptors a process has open.
fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// A kubectl that runs.
pub struct Running {
    pub child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(kubectl: &Kubectl, args: &[&str]) -> Self {
        let mut child = kubectl
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    pub fn say(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits for its end: exit code, the rest of its output, its errors.
    pub fn end(mut self) -> (Option<i32>, String, String) {
        drop(self.child.stdin.take());
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), out, err)
    }

    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command to its end: exit code, output, errors.
pub fn run(kubectl: &Kubectl, args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut running = Running::start(kubectl, args);
    running.say(input);
    running.end()
}

/// A shell of root with a terminal around kubectl.
pub fn in_terminal(kubectl: &Kubectl, args: &[&str], input: &str) -> String {
    let command = kubectl.command(args);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut terminal = std::process::Command::new("script");
    terminal.args(["-qefc", &format!("stty rows 33 cols 111; {}", words.join(" ")), "/dev/null"]);
    for (key, value) in command.get_envs() {
        terminal.env(key, value.unwrap());
    }
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (mut stdout, mut seen) = (child.stdout.take().unwrap(), Vec::new());
    // A terminal drops what comes before it is set up; then the shell shows its prompt.
    let mut byte = [0];
    while !seen.contains(&b'#') && stdout.read(&mut byte).unwrap() == 1 {
        seen.extend(byte);
    }
    stdin.write_all(input.as_bytes()).unwrap();
    stdout.read_to_end(&mut seen).unwrap();
    child.wait().unwrap();
    drop(stdin);
    String::from_utf8_lossy(&seen).into_owned()
}
