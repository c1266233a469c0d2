//! DEL: tries every step and returns the first error.

use std::time::{Duration, Instant};

use nix::{
    net::if_::if_nametoindex,
    unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork},
};

use super::{Config, masquerade, names};
use crate::{
    ipam::Ipam,
    netns::Netns,
    protocol::{Call, Result},
    route::Route,
};

/// DEL. Succeeds if everything is gone already.
pub fn del(call: &Call) -> Result<()> {
    let config = Config::of(call)?;
    let link = begin_removal(call);
    let rules = match config.ip_masq {
        true => masquerade::remove(&masquerade::owner(&call.network, &call.container_id, &call.ifname)),
        false => Ok(()),
    };
    let link = link.and_then(Removal::finish);
    // Last, so that an address is not allocated again while it is still in use.
    let addresses = Ipam::of(call).del(call);
    link?;
    rules?;
    addresses
}

/// State of a link removal.
enum Removal {
    /// The link does not exist.
    Done,
    /// A child process is removing it.
    UnderWay(String),
}

impl Removal {
    /// Waits until the link is no longer visible. If the child takes too long, removes the link in this process.
    fn finish(self) -> Result<()> {
        let Removal::UnderWay(name) = self else { return Ok(()) };
        let begun = Instant::now();
        while if_nametoindex(name.as_str()).is_ok() {
            if begun.elapsed() > Duration::from_secs(2) {
                return Ok(Route::here()?.remove_link(&name)?);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }
}

fn begin_removal(call: &Call) -> Result<Removal> {
    let mut names = vec![names::host_veth(&call.container_id, &call.ifname)];
    // An attachment made by another bridge plugin: the name is in its result.
    if let Ok(Some(prev)) = call.prev_result() {
        let veths = prev.interfaces.iter().filter(|i| i.sandbox.is_empty() && i.name.starts_with("veth"));
        names.extend(veths.map(|i| i.name.clone()));
    }
    if let Some(name) = names.into_iter().find(|name| if_nametoindex(name.as_str()).is_ok()) {
        return remove_in_child(name);
    }
    // Without a name: removes the container's end, if the namespace still exists.
    if call.netns.as_os_str().is_empty() {
        return Ok(Removal::Done);
    }
    let Ok(netns) = Netns::open(&call.netns) else { return Ok(Removal::Done) };
    Route::of(&netns)?.remove_link(&call.ifname)?;
    Ok(Removal::Done)
}

/// Removes a link in a child process.
///
/// The kernel hides both ends at once, but replies only after an RCU grace period, many milliseconds later. The child waits
/// for the reply; the plugin only until the link is no longer visible.
fn remove_in_child(name: String) -> Result<Removal> {
    let mut host = Route::here()?;
    // SAFETY: a plugin has one thread, so the child may do whatever the parent may.
    #[allow(unsafe_code)]
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            // The runtime waits for these descriptors to be closed.
            if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
                let _ = dup2_stdin(&null);
                let _ = dup2_stdout(&null);
                let _ = dup2_stderr(&null);
            }
            let code = i32::from(host.remove_link(&name).is_err());
            std::process::exit(code);
        }
        Ok(ForkResult::Parent { .. }) => Ok(Removal::UnderWay(name)),
        Err(_) => {
            host.remove_link(&name)?;
            Ok(Removal::Done)
        }
    }
}
