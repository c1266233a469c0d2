//! One node: its namespaces, its identity and its agent.

use super::options::{HUB, PORT, UpArgs};
use super::process::Process;
use super::state::{Node, State, node_name};
use super::{network, outbound, process, readiness, registry};
use anyhow::{Context, bail};
use coracle_pki::authority::{Authority, Profile};
use coracle_pki::kubeconfig;
use std::path::{Path, PathBuf};

/// Starts the node unless it runs, and waits until it is ready.
pub fn ensure(args: &UpArgs, state: &mut State, number: usize) -> anyhow::Result<()> {
    let name = node_name(number);
    let hub = state.hub.clone().context("the hub is up")?;
    let known = state.nodes.iter().find(|node| node.name == name && node.holder.alive());
    if known.is_none() {
        // Remembered at once: what fails later does not leave processes that nobody knows of.
        let node = make_namespaces(args, &hub, &name, number)?;
        state.nodes.retain(|node| node.name != name);
        state.nodes.push(node);
        state.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        state.write(&args.data_dir())?;
    }
    let node = state.nodes.iter_mut().find(|node| node.name == name).context("the node is known")?;
    let dir = args.data_dir().join(&name);
    let log = dir.join("agent.log");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let program = process::beside("coracle-agent")?;
    // A node that runs takes new ones, too.
    load_images(&program, &dir, &args.image)?;
    let registry = state.registry.as_ref().map(|registry| registry.port);
    if let Some(agent) = node.agent.as_ref().filter(|agent| agent.alive()) {
        if node.registry == registry {
            return Ok(());
        }
        // It reads the file when it starts; pods go on without it.
        process::stop(agent);
    }
    node.registry = registry;
    let flags = agent_flags(args, &hub, node, &dir, &program)?;
    let (agent, ready) = process::start_supervised(&node.holder, &program, flags, &log, None)?;
    node.agent = Some(agent);
    state.write(&args.data_dir())?;
    readiness::wait(&format!("{name} is ready"), &log, ready)
}

/// Makes the namespaces of a node and connects them to the hub.
fn make_namespaces(args: &UpArgs, hub: &Process, name: &str, number: usize) -> anyhow::Result<Node> {
    let holder = process::hold(name, &outbound::resolv_conf(&args.data_dir()))?;
    let connected = connect(args, hub, &holder, number).inspect_err(|_| process::end(&holder));
    let (address, address6) = connected?;
    Ok(Node { name: name.to_owned(), holder, agent: None, address, address6, registry: None })
}

/// Connects a node to the hub; returns its addresses.
fn connect(
    args: &UpArgs,
    hub: &Process,
    holder: &Process,
    number: usize,
) -> anyhow::Result<(String, Option<String>)> {
    // That of an earlier node of this number, of which something may still be there.
    network::detach(hub, number)?;
    let address = network::attach(hub, holder, number, HUB)?;
    let address6 = match server_flag(args, "--cluster-cidr").is_some_and(|ranges| ranges.contains(':')) {
        true => Some(network::attach_ipv6(hub, holder, number)?),
        false => None,
    };
    Ok((address, address6))
}

/// The command line of a node's agent, which gets an identity.
fn agent_flags(
    args: &UpArgs,
    hub: &Process,
    node: &Node,
    dir: &Path,
    program: &Path,
) -> anyhow::Result<Vec<String>> {
    let kubeconfig = ensure_identity(&args.data_dir(), dir, node)?;
    let cgroup = format!("/{}", process::cgroup(hub, &node.name));
    let mut flags: Vec<String> = vec!["run".into(), "--node-name".into(), node.name.clone()];
    for (flag, value) in [
        ("--kubeconfig", kubeconfig.display().to_string()),
        ("--root-dir", dir.display().to_string()),
        ("--node-ip", node.address.clone()),
        ("--pod-log-dir", dir.join("logs").display().to_string()),
        ("--container-log-dir", dir.join("log-links").display().to_string()),
        // Volumes name it, and they take no `..`.
        ("--storage-dir", dir.canonicalize()?.join("storage").display().to_string()),
        ("--root", dir.join("engine").display().to_string()),
        ("--cni-conf-dir", dir.join("cni").display().to_string()),
        ("--cni-cache-dir", dir.join("cni-state").display().to_string()),
        ("--cni-bin-dir", cni_plugins(program).display().to_string()),
        ("--cgroup-parent", cgroup.clone()),
        ("--cgroup-root", cgroup),
        // A cluster for trying things shares the disk with everything else on the machine.
        ("--eviction-hard", "memory.available<100Mi,nodefs.available<512Mi".into()),
    ] {
        flags.extend([flag.to_owned(), value]);
    }
    flags.extend(node.address6.iter().flat_map(|ip| ["--node-ip".to_owned(), ip.clone()]));
    if node.registry.is_some() && !has_flag(&args.agent_flags, "--registries") {
        flags.extend(["--registries".to_owned(), registry::file(&args.data_dir()).display().to_string()]);
    }
    if !has_flag(&args.agent_flags, "--cluster-dns") {
        let addresses = crate::server::dns_addresses(&service_range(args));
        flags.extend(addresses.into_iter().flat_map(|ip| ["--cluster-dns".to_owned(), ip]));
    }
    flags.extend(args.agent_flags.iter().cloned());
    Ok(flags)
}

/// The directory of the CNI plugins: beside the programs of a build, in `cni` of a release, in `lib/coracle/cni` of an
/// installation.
fn cni_plugins(program: &Path) -> PathBuf {
    let beside = program.with_file_name("");
    let above = beside.parent().unwrap_or(&beside);
    let places = [beside.clone(), above.join("cni"), above.join("lib/coracle/cni")];
    places.into_iter().find(|place| place.join("bridge").is_file()).unwrap_or(beside)
}

/// Whether flags set an option, as `--flag value` or `--flag=value`.
pub fn has_flag(flags: &[String], wanted: &str) -> bool {
    let rest = |flag: &String| flag.strip_prefix(wanted).map(str::to_owned);
    flags.iter().filter_map(rest).any(|rest| rest.is_empty() || rest.starts_with('='))
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
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("images could not be loaded: {}", said.trim().trim_start_matches("Error: "));
    }
    Ok(())
}

/// A node's identity: certificates signed here and now, which its agent renews by itself later.
fn ensure_identity(data_dir: &Path, dir: &Path, node: &Node) -> anyhow::Result<PathBuf> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn plugins_are_found_in_a_build_a_release_and_an_installation() {
        for place in ["bin", "cni", "lib/coracle/cni"] {
            let dir = tempfile::tempdir().unwrap();
            let program = dir.path().join("bin/coracle-agent");
            assert_eq!(cni_plugins(&program), dir.path().join("bin"), "without plugins");
            std::fs::create_dir_all(dir.path().join(place)).unwrap();
            std::fs::write(dir.path().join(place).join("bridge"), "").unwrap();
            assert_eq!(cni_plugins(&program), dir.path().join(place));
        }
    }
}
