//! `coracle up` and `coracle down`: a whole cluster on this machine that leaves the machine as it was. Server and nodes
//! live in network namespaces of their own, joined by a bridge inside them; the host sees one listener on loopback and
//! some processes. A node is a holder process that keeps the node's namespaces, and an agent that runs inside them. Server and
//! agents are started again when they fail.

// What was asked for, and what is as before.
mod options;
// What was started, on disk.
mod state;
// Links and addresses between the namespaces.
mod network;
// Starting and ending processes.
mod process;
// Starting programs again that failed.
mod supervise;
// The nodes' way out to the machine's network.
mod outbound;
// Packet forwarding of the hub.
mod rules;
// The end of all that.
mod down;

pub use down::{DownArgs, down};
pub use options::UpArgs;
pub(crate) use options::directory;
pub use supervise::{SuperviseArgs, supervise};

use anyhow::{Context, bail};
use coracle_pki::authority::{Authority, Profile};
use coracle_pki::kubeconfig;
use options::PORT;
use outbound::OutboundSetup;
use state::{Node, Process, State};
use std::io::{ErrorKind, PipeReader};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The server's address on the bridge.
const HUB: &str = "10.89.0.1";
/// Timeout for the start of a process.
const PATIENCE: Duration = Duration::from_secs(60);

/// Address of the API of a cluster on this machine, from its state or the default.
pub fn address(data_dir: &Path) -> SocketAddr {
    let state = State::read(data_dir).ok().flatten();
    state.and_then(|state| state.bind).unwrap_or(options::BIND)
}

/// Starts what is not running and waits until every node is ready.
pub fn up(args: &UpArgs) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("coracle up makes namespaces, bridges and mounts, which needs root");
    }
    std::fs::create_dir_all(&args.data_dir).with_context(|| args.data_dir.display().to_string())?;
    let mut state = State::read(&args.data_dir)?.unwrap_or_default();
    let (args, warnings) = &options::merge(args, &mut state);
    for warning in warnings {
        eprintln!("{warning}");
    }
    let before = Instant::now();
    let mut outbound = OutboundSetup::plan(args.outbound, &mut state, &args.data_dir);
    ensure_server(args, &mut state, &mut outbound)?;
    outbound.begin(&mut state)?;
    for number in 1..=state.node_count {
        ensure_node(args, &mut state, number)?;
    }
    outbound.finish(&mut state)?;
    let kubeconfig = args.data_dir.join("admin.kubeconfig");
    println!(
        "cluster up in {:.2} s: API server and {} node(s)",
        before.elapsed().as_secs_f64(),
        state.nodes.len()
    );
    println!("export KUBECONFIG={}", kubeconfig.display());
    Ok(())
}

fn ensure_server(args: &UpArgs, state: &mut State, outbound: &mut OutboundSetup) -> anyhow::Result<()> {
    if state.server.as_ref().is_some_and(Process::alive) {
        return Ok(());
    }
    // First: who cannot have the address has started nothing.
    let listener = listen(args.bind.unwrap_or(options::BIND))?;
    let hub = match state.hub.as_ref().filter(|hub| hub.alive()) {
        Some(hub) => hub.clone(),
        None => {
            // The nodes hang on the old hub's bridge: they are made anew.
            down::end_nodes(state);
            state.nodes.clear();
            let hub = process::hold("coracle-hub", &outbound.ensure_resolv_conf()?)?;
            network::make_hub(&hub, HUB)?;
            state.hub = Some(hub.clone());
            state.write(&args.data_dir)?;
            hub
        }
    };
    // It comes up while the server does.
    outbound.begin(state)?;
    state.bind = Some(listener.local_addr()?);
    let log = args.data_dir.join("server.log");
    let mut flags: Vec<String> = vec![
        "server".into(),
        "--data-dir".into(),
        args.data_dir.display().to_string(),
        "--bind".into(),
        format!("0.0.0.0:{PORT}"),
        "--advertise".into(),
        HUB.into(),
    ];
    flags.extend(args.server_flags.iter().cloned());
    let program = process::beside("coracle")?;
    let (server, ready) = start_supervised(&hub, &program, flags, &log, Some(listener.as_raw_fd()))?;
    state.server = Some(server.clone());
    state.write(&args.data_dir)?;
    wait("the API server serves", &log, &server, &ready)
}

fn listen(bind: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(bind).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => anyhow::anyhow!(
            "{bind} is in use already: choose another address (--bind 127.0.0.1:0 takes a free one); \
             a second cluster needs a --data-dir of its own, too"
        ),
        _ => anyhow::Error::from(error).context(format!("listen on {bind}")),
    })
}

fn ensure_node(args: &UpArgs, state: &mut State, number: usize) -> anyhow::Result<()> {
    let name = format!("node-{number}");
    let hub = state.hub.clone().context("the hub is up")?;
    let known = state.nodes.iter().position(|node| node.name == name);
    let mut node = match known.map(|at| state.nodes.remove(at)).filter(|node| node.holder.alive()) {
        Some(node) => node,
        None => {
            let holder = process::hold(&name, &outbound::resolv_conf(&args.data_dir))?;
            let address = network::attach(&hub, &holder, number, HUB)?;
            let address6 =
                match server_flag(args, "--cluster-cidr").is_some_and(|ranges| ranges.contains(':')) {
                    true => Some(network::attach_ipv6(&hub, &holder, number)?),
                    false => None,
                };
            Node { name: name.clone(), holder, agent: None, address, address6 }
        }
    };
    let running = node.agent.as_ref().is_some_and(Process::alive);
    let dir = args.data_dir.join(&name);
    let log = dir.join("agent.log");
    std::fs::create_dir_all(&dir)?;
    let program = process::beside("coracle-agent")?;
    // A node that runs takes new ones, too.
    load_images(&program, &dir, &args.image)?;
    let mut ready = None;
    if !running {
        let kubeconfig = ensure_node_identity(&args.data_dir, &dir, &node)?;
        let mut flags: Vec<String> = vec!["run".into(), "--node-name".into(), name.clone()];
        for (flag, value) in [
            ("--kubeconfig", kubeconfig.display().to_string()),
            ("--root-dir", dir.display().to_string()),
            ("--node-ip", node.address.clone()),
            ("--pod-log-dir", dir.join("logs").display().to_string()),
            // Volumes name it, and they take no `..`.
            ("--storage-dir", dir.canonicalize()?.join("storage").display().to_string()),
            ("--root", dir.join("engine").display().to_string()),
            ("--cni-conf-dir", dir.join("cni").display().to_string()),
            ("--cni-cache-dir", dir.join("cni-state").display().to_string()),
            ("--cni-bin-dir", program.with_file_name("").display().to_string()),
            ("--cgroup-parent", format!("/{}", process::cgroup(&hub, &name))),
            ("--cgroup-root", format!("/{}", process::cgroup(&hub, &name))),
            // A cluster for trying things shares the disk with everything else on the machine.
            ("--eviction-hard", "memory.available<100Mi,nodefs.available<512Mi".into()),
        ] {
            flags.extend([flag.to_owned(), value]);
        }
        flags.extend(node.address6.iter().flat_map(|ip| ["--node-ip".to_owned(), ip.clone()]));
        if !names_dns(&args.agent_flags) {
            let addresses = crate::server::dns_addresses(&service_range(args));
            flags.extend(addresses.into_iter().flat_map(|ip| ["--cluster-dns".to_owned(), ip]));
        }
        flags.extend(args.agent_flags.iter().cloned());
        let (agent, pipe) = start_supervised(&node.holder, &program, flags, &log, None)?;
        (node.agent, ready) = (Some(agent), Some(pipe));
    }
    let agent = node.agent.clone().context("the agent was started")?;
    state.nodes.push(node);
    state.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    state.write(&args.data_dir)?;
    match ready {
        Some(ready) => wait(&format!("{name} is ready"), &log, &agent, &ready),
        None => Ok(()),
    }
}

/// Starts a program inside a holder's namespaces, below a process that starts it again; that one is returned, and the pipe
/// in which the program says that it is ready.
fn start_supervised(
    holder: &Process,
    program: &Path,
    flags: Vec<String>,
    log: &Path,
    listener: Option<RawFd>,
) -> anyhow::Result<(Process, PipeReader)> {
    let mut words = vec!["supervise".to_owned(), "--".to_owned(), program.display().to_string()];
    words.extend(flags);
    process::start_inside(holder, &process::beside("coracle")?, &words, log, listener)
}

/// Whether the flags of the agents set the DNS server.
fn names_dns(flags: &[String]) -> bool {
    flags.iter().any(|flag| flag == "--cluster-dns" || flag.starts_with("--cluster-dns="))
}

/// The Service address range from the flags of the server, or the default.
fn service_range(args: &UpArgs) -> String {
    server_flag(args, "--service-cidr").unwrap_or_else(|| crate::config::SERVICE_CIDR.to_owned())
}

/// The value of a flag of the server, given as `--flag=value` or `--flag value`.
fn server_flag(args: &UpArgs, wanted: &str) -> Option<String> {
    let mut flags = args.server_flags.iter();
    while let Some(flag) = flags.next() {
        match flag.strip_prefix(wanted) {
            Some("") => return flags.next().cloned(),
            Some(value) => {
                if let Some(value) = value.strip_prefix('=') {
                    return Some(value.to_owned());
                }
            }
            None => {}
        }
    }
    None
}

/// Loads image archives into a node's store; those that are there already cost nothing.
fn load_images(agent: &Path, dir: &Path, archives: &[PathBuf]) -> anyhow::Result<()> {
    if archives.is_empty() {
        return Ok(());
    }
    let store = dir.join("engine").join("images");
    let output = std::process::Command::new(agent)
        .args(["image", "--image-dir"])
        .arg(&store)
        .arg("import")
        .args(archives)
        .output()?;
    if !output.status.success() {
        bail!("images could not be loaded: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// A node's identity: certificates signed here and now, which its agent renews by itself later.
fn ensure_node_identity(data_dir: &Path, dir: &Path, node: &Node) -> anyhow::Result<PathBuf> {
    let authority = Authority::ensure(&data_dir.join("pki"), "ca", "coracle-ca")?;
    let pki = dir.join("pki");
    coracle_pki::private_directory(&pki)?;
    coracle_pki::write_private(&pki.join("ca.crt"), authority.certificate.as_bytes())?;
    let user = format!("system:node:{}", node.name);
    let mut names = vec![node.name.clone(), node.address.clone()];
    names.extend(node.address6.clone());
    for (file, profile) in [
        ("client.pem", Profile::client(&user, &["system:nodes"])),
        ("serving.pem", Profile::server(&user, &names)),
    ] {
        let path = pki.join(file);
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        if !authority.still_good(&known, &profile) {
            let signed = authority.sign(&profile)?;
            coracle_pki::write_private(&path, format!("{}{}", signed.certificate, signed.key).as_bytes())?;
        }
    }
    let path = dir.join("kubeconfig");
    kubeconfig::write_node(&path, &format!("https://{HUB}:{PORT}"), &pki, &node.name)?;
    Ok(path)
}

/// Whether a program has reported that it is ready.
fn is_ready(pipe: &PipeReader) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut polled = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok()
        && polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN))
}

fn wait(what: &str, log: &Path, process: &Process, ready: &PipeReader) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_ready(ready) {
        if !process.alive() || begun.elapsed() > PATIENCE {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(8).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!("{what}: it did not happen; the end of {}:\n{}", log.display(), tail.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Keeps the namespaces of a node until it is killed.
pub fn hold() -> ! {
    process::hold_forever()
}
