//! Three servers with three etcd members, and three nodes, each on a machine of its own.

use crate::network::{self, CLIENTS, Machine};
use crate::node::Node;
use crate::processes;
use crate::server::ServerProcess;
use coracle_tests::client::Target;
use coracle_tests::ha::members::{Members, Place};
use coracle_tests::lab::{Lab, run};
use coracle_tests::{eventually, pods, program};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const COUNT: usize = 3;
/// How long something may take on a busy machine.
pub const WAIT: Duration = Duration::from_secs(180);
/// What a member has for its data: enough for hours, and soon full.
const DISK: &str = "size=600m,mode=700";
/// Where the receivers of spans listen, one per server.
pub const RECEIVERS: u16 = 4400;

/// Who runs etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// The servers: `--datastore etcd`.
    Managed,
    /// Whoever runs the trial, as on clusters that have an etcd already: `--datastore etcd://…`.
    External,
}

pub struct World {
    pub dir: PathBuf,
    pub servers: Mutex<Vec<ServerProcess>>,
    pub members: Mutex<Option<Members>>,
    pub nodes: Vec<Node>,
    pub machines: Vec<Machine>,
    pub targets: Arc<Vec<Target>>,
}

impl World {
    pub fn start(store: Store) -> Self {
        let dir = std::env::temp_dir().join("world");
        std::fs::create_dir(&dir).unwrap();
        // In memory: the trial is about processes and networks, not about the disk of this machine.
        run("mount", &["-t", "tmpfs", "-o", "mode=711", "tmpfs", &dir.display().to_string()]);
        network::make_bridge();
        let lab = Lab { dir: dir.clone() };
        let machine = |kind: &str, number: usize, base: usize| {
            Machine::new(&lab, &format!("{kind}-{}", number + 1), base + number + 1)
        };
        let machines: Vec<Machine> = (0..COUNT).map(|number| machine("server", number, 10)).collect();
        let nodes = (0..COUNT).map(|number| machine("node", number, 20));
        let nodes: Vec<Node> =
            nodes.map(|machine| Node::new(machine.clone(), dir.join(&machine.name))).collect();
        for machine in &machines {
            let disk = dir.join(&machine.name).join("etcd");
            std::fs::create_dir_all(&disk).unwrap();
            run("mount", &["-t", "tmpfs", "-o", DISK, "tmpfs", &disk.display().to_string()]);
        }
        let members = (store == Store::External).then(|| Members::start(places(&dir, &machines)));
        let mut servers: Vec<ServerProcess> = Vec::new();
        for (number, machine) in machines.iter().enumerate() {
            let mut flags = vec![format!("--otlp-endpoint=http://{CLIENTS}:{}", RECEIVERS + number as u16)];
            flags.push("--datastore".into());
            flags.push(members.as_ref().map_or("etcd".into(), |members| members.datastore(number)));
            let own = dir.join(&machine.name);
            if let Some(first) = servers.first() {
                match store {
                    Store::Managed => flags.extend(join_flags(first)),
                    Store::External => copy_keys(&first.dir, &own),
                }
            }
            let mut server = ServerProcess::new(machine.clone(), own, flags);
            server.start();
            serves(&server);
            servers.push(server);
        }
        let first = servers[0].dir.clone();
        let targets = servers.iter().map(|server| Target::new(&first, &server.url()).unwrap()).collect();
        let targets = Arc::new(targets);
        let (servers, members) = (Mutex::new(servers), Mutex::new(members));
        let mut world = Self { dir, servers, members, nodes, machines, targets };
        world.start_nodes();
        world
    }

    fn start_nodes(&mut self) {
        let archive = pods::archive(&self.dir);
        let (url, token) = {
            let servers = self.servers.lock().unwrap();
            (servers[0].url(), token(&servers[0].dir, &[]))
        };
        for node in &mut self.nodes {
            pods::import(&node.images(), &archive);
            node.join(&url, &token);
            node.start();
        }
    }

    /// Whether every server is ready, every node and, where the trial runs it, every member of etcd.
    pub fn is_healthy(&self) -> bool {
        (0..COUNT).all(|number| self.is_well(number)) && self.ready_nodes() == COUNT
    }

    /// Whether a server is ready, which it is with a member of its own that is, and its member where the trial runs it.
    pub fn is_well(&self, number: usize) -> bool {
        let url = self.servers.lock().unwrap()[number].url();
        is_ready(&url) && self.members.lock().unwrap().as_ref().is_none_or(|members| members.serves(number))
    }

    /// How many nodes are ready, as the first server says.
    fn ready_nodes(&self) -> usize {
        let (url, pki) = {
            let servers = self.servers.lock().unwrap();
            (servers[0].url(), servers[0].dir.join("pki"))
        };
        let mut curl = Command::new("curl");
        curl.args(["-s", "--max-time", "5", &format!("{url}/api/v1/nodes")]);
        for (flag, file) in [("--cacert", "ca.crt"), ("--cert", "admin.crt"), ("--key", "admin.key")] {
            curl.arg(flag).arg(pki.join(file));
        }
        let list: Value =
            curl.output().ok().and_then(|list| serde_json::from_slice(&list.stdout).ok()).unwrap_or_default();
        let nodes = list["items"].as_array().into_iter().flatten();
        nodes.filter(|node| pods::condition(&node["status"], "Ready") == "True").count()
    }

    /// Kills a member of etcd.
    pub fn kill_member(&self, number: usize) {
        match self.members.lock().unwrap().as_mut() {
            Some(members) => members.kill(number),
            // Its server starts it again.
            None => {
                let dir = self.etcd_dir(number).display().to_string();
                processes::kill(|command| command.contains(&dir) && is_etcd(command));
            }
        }
    }

    /// Starts a member that is dead.
    pub fn restart_member(&self, number: usize) {
        if let Some(members) = self.members.lock().unwrap().as_mut() {
            members.restart(number);
        }
    }

    /// The directory of a member, which is a small file system.
    pub fn etcd_dir(&self, number: usize) -> PathBuf {
        self.dir.join(&self.machines[number].name).join("etcd")
    }

    /// Copies all logs.
    pub fn keep_logs(&self, to: &Path) {
        let machines = self.machines.iter().chain(self.nodes.iter().map(|node| &node.machine));
        for name in machines.map(|machine| &machine.name) {
            for log in ["log", "etcd.log", "agent.log"] {
                let from = self.dir.join(name).join(log);
                if from.exists() {
                    std::fs::copy(from, to.join(format!("{name}.{log}"))).unwrap();
                }
            }
        }
    }

    /// What everybody said last.
    pub fn tell(&self) {
        for server in self.servers.lock().unwrap().iter() {
            println!("--- {}\n{}", server.machine.name, server.told());
        }
        for node in &self.nodes {
            println!("--- {}\n{}", node.machine.name, node.told());
        }
    }
}

fn is_etcd(command: &str) -> bool {
    command.split('\0').next().is_some_and(|program| program.ends_with("etcd"))
}

fn places(dir: &Path, machines: &[Machine]) -> Vec<Place> {
    let place = |machine: &Machine| Place {
        prefix: machine.prefix(),
        host: machine.address.clone(),
        client_port: 2379,
        peer_port: 2380,
        dir: dir.join(&machine.name),
    };
    machines.iter().map(place).collect()
}

/// How another server joins.
fn join_flags(first: &ServerProcess) -> Vec<String> {
    let token = token(&first.dir, &["--server"]);
    vec!["--join".into(), first.url(), "--token".into(), token]
}

/// Servers on an etcd of others have the keys that an operator gave them.
fn copy_keys(from: &Path, to: &Path) {
    for name in ["pki", "join-secret"] {
        if from.join(name).exists() {
            run("cp", &["-a", &from.join(name).display().to_string(), &to.display().to_string()]);
        }
    }
}

fn token(data_dir: &Path, args: &[&str]) -> String {
    let mut create = Command::new(program("coracle"));
    let output = create.args(["token", "create", "--data-dir"]).arg(data_dir).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn is_ready(url: &str) -> bool {
    let answer = Command::new("curl").args(["-sk", "--max-time", "2", &format!("{url}/readyz")]).output();
    answer.is_ok_and(|answer| answer.stdout == b"ok")
}

fn serves(server: &ServerProcess) {
    let begun = Instant::now();
    while !is_ready(&server.url()) {
        assert!(begun.elapsed() < WAIT, "{} does not serve:\n{}", server.machine.name, server.told());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until everything is well again.
pub fn recovered(world: &World, within: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < within {
        if world.is_healthy() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    false
}

/// Waits for something, and shows what everybody said if it does not come.
pub fn wait(world: &World, what: &str, check: impl FnMut() -> bool) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually(what, WAIT, check)));
    if let Err(panic) = outcome {
        world.tell();
        std::panic::resume_unwind(panic);
    }
}
