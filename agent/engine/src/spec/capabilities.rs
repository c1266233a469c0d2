//! Capability names and sets.

use std::collections::BTreeSet;

use coracle_proto::cri::LinuxContainerSecurityContext;
use oci_spec::runtime::{Capabilities, Capability};

use super::Error;

/// Names by number.
pub const NAMES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// Default capabilities of a container.
const DEFAULT: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// Number of a name, with or without `CAP_`, in any case.
pub fn number(name: &str) -> Option<u8> {
    let upper = name.to_ascii_uppercase();
    let wanted = if upper.starts_with("CAP_") { upper } else { format!("CAP_{upper}") };
    NAMES.iter().position(|known| *known == wanted).map(|n| n as u8)
}

/// Numbers in a mask of `/proc/<pid>/status`.
pub fn from_mask(mask: u64) -> BTreeSet<u8> {
    (0..NAMES.len() as u8).filter(|n| mask & (1 << n) != 0).collect()
}

/// The container's capabilities by name: defaults, then ALL, then single ones, never more than the host's.
pub fn effective(
    security: &LinuxContainerSecurityContext,
    host: &BTreeSet<u8>,
) -> Result<BTreeSet<&'static str>, Error> {
    let everything = || host.iter().copied().collect::<BTreeSet<u8>>();
    let changes = security.capabilities.clone().unwrap_or_default();
    let all = |list: &[String]| list.iter().any(|name| name.eq_ignore_ascii_case("ALL"));
    let mut set: BTreeSet<u8> = DEFAULT.iter().filter_map(|name| number(name)).collect();
    if security.privileged || all(&changes.add_capabilities) {
        set = everything();
    }
    if all(&changes.drop_capabilities) && !security.privileged {
        set.clear();
    }
    if !security.privileged {
        for (list, add) in [(&changes.add_capabilities, true), (&changes.drop_capabilities, false)] {
            for name in list.iter().filter(|name| !name.eq_ignore_ascii_case("ALL")) {
                let n = number(name).ok_or_else(|| Error::Capability(name.clone()))?;
                if add {
                    set.insert(n)
                } else {
                    set.remove(&n)
                };
            }
        }
    }
    Ok(set.intersection(host).filter_map(|n| NAMES.get(usize::from(*n)).copied()).collect())
}

/// A set as oci-spec has it, of names in [`NAMES`].
pub fn typed(names: impl IntoIterator<Item = &'static str>) -> Result<Capabilities, Error> {
    let one = |name: &'static str| {
        let bare = name.strip_prefix("CAP_").unwrap_or(name);
        bare.parse::<Capability>().map_err(|_| Error::Capability(name.to_owned()))
    };
    names.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_proto::cri;

    fn set(
        add: &[&str],
        drop: &[&str],
        privileged: bool,
        host: u64,
    ) -> Result<BTreeSet<&'static str>, Error> {
        let strings = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
        let capabilities = Some(cri::Capability {
            add_capabilities: strings(add),
            drop_capabilities: strings(drop),
            ..Default::default()
        });
        let security = LinuxContainerSecurityContext { capabilities, privileged, ..Default::default() };
        effective(&security, &from_mask(host))
    }

    #[test]
    fn adds_and_drops() {
        let all = u64::MAX;
        assert_eq!(set(&[], &[], false, all).unwrap().len(), DEFAULT.len());
        assert_eq!(set(&[], &["ALL"], false, all).unwrap().len(), 0);
        assert_eq!(
            set(&["NET_BIND_SERVICE"], &["all"], false, all).unwrap(),
            BTreeSet::from(["CAP_NET_BIND_SERVICE"])
        );
        assert_eq!(set(&["ALL"], &["SYS_TIME"], false, all).unwrap().len(), NAMES.len() - 1);
        assert!(set(&["cap_net_admin"], &[], false, all).unwrap().contains("CAP_NET_ADMIN"));
        assert_eq!(set(&[], &["ALL"], true, all).unwrap().len(), NAMES.len());
        assert_eq!(set(&["FLY"], &[], false, all), Err(Error::Capability("FLY".into())));
    }

    #[test]
    fn every_name_is_oci_spec_s() {
        for name in NAMES {
            let set = typed([name]).unwrap();
            assert_eq!(serde_json::to_value(set).unwrap(), serde_json::json!([name]));
        }
    }

    #[test]
    fn never_more_than_the_host_has() {
        let without_resource = !(1 << 24);
        let got = set(&["ALL"], &[], false, without_resource).unwrap();
        assert_eq!(got.len(), NAMES.len() - 1);
        assert!(!got.contains("CAP_SYS_RESOURCE"));
    }
}
