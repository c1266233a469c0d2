//! Servers on loopback that run the members of one etcd themselves: `--datastore etcd`.

use crate::etcd::free_port;
use crate::program;
use crate::server::Server;
use std::process::Command;

/// Flags of a server with a member on ports of its own.
pub fn flags() -> Vec<String> {
    let [client, peer] = [free_port(), free_port()].map(|port| port.to_string());
    ["--datastore", "etcd", "--etcd-client-port", &client, "--etcd-peer-port", &peer]
        .map(str::to_owned)
        .to_vec()
}

/// Starts a server in a directory.
pub fn start_in(dir: tempfile::TempDir, more: &[&str]) -> Server {
    let flags = flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Server::in_directory(dir, &flags, &[])
}

/// Starts the first server of a cluster.
///
/// # Panics
/// When it does not start, or there is no temporary directory.
pub fn start(more: &[&str]) -> Server {
    start_in(tempfile::tempdir().expect("a temporary directory"), more)
}

/// Starts a server that joins another one. Returns when its member votes.
///
/// # Panics
/// When it does not start, or there is no temporary directory.
pub fn join(first: &Server, more: &[&str]) -> Server {
    let (url, token) = (first.url(), token(first));
    let join = ["--join", &url, "--token", &token];
    start_in(tempfile::tempdir().expect("a temporary directory"), &[&join[..], more].concat())
}

/// A token with which servers join.
///
/// # Panics
/// When the server does not make one.
pub fn token(server: &Server) -> String {
    let mut command = Command::new(program("coracle"));
    command.args(["token", "create", "--server", "--kubeconfig"]).arg(server.kubeconfig());
    let output = command.output().expect("coracle can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The process of a server's member.
pub fn etcd_pid(server: &Server) -> Option<u32> {
    let arg = format!("--data-dir={}", server.data_dir().join("etcd").display());
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == arg.as_bytes())
    })
}
