//! Taking a container out. Every step is tried; the first error is told.

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

/// DEL. What is already gone is fine, whatever it is.
pub fn del(call: &Call) -> Result<()> {
    let config = Config::of(call)?;
    let link = begin_removal(call);
    let rules = match config.ip_masq {
        true => masquerade::remove(&masquerade::owner(&call.network, &call.container_id, &call.ifname)),
        false => Ok(()),
    };
    let link = link.and_then(Removal::finish);
    // Last: an address must not be given out again while it is still in use.
    let addresses = Ipam::of(call).del(call);
    link?;
    rules?;
    addresses
}

/// A link on its way out.
enum Removal {
    /// Gone, or never there.
    Done,
    /// Another process is at it.
    UnderWay(String),
}

impl Removal {
    /// Waits until nobody sees the link any more. A helper that does not get there is replaced.
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
    // An attachment another bridge plugin made: its result says the name.
    if let Ok(Some(prev)) = call.prev_result() {
        let veths = prev.interfaces.iter().filter(|i| i.sandbox.is_empty() && i.name.starts_with("veth"));
        names.extend(veths.map(|i| i.name.clone()));
    }
    if let Some(name) = names.into_iter().find(|name| if_nametoindex(name.as_str()).is_ok()) {
        return remove_aside(name);
    }
    // Without a name: the container's own end, if there is still a container.
    if call.netns.as_os_str().is_empty() {
        return Ok(Removal::Done);
    }
    let Ok(netns) = Netns::open(&call.netns) else { return Ok(Removal::Done) };
    Route::of(&netns)?.remove_link(&call.ifname)?;
    Ok(Removal::Done)
}

/// Removes a link in a process of its own.
///
/// The kernel takes both ends out of sight at once, but answers only when the last reader is done, many milliseconds
/// later. The helper waits for that answer; the plugin only until the link is out of sight.
fn remove_aside(name: String) -> Result<Removal> {
    let mut host = Route::here()?;
    // SAFETY: a plugin has one thread, so the child may do whatever the parent may.
    #[allow(unsafe_code)]
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            // The runtime waits for the end of these.
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
