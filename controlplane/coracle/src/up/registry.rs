//! `--registry`: a registry for the images of the cluster. Debian's docker-registry runs in the network of the hub, where nodes
//! reach it; a forwarder there accepts connections from a port of this machine's loopback, whose name images have on both sides.

use super::options::HUB;
use super::process::{self, Process};
use super::publish;
use super::readiness;
use super::registered::{Registry, RegistryArg};
use super::state::State;
use crate::cluster_args::selector_of;
use crate::executables::find_program;
use anyhow::{Context as _, anyhow, bail};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The program, and the package that has it.
const PROGRAM: &str = "docker-registry";
/// The port of the registry in the network of the hub.
const INSIDE: u16 = 5000;
/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between questions whether it has.
const PAUSE: Duration = Duration::from_millis(20);

fn runs(process: Option<&Process>) -> bool {
    process.is_some_and(Process::alive)
}

/// What is needed to start the registry.
pub struct Setup {
    program: PathBuf,
    /// Sockets of this machine that nothing forwards yet.
    sockets: Vec<TcpListener>,
}

/// Decides whether there is a registry, and finds its program and its port: who cannot have them has started nothing.
pub fn reserve(
    said: Option<RegistryArg>,
    state: &mut State,
    data_dir: &Path,
) -> anyhow::Result<Option<Setup>> {
    let before = state.registry.clone();
    let wanted = match said {
        Some(RegistryArg::Off) => None,
        Some(RegistryArg::Port(port)) => Some(port),
        None => before.as_ref().map(|registry| registry.port),
    };
    let Some(port) = wanted else {
        if let Some(registry) = before {
            [registry.forwarder, registry.process].iter().flatten().for_each(process::stop);
        }
        state.registry = None;
        return Ok(None);
    };
    let off = || format!("--registry (coracle up{} --registry=off is without)", selector_of(data_dir));
    let program = find_program(PROGRAM)
        .ok_or_else(|| anyhow!("{PROGRAM} is missing (apt-get install {PROGRAM})"))
        .with_context(off)?;
    let moved = before.as_ref().is_some_and(|before| before.port != port);
    let forwards = before.as_ref().is_some_and(|before| !moved && runs(before.forwarder.as_ref()));
    let sockets = if forwards { Vec::new() } else { publish::listen(port).with_context(off)? };
    let mut registry = before.unwrap_or(Registry::at(port));
    if moved {
        registry.forwarder.iter().for_each(process::stop);
        registry = Registry { port, forwarder: None, ..registry };
    }
    state.registry = Some(registry);
    Ok(Some(Setup { program, sockets }))
}

/// Starts what does not run of the registry, and writes the file that tells nodes of it.
pub fn start(setup: &mut Option<Setup>, state: &mut State, data_dir: &Path) -> anyhow::Result<()> {
    let (Some(setup), Some(mut registry)) = (setup, state.registry.clone()) else { return Ok(()) };
    let hub = state.hub.clone().context("the hub is up")?;
    coracle_pki::write_private(&file(data_dir), nodes_file(&registry).as_bytes())
        .with_context(|| file(data_dir).display().to_string())?;
    if !runs(registry.process.as_ref()) {
        let storage = data_dir.join("registry");
        std::fs::create_dir_all(&storage).with_context(|| storage.display().to_string())?;
        let config = data_dir.join("registry.yml");
        std::fs::write(&config, configuration(&storage)).with_context(|| config.display().to_string())?;
        let flags = vec!["serve".to_owned(), config.display().to_string()];
        // It says nothing when it is ready, so that it is asked.
        let (process, _) = process::start_supervised(&hub, &setup.program, flags, &log(data_dir), None)?;
        registry.process = Some(process);
        state.registry = Some(registry.clone());
        state.write(data_dir)?;
    }
    if !setup.sockets.is_empty() {
        let mut flags = vec!["forward".to_owned(), "--to".into(), INSIDE.to_string()];
        flags.extend(["--node-ip".into(), HUB.into()]);
        // Only names of Services are asked for with it.
        flags.extend(["--kubeconfig".into(), data_dir.join("admin.kubeconfig").display().to_string()]);
        for socket in &setup.sockets {
            flags.extend(["--listen-fd".into(), process::inherited(socket)?.to_string()]);
        }
        let log = publish::log(data_dir, registry.port);
        let (forwarder, ready) =
            process::start_supervised(&hub, &process::beside("coracle")?, flags, &log, None)?;
        // The next program that is started must not have them.
        setup.sockets.clear();
        registry.forwarder = Some(forwarder);
        state.registry = Some(registry.clone());
        state.write(data_dir)?;
        readiness::wait(&format!("port {} leads to the registry", registry.port), &log, ready)?;
    }
    Ok(())
}

/// Waits until the registry answers.
pub fn wait(state: &State, data_dir: &Path) -> anyhow::Result<()> {
    let Some(registry) = &state.registry else { return Ok(()) };
    let begun = Instant::now();
    while !answers((Ipv4Addr::LOCALHOST, registry.port).into()) {
        if begun.elapsed() > PATIENCE || !runs(registry.process.as_ref()) {
            let text = std::fs::read_to_string(log(data_dir)).unwrap_or_default();
            let last = text.lines().next_back().unwrap_or_default();
            bail!("the registry does not answer; the end of {}: {last}", log(data_dir).display());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Whether a registry answers at an address.
fn answers(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /v2/ HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(&status[8..] == b" 200")
    };
    ask().unwrap_or(false)
}

/// The file that agents read.
pub fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("registries.yaml")
}

/// The log of the registry.
pub fn log(data_dir: &Path) -> PathBuf {
    data_dir.join("registry.log")
}

/// Nodes have loopbacks of their own: what is named after that of the machine is at the hub.
fn nodes_file(registry: &Registry) -> String {
    let endpoint = json!({"endpoint": [format!("http://{HUB}:{INSIDE}")]});
    let names = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{host}:{}", registry.port));
    let mirrors: serde_json::Map<_, _> = names.into_iter().map(|name| (name, endpoint.clone())).collect();
    // JSON is YAML.
    format!("{:#}\n", json!({"mirrors": mirrors}))
}

/// The configuration of the program, as JSON, which is YAML.
fn configuration(storage: &Path) -> String {
    let config = json!({
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": true}},
        "storage": {"filesystem": {"rootdirectory": storage}, "delete": {"enabled": true}},
        "http": {"addr": format!("{HUB}:{INSIDE}")},
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    #[test]
    fn nodes_know_it_by_every_name_of_the_loopback() {
        let file: Value = coracle_cli::yaml::from_str(&nodes_file(&Registry::at(5001))).unwrap();
        for name in ["localhost:5001", "127.0.0.1:5001", "[::1]:5001"] {
            assert_eq!(file["mirrors"][name]["endpoint"], json!(["http://10.89.0.1:5000"]), "{name}");
        }
    }

    #[test]
    fn it_is_as_before_until_something_else_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::default();
        assert!(reserve(None, &mut state, dir.path()).unwrap().is_none());
        state.registry = Some(Registry::at(5001));
        assert!(reserve(Some(RegistryArg::Off), &mut state, dir.path()).unwrap().is_none());
        assert_eq!(state.registry, None);
    }

    #[test]
    fn only_a_registry_answers_as_one() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(!answers(closed));
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let replies = ["HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"];
        let served = std::thread::spawn(move || {
            for reply in replies {
                let mut stream = server.accept().unwrap().0;
                let _ = stream.read(&mut [0; 512]);
                stream.write_all(reply.as_bytes()).unwrap();
            }
        });
        assert!(!answers(address));
        assert!(answers(address));
        served.join().unwrap();
    }
}
