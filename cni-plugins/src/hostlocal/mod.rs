//! host-local: addresses from ranges, one file per address.

// Ranges and sets of them.
mod range;
// The configuration.
mod config;
// The files.
mod store;
// Which address next.
mod allocate;

pub use config::Config;
pub use store::Store;

use crate::{
    protocol::{Call, Error, Ip, NetResult, Plugin, Result, code},
    route::Cidr,
};

/// The plugin.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostLocal;

impl Plugin for HostLocal {
    fn add(&self, call: &Call) -> Result<NetResult> {
        let config = Config::of(call)?;
        let store = Store::open(&config.data_dir, &call.network)?;
        let lock = store.lock()?;
        let mut wanted = config.requested.clone();
        let mut ips: Vec<Ip> = Vec::new();
        for (index, set) in config.sets.iter().enumerate() {
            let requested = wanted.iter().position(|ip| set.contains(*ip)).map(|at| wanted.remove(at));
            match allocate::get(&lock, set, index, requested, &call.container_id, &call.ifname) {
                Ok((address, gateway)) => ips.push(Ip { interface: None, address, gateway: Some(gateway) }),
                Err(error) => {
                    release(&lock, &ips)?;
                    return Err(error);
                }
            }
        }
        if !wanted.is_empty() {
            release(&lock, &ips)?;
            let list: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            return Err(Error::internal(format!("failed to allocate all requested IPs: {}", list.join(" "))));
        }
        Ok(NetResult { ips, routes: config.routes, dns: config.dns, ..NetResult::default() })
    }

    fn del(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        match Store::existing(&config.data_dir, &call.network)? {
            Some(store) => store.lock()?.release(&call.container_id, &call.ifname),
            None => Ok(()),
        }
    }

    fn check(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        let store = Store::open(&config.data_dir, &call.network)?;
        let held = store.lock()?.held_by(&call.container_id, &call.ifname)?;
        match held.is_empty() {
            true => Err(Error::new(
                code::UNKNOWN_CONTAINER,
                format!("host-local: Failed to find address added by container {}", call.container_id),
            )),
            false => Ok(()),
        }
    }

    fn gc(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        let valid = call.valid_attachments()?;
        match Store::existing(&config.data_dir, &call.network)? {
            Some(store) => store.lock()?.retain(|id, ifname| {
                valid.iter().any(|a| a.container_id == id && (ifname.is_empty() || a.ifname == ifname))
            }),
            None => Ok(()),
        }
    }

    fn status(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        let lock_failed = |e: Error| Error::new(code::NOT_AVAILABLE, e.message);
        let store = Store::open(&config.data_dir, &call.network).map_err(lock_failed)?;
        store.lock().map_err(lock_failed).map(drop)
    }
}

fn release(lock: &store::Locked<'_>, ips: &[Ip]) -> Result<()> {
    ips.iter().try_for_each(|ip| lock.free(ip.address.ip))
}

/// The addresses a container holds, without their prefixes.
pub fn addresses_of(call: &Call) -> Result<Vec<Cidr>> {
    let config = Config::of(call)?;
    let Some(store) = Store::existing(&config.data_dir, &call.network)? else { return Ok(Vec::new()) };
    let held = store.lock()?.held_by(&call.container_id, &call.ifname)?;
    Ok(held.into_iter().map(|ip| Cidr { ip, prefix: if ip.is_ipv4() { 32 } else { 128 } }).collect())
}

#[cfg(test)]
mod tests;
