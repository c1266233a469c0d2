//! Taking a container out. Every step is tried; the first error is told.

use super::{Config, masquerade, names};
use crate::{
    ipam::Ipam,
    netns::Netns,
    protocol::{Call, Error, Result},
    route::Route,
};

/// DEL. What is already gone is fine, whatever it is.
pub fn del(call: &Call) -> Result<()> {
    let config = Config::of(call)?;
    // Both wait for the kernel's readers: better at the same time.
    let (link, rules) = std::thread::scope(|scope| {
        let link = scope.spawn(|| remove_links(call));
        let rules = match config.ip_masq {
            true => masquerade::remove(&masquerade::owner(&call.network, &call.container_id, &call.ifname)),
            false => Ok(()),
        };
        (link.join().unwrap_or_else(|_| Err(Error::internal("removing the link panicked"))), rules)
    });
    // Last: an address must not be given out again while it is still in use.
    let addresses = Ipam::of(call).del(call);
    link?;
    rules?;
    addresses
}

fn remove_links(call: &Call) -> Result<()> {
    let mut host = Route::here()?;
    let mut names = vec![names::host_veth(&call.container_id, &call.ifname)];
    // An attachment another bridge plugin made: its result says the name.
    if let Ok(Some(prev)) = call.prev_result() {
        let veths = prev.interfaces.iter().filter(|i| i.sandbox.is_empty() && i.name.starts_with("veth"));
        names.extend(veths.map(|i| i.name.clone()));
    }
    for name in &names {
        if host.link(name)?.is_some() {
            host.remove_link(name)?;
            return Ok(());
        }
    }
    // Without a name: the container's own end, if there is still a container.
    if call.netns.as_os_str().is_empty() {
        return Ok(());
    }
    let Ok(netns) = Netns::open(&call.netns) else { return Ok(()) };
    Ok(Route::of(&netns)?.remove_link(&call.ifname)?)
}
