//! host-local: addresses from ranges, one file per address.

// Ranges and sets of them.
mod range;
// The configuration.
mod config;
// The allocation files.
mod store;
// Address selection.
mod allocate;
// Errors.
mod error;

pub use config::Config;
pub use error::HostLocalError;
pub use store::Store;

use crate::{
    protocol::{Call, Error, Ip, NetResult, Plugin, Result, code},
    route::Cidr,
};

/// The `host-local` plugin.
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
                    return Err(error.into());
                }
            }
        }
        if !wanted.is_empty() {
            release(&lock, &ips)?;
            return Err(HostLocalError::NotAllocated { ips: wanted }.into());
        }
        Ok(NetResult { ips, routes: config.routes, dns: config.dns, ..NetResult::default() })
    }

    fn del(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        match Store::existing(&config.data_dir, &call.network)? {
            Some(store) => Ok(store.lock()?.release(&call.container_id, &call.ifname)?),
            None => Ok(()),
        }
    }

    fn check(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        let store = Store::open(&config.data_dir, &call.network)?;
        let held = store.lock()?.held_by(&call.container_id, &call.ifname)?;
        match held.is_empty() {
            true => Err(HostLocalError::NoAddress { id: call.container_id.clone() }.into()),
            false => Ok(()),
        }
    }

    fn gc(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        let valid = call.valid_attachments()?;
        match Store::existing(&config.data_dir, &call.network)? {
            Some(store) => Ok(store.lock()?.retain(|id, ifname| {
                valid.iter().any(|a| a.container_id == id && (ifname.is_empty() || a.ifname == ifname))
            })?),
            None => Ok(()),
        }
    }

    fn status(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        let lock_failed = |e: HostLocalError| Error::of(code::NOT_AVAILABLE, &e);
        let store = Store::open(&config.data_dir, &call.network).map_err(lock_failed)?;
        store.lock().map_err(lock_failed).map(drop)
    }
}

fn release(lock: &store::Locked<'_>, ips: &[Ip]) -> Result<(), HostLocalError> {
    ips.iter().try_for_each(|ip| lock.free(ip.address.ip))
}

/// Addresses allocated to a container, as /32 or /128.
pub fn addresses_of(call: &Call) -> Result<Vec<Cidr>> {
    let config = Config::of(call)?;
    let Some(store) = Store::existing(&config.data_dir, &call.network)? else { return Ok(Vec::new()) };
    let held = store.lock()?.held_by(&call.container_id, &call.ifname)?;
    Ok(held.into_iter().map(|ip| Cidr { ip, prefix: if ip.is_ipv4() { 32 } else { 128 } }).collect())
}

#[cfg(test)]
mod tests;
