//! Propagation of mounts, which libcontainer leaves as it is on the host: a mount of the host that comes later would be seen
//! in containers that did not ask for it.

use std::path::PathBuf;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use oci_spec::runtime::Mount;

/// Mounts that name their propagation, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Propagation(Vec<(PathBuf, MsFlags)>);

impl Propagation {
    /// From the mounts of a configuration.
    pub fn of(mounts: &[Mount]) -> Self {
        let named = mounts.iter().flat_map(|mount| {
            let options = mount.options().iter().flatten();
            options.filter_map(|option| Some((mount.destination().clone(), flags(option)?)))
        });
        Self(named.collect())
    }

    /// Sets them; call it in the container, whose mount namespace is its own, before paths are hidden.
    pub fn set(&self) -> Result<(), Errno> {
        let none = None::<&str>;
        for (path, flags) in &self.0 {
            match mount(none, path, none, *flags, none) {
                // A later mount covers it: there is no mount at this path that could be seen.
                Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EINVAL) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

fn flags(option: &str) -> Option<MsFlags> {
    Some(match option {
        "private" => MsFlags::MS_PRIVATE,
        "rprivate" => MsFlags::MS_PRIVATE | MsFlags::MS_REC,
        "slave" => MsFlags::MS_SLAVE,
        "rslave" => MsFlags::MS_SLAVE | MsFlags::MS_REC,
        "shared" => MsFlags::MS_SHARED,
        "rshared" => MsFlags::MS_SHARED | MsFlags::MS_REC,
        "unbindable" => MsFlags::MS_UNBINDABLE,
        "runbindable" => MsFlags::MS_UNBINDABLE | MsFlags::MS_REC,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn only_mounts_that_name_it() {
        let mounts: Vec<Mount> = serde_json::from_value(json!([
            { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid"] },
            { "destination": "/a", "type": "bind", "source": "/x", "options": ["rbind", "rslave", "ro"] },
            { "destination": "/b", "type": "bind", "source": "/x" },
        ]))
        .unwrap();
        let wanted = vec![(PathBuf::from("/a"), MsFlags::MS_SLAVE | MsFlags::MS_REC)];
        assert_eq!(Propagation::of(&mounts), Propagation(wanted));
    }
}
