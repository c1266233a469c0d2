//! The bridge plugin: a bridge on the host, a veth pair per container, addresses by IPAM.

// The configuration.
mod config;
// Deterministic names and hardware addresses.
mod names;
// The bridge itself: existence, gateway addresses, forwarding.
mod gateway;
// Source NAT for what leaves the network.
pub mod masquerade;
// ADD.
mod add;
// DEL.
mod del;
// CHECK.
mod check;
// Errors.
mod error;

pub use config::Config;
pub use error::BridgeError;

use crate::{
    ipam::Ipam,
    protocol::{Call, NetResult, Plugin, Result},
};

/// The `bridge` plugin.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bridge;

impl Plugin for Bridge {
    fn add(&self, call: &Call) -> Result<NetResult> {
        add::add(call)
    }

    fn del(&self, call: &Call) -> Result<()> {
        del::del(call)
    }

    fn check(&self, call: &Call) -> Result<()> {
        check::check(call)
    }

    fn gc(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        Ipam::of(call).gc(call)?;
        if config.ip_masq {
            let valid = call.valid_attachments()?;
            masquerade::retain(&call.network, |id, ifname| {
                valid.iter().any(|a| a.container_id == id && a.ifname == ifname)
            })?;
        }
        Ok(())
    }

    fn status(&self, call: &Call) -> Result<()> {
        Config::of(call)?;
        Ipam::of(call).status(call)
    }
}
