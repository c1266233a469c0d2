//! `--publish`: ports of this machine's loopback that lead into the cluster. The sockets are opened here, in the machine's
//! network; a forwarder in the network of the first node accepts from them, and reaches Services from there.

use super::process;
use super::published::{Publish, PublishArg, Published};
use super::readiness;
use super::state::State;
use crate::cluster_args::selector_of;
use anyhow::{Context, bail};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// The sockets of ports that nothing forwards yet.
pub struct Reserved(Vec<(u16, Vec<TcpListener>)>);

/// Decides what is published, and opens the sockets of what is not forwarded already: who cannot have a port has started
/// nothing.
pub fn reserve(said: &[PublishArg], state: &mut State, data_dir: &Path) -> anyhow::Result<Reserved> {
    let mut wanted = merged(said, &state.published);
    let mut reserved = Vec::new();
    for published in wanted.iter_mut().filter(|published| !published.runs()) {
        let sockets = listen(published.port).with_context(|| {
            let (target, of) = (&published.target, selector_of(data_dir));
            format!("--publish {}:{target} (coracle up{of} --publish= publishes nothing)", published.port)
        })?;
        published.port = sockets[0].local_addr()?.port();
        reserved.push((published.port, sockets));
    }
    // What is no longer wanted, or leads elsewhere now.
    for gone in state.published.iter().filter(|old| !wanted.contains(old)) {
        if let Some(forwarder) = &gone.forwarder {
            process::stop(forwarder);
        }
    }
    state.published = wanted;
    Ok(Reserved(reserved))
}

/// What was published before, with what is said now.
fn merged(said: &[PublishArg], before: &[Published]) -> Vec<Published> {
    let clear = said.contains(&PublishArg::Clear);
    let mut all = if clear { Vec::new() } else { before.to_vec() };
    for each in said {
        let PublishArg::Add(Publish { port, target }) = each else { continue };
        let known = before.iter().find(|old| old.target == *target && (*port == 0 || old.port == *port));
        let new =
            known.cloned().unwrap_or(Published { port: *port, target: target.clone(), forwarder: None });
        all.retain(|old| *old != new && (new.port == 0 || old.port != new.port));
        all.push(new);
    }
    all
}

/// The sockets of a port: of IPv4 and, if the machine has it, of IPv6.
pub fn listen(port: u16) -> anyhow::Result<Vec<TcpListener>> {
    let bind = |address: SocketAddr| {
        TcpListener::bind(address).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                anyhow::anyhow!("port {} is in use already: choose another one", address.port())
            }
            ErrorKind::PermissionDenied => anyhow::anyhow!("port {} is not allowed here", address.port()),
            _ => anyhow::Error::from(error).context(format!("listen on {address}")),
        })
    };
    let first = bind((Ipv4Addr::LOCALHOST, port).into())?;
    let second: SocketAddr = (Ipv6Addr::LOCALHOST, first.local_addr()?.port()).into();
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    Ok(if has_ipv6 { vec![first, bind(second)?] } else { vec![first] })
}

/// Starts the forwarders that do not run.
pub fn start(mut reserved: Reserved, state: &mut State, data_dir: &Path) -> anyhow::Result<()> {
    for at in 0..state.published.len() {
        let published = state.published[at].clone();
        if published.runs() {
            continue;
        }
        let Some(node) = state.nodes.first() else { bail!("there is no node to publish ports of") };
        let found = reserved.0.iter().position(|(port, _)| *port == published.port);
        let sockets = match found {
            Some(found) => reserved.0.swap_remove(found).1,
            // It ended with its node a moment ago.
            None => listen(published.port)?,
        };
        let kubeconfig = data_dir.join(&node.name).join("kubeconfig");
        let mut flags = vec!["forward".to_owned(), "--to".into(), published.target.to_string()];
        flags.extend(["--kubeconfig".into(), kubeconfig.display().to_string()]);
        flags.extend(["--node-ip".into(), node.address.clone()]);
        for socket in &sockets {
            flags.extend(["--listen-fd".into(), process::inherited(socket)?.to_string()]);
        }
        let log = log(data_dir, published.port);
        let program = process::beside("coracle")?;
        let (forwarder, ready) = process::start_supervised(&node.holder, &program, flags, &log, None)?;
        // The next program that is started must not have them.
        drop(sockets);
        state.published[at].forwarder = Some(forwarder);
        state.write(data_dir)?;
        readiness::wait(&format!("port {} is published", published.port), &log, ready)?;
    }
    Ok(())
}

/// The log of a forwarder.
pub fn log(data_dir: &Path, port: u16) -> PathBuf {
    data_dir.join(format!("publish-{port}.log"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn arg(text: &str) -> PublishArg {
        text.parse().unwrap()
    }

    fn published(port: u16, target: &str) -> Published {
        Published { port, target: target.parse().unwrap(), forwarder: None }
    }

    #[test]
    fn what_was_published_stays_until_it_is_cleared_or_its_port_leads_elsewhere() {
        let before = [published(8080, "web:80"), published(30080, "30080")];
        let after = |said: &[&str]| merged(&said.iter().map(|text| arg(text)).collect::<Vec<_>>(), &before);
        assert_eq!(after(&[]), before);
        assert_eq!(after(&["8080:web:80"]).len(), 2);
        assert!(after(&["0:web:80"]).contains(&before[0]), "the same port as before");
        assert_eq!(after(&["8080:api:80"]), [published(30080, "30080"), published(8080, "api:80")]);
        assert_eq!(after(&[""]), []);
        assert_eq!(after(&["", "8081:web:80"]), [published(8081, "web:80")]);
        assert_eq!(after(&["0:api:80", "0:api:81"]).len(), 4, "two free ports");
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::default();
        let error = reserve(&[arg(&format!("{port}:web:80"))], &mut state, dir.path()).err().unwrap();
        assert!(format!("{error:#}").contains(&format!("port {port} is in use already")), "{error:#}");
        assert!(state.published.is_empty(), "nothing is remembered");
        drop(taken);
        let reserved = reserve(&[arg(&format!("{port}:web:80"))], &mut state, dir.path()).unwrap();
        let addresses: Vec<SocketAddr> = reserved.0[0].1.iter().map(|s| s.local_addr().unwrap()).collect();
        assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == port));
        assert_eq!(state.published, [published(port, "web:80")]);
    }
}
