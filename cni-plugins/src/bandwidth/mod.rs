//! The bandwidth plugin: limits the traffic of a container with token buckets, towards it at the host's end of its veth pair,
//! from it at its own end.
//!
//! Both belong to the links and go with them, so that there is nothing to remove.

// The configuration.
mod config;
// Errors.
mod error;

use config::{Config, Limit};
pub use error::BandwidthError;

use crate::{
    protocol::{Call, NetResult, Plugin, Result},
    route::{Link, Route},
};

/// The `bandwidth` plugin.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bandwidth;

/// The two ends of a container's veth pair, each with its namespace.
struct Ends {
    host: (Route, Link),
    container: (Route, Link),
}

impl Ends {
    fn of(call: &Call) -> Result<Self> {
        let missing = || BandwidthError::NoInterface { name: call.ifname.clone() };
        let mut inside = Route::of(&call.open_netns()?)?;
        let container = inside.link(&call.ifname)?.ok_or_else(missing)?;
        let mut here = Route::here()?;
        let mut links = here.links()?.into_iter();
        let peer = links.find(|link| link.kind == "veth" && link.index == container.peer);
        let host = peer.ok_or_else(|| BandwidthError::NoPeer { name: call.ifname.clone() })?;
        Ok(Self { host: (here, host), container: (inside, container) })
    }

    /// Each end with the limit of what it sends.
    fn with_limits<'e>(&'e mut self, config: &Config) -> [(&'e mut (Route, Link), Option<Limit>); 2] {
        [(&mut self.host, config.ingress), (&mut self.container, config.egress)]
    }
}

impl Plugin for Bandwidth {
    fn add(&self, call: &Call) -> Result<NetResult> {
        let config = Config::of(call)?;
        let prev = call.prev_result()?.ok_or(BandwidthError::NotChained)?;
        if config.is_empty() {
            return Ok(prev);
        }
        for ((route, link), limit) in Ends::of(call)?.with_limits(&config) {
            if let Some(limit) = limit {
                route.limit_rate(link.index, &limit.bucket(link.mtu))?;
            }
        }
        Ok(prev)
    }

    fn del(&self, _: &Call) -> Result<()> {
        Ok(())
    }

    fn check(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        call.required_prev_result()?;
        if config.is_empty() {
            return Ok(());
        }
        for ((route, link), limit) in Ends::of(call)?.with_limits(&config) {
            let wanted = limit.map(|limit| limit.bucket(link.mtu).rate);
            if wanted.is_some() && route.rate_limit(link.index)? != wanted {
                return Err(BandwidthError::Missing { name: link.name.clone() }.into());
            }
        }
        Ok(())
    }

    fn gc(&self, _: &Call) -> Result<()> {
        Ok(())
    }

    fn status(&self, call: &Call) -> Result<()> {
        Config::of(call).map(drop)
    }
}
