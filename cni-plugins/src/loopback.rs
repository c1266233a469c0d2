//! The loopback plugin: brings `lo` up.

use nix::errno::Errno;

use crate::{
    netns::Netns,
    protocol::{Call, Error, Interface, Ip, NetResult, Plugin, Result, code},
    route::Route,
};

/// The `loopback` plugin.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loopback;

/// CHECK found `lo` down.
#[derive(Debug, thiserror::Error)]
#[error("loopback interface is down")]
struct Down;

fn open(call: &Call) -> Result<Route> {
    Ok(Route::of(&call.open_netns()?)?)
}

/// Brings `lo` of a namespace up.
pub fn bring_up(netns: &Netns) -> crate::netlink::Result<()> {
    let mut route = Route::of(netns)?;
    match route.link("lo")? {
        Some(link) if !link.up => route.set_up(link.index),
        _ => Ok(()),
    }
}

impl Plugin for Loopback {
    fn add(&self, call: &Call) -> Result<NetResult> {
        let mut route = open(call)?;
        route.set_up(1)?;
        if let Some(prev) = call.prev_result()? {
            return Ok(prev);
        }
        let link = route.link("lo")?.unwrap_or_default();
        let sandbox = call.netns.display().to_string();
        let interface = Interface { name: link.name, mac: link.mac, mtu: 0, sandbox };
        let ips =
            route.addresses(1)?.into_iter().map(|address| Ip { interface: Some(0), address, gateway: None });
        Ok(NetResult { interfaces: vec![interface], ips: ips.collect(), ..NetResult::default() })
    }

    fn del(&self, call: &Call) -> Result<()> {
        // No namespace, no `lo`.
        let Ok(netns) = Netns::open(&call.netns) else { return Ok(()) };
        match Route::of(&netns) {
            Err(e) if e.errno() == Some(Errno::ENOENT) => Ok(()),
            other => Ok(other?.set_down(1)?),
        }
    }

    fn check(&self, call: &Call) -> Result<()> {
        match open(call)?.link("lo")? {
            Some(link) if link.up => Ok(()),
            _ => Err(Error::of(code::INTERNAL, &Down)),
        }
    }

    fn gc(&self, _: &Call) -> Result<()> {
        Ok(())
    }

    fn status(&self, _: &Call) -> Result<()> {
        Ok(())
    }
}
