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
// Waiting until a program is ready.
mod readiness;
// Starting programs again that failed.
mod supervise;
// The nodes' way out to the machine's network.
mod outbound;
// Packet forwarding of the hub.
mod rules;
// Nodes.
mod node;
// The end of all that.
mod down;

pub use down::{DownArgs, down};
pub use options::UpArgs;
pub(crate) use options::directory;
pub use supervise::{SuperviseArgs, supervise};

use anyhow::{Context, bail};
use options::{HUB, PORT};
use outbound::OutboundSetup;
use state::{Process, State};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

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
        node::ensure(args, &mut state, number)?;
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
    let (server, ready) = process::start_supervised(&hub, &program, flags, &log, Some(listener.as_raw_fd()))?;
    state.server = Some(server);
    state.write(&args.data_dir)?;
    readiness::wait("the API server serves", &log, ready)
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

/// Keeps the namespaces of a node until it is killed.
pub fn hold() -> ! {
    process::hold_forever()
}
