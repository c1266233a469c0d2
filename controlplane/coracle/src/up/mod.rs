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
// What is published, on the command line and on disk.
mod published;
// Ports of the machine that lead into the cluster.
mod publish;
// The forwarder of such a port.
mod forward;
// The registry for images of the cluster, on the command line and on disk.
mod registered;
// Its program.
mod registry;
// Packet forwarding of the hub.
mod rules;
// Nodes.
mod node;
// `--demo`: a page that nginx serves.
mod demo;
// Removing pods from a node.
mod drain;
// `coracle node`: adding and removing nodes.
mod node_command;
// The end of all that.
mod down;

pub use down::{DownArgs, down};
pub use forward::{ForwardArgs, forward};
pub use node_command::{NodeArgs, run as node_command};
pub use options::UpArgs;
pub(crate) use process::beside as program_beside;
pub(crate) use publish::log as publish_log;
pub(crate) use registry::log as registry_log;
pub(crate) use state::{State, node_name};
pub use supervise::{SuperviseArgs, supervise};

use crate::cluster_args::name_of;
use crate::kubeconfig;
use crate::output::Output;
use anyhow::{Context, bail};
use demo::Demo;
use options::{HUB, PORT};
use outbound::OutboundSetup;
use process::Process;
use registered::Registry;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
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
    if let Some(missing) = args.image.iter().find(|archive| !archive.is_file()) {
        bail!("--image {}: there is no such file", missing.display());
    }
    let dir = &args.data_dir();
    let mut state = State::read(dir)?.unwrap_or_default();
    let (mut args, program) = (args.clone(), std::env::current_exe()?);
    if args.demo {
        demo::prepare(&mut args, &state, &program)?;
    }
    let (args, warnings) = &options::merge(&args, &mut state);
    for warning in warnings {
        eprintln!("{warning}");
    }
    let before = Instant::now();
    let reserved = publish::reserve(&args.publish, &mut state, dir)?;
    let mut registry = registry::reserve(args.registry, &mut state, dir)?;
    if registry.is_some() && node::has_flag(&args.agent_flags, "--registries") {
        eprintln!(
            "--registry: nodes read the file of --registries, which has to name it: docs/howto/registry.md"
        );
    }
    // Who cannot have the address has changed nothing.
    let listener = match state.server.as_ref().is_some_and(Process::alive) {
        true => None,
        false => Some(listen(args.address())?),
    };
    let is_new = !dir.exists();
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    // Nor has who cannot write, such as to a full disk.
    if listener.is_some()
        && let Err(error) = state.write(dir)
    {
        if is_new {
            remove_empty(dir);
        }
        return Err(error);
    }
    let mut outbound = OutboundSetup::plan(args.outbound, &mut state, dir);
    ensure_server(args, &mut state, &mut outbound, listener)?;
    outbound.begin(&mut state)?;
    registry::start(&mut registry, &mut state, dir)?;
    let numbers: Vec<usize> = state.numbers().collect();
    for number in numbers {
        node::ensure(args, &mut state, number)?;
    }
    if !args.image.is_empty() {
        state.images = absolute(&args.image);
    }
    outbound.finish(&mut state)?;
    publish::start(reserved, &mut state, dir)?;
    registry::wait(&state, dir)?;
    state.write(dir)?;
    if args.demo {
        demo::check(args, &state, &program)?;
    }
    let took = before.elapsed().as_secs_f64();
    // From here on with the privileges of the user who ran sudo, if it was run.
    let kubeconfig = match kubeconfig::of_user::keep(dir) {
        Ok(copy) => copy.unwrap_or_else(|| dir.join("admin.kubeconfig")),
        Err(error) => {
            eprintln!("only root can read the kubeconfig: {error:#}");
            dir.join("admin.kubeconfig")
        }
    };
    let demo = args.demo.then(|| demo::run(&state, &kubeconfig, before)).transpose()?;
    show(args, &state, &kubeconfig, took, demo.as_ref())?;
    match (demo, args.output) {
        (Some(_), Output::Text) => demo::show_timeline(&kubeconfig),
        _ => Ok(()),
    }
}

/// Paths that mean the same from every directory.
fn absolute(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())).collect()
}

/// Prints what runs. The last line for people sets the kubeconfig in a shell, unless there is a demo.
fn show(
    args: &UpArgs,
    state: &State,
    kubeconfig: &Path,
    took: f64,
    demo: Option<&Demo>,
) -> anyhow::Result<()> {
    let published = state
        .published
        .iter()
        .map(|each| serde_json::json!({"url": each.url(), "port": each.port, "target": each.target}));
    let answer = serde_json::json!({
        "dataDir": args.data_dir(),
        "server": state.bind.map(|bind| format!("https://{bind}")),
        "nodes": state.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
        "published": published.collect::<Vec<_>>(),
        "registry": state.registry.as_ref().map(Registry::host),
        "kubeconfig": kubeconfig,
        "seconds": took,
        "demo": demo,
    });
    let text = || {
        let lines = state.published.iter().map(|each| format!("{} leads to {}\n", each.url(), each.target));
        let images = state.registry.iter().map(|each| format!("{}/NAME is for images\n", each.host()));
        format!(
            "cluster up in {took:.2} s: API server and {} node(s)\n{}export KUBECONFIG={}\n{}",
            state.nodes.len(),
            lines.chain(images).collect::<String>(),
            kubeconfig.display(),
            demo.map(Demo::text).unwrap_or_default()
        )
    };
    Ok(args.output.print(&answer, text)?)
}

/// Removes a data directory in which nothing is, and that of all named clusters if it was the last one there.
fn remove_empty(dir: &Path) {
    let _ = std::fs::remove_dir(dir);
    if let Some(clusters) = dir.parent().filter(|_| name_of(dir).is_some()) {
        let _ = std::fs::remove_dir(clusters);
    }
}

/// Starts the server at a listener, without which it runs already.
fn ensure_server(
    args: &UpArgs,
    state: &mut State,
    outbound: &mut OutboundSetup,
    listener: Option<TcpListener>,
) -> anyhow::Result<()> {
    let Some(listener) = listener else { return Ok(()) };
    let dir = &args.data_dir();
    let hub = match state.hub.as_ref().filter(|hub| hub.alive()) {
        Some(hub) => hub.clone(),
        None => {
            // The nodes hang on the old hub's bridge: they are made anew.
            down::end_nodes(state);
            state.nodes.clear();
            let hub = process::hold("coracle-hub", &outbound.ensure_resolv_conf()?)?;
            network::make_hub(&hub, HUB)?;
            state.hub = Some(hub.clone());
            state.write(dir)?;
            hub
        }
    };
    // It comes up while the server does.
    outbound.begin(state)?;
    state.bind = Some(listener.local_addr()?);
    let log = dir.join("server.log");
    let mut flags: Vec<String> = vec![
        "server".into(),
        "--data-dir".into(),
        dir.display().to_string(),
        "--bind".into(),
        format!("0.0.0.0:{PORT}"),
        "--advertise".into(),
        HUB.into(),
    ];
    flags.extend(args.server_flags.iter().cloned());
    let program = process::beside("coracle")?;
    let (server, ready) = process::start_supervised(&hub, &program, flags, &log, Some(listener.as_raw_fd()))?;
    state.server = Some(server);
    state.write(dir)?;
    readiness::wait("the API server serves", &log, ready)
}

fn listen(bind: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(bind).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => anyhow::anyhow!(
            "{bind} is in use already: choose another address (--bind 127.0.0.1:0 takes a free one); \
             a second cluster needs a --name (or a --data-dir) of its own, too"
        ),
        _ => anyhow::Error::from(error).context(format!("listen on {bind}")),
    })
}

/// Keeps the namespaces of a node until it is killed.
pub fn hold() -> ! {
    process::hold_forever()
}
