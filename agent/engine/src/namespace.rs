//! Namespaces that a pod asks for.

use coracle_proto::cri::{self, NamespaceMode};

use coracle_keeper::wire::UserMaps;

/// The namespaces a pod asks for.
pub(crate) fn namespace_options(config: &cri::PodSandboxConfig) -> cri::NamespaceOption {
    let security = config.linux.as_ref().and_then(|l| l.security_context.as_ref());
    security.and_then(|s| s.namespace_options.clone()).unwrap_or_default()
}

pub(crate) fn is_host(mode: NamespaceMode) -> bool {
    mode == NamespaceMode::Node
}

/// The pod's user namespace mappings, when it has one.
pub(crate) fn user_maps(options: &cri::NamespaceOption) -> Option<UserMaps> {
    let user = options.userns_options.as_ref().filter(|u| u.mode() == NamespaceMode::Pod)?;
    let lines = |maps: &[cri::IdMapping]| {
        maps.iter().map(|m| format!("{} {} {}\n", m.container_id, m.host_id, m.length)).collect()
    };
    (!user.uids.is_empty()).then(|| UserMaps { uid: lines(&user.uids), gid: lines(&user.gids) })
}

/// The pod's root on the host: (user, group); the host's own without a user namespace.
pub(crate) fn root_of(options: &cri::NamespaceOption) -> (u32, u32) {
    let user = options.userns_options.as_ref().filter(|u| u.mode() == NamespaceMode::Pod);
    let root = |maps: &[cri::IdMapping]| maps.iter().find(|m| m.container_id == 0).map_or(0, |m| m.host_id);
    user.map_or((0, 0), |u| (root(&u.uids), root(&u.gids)))
}

/// Host name of the pod. Taken from the configuration, never from the hostname file: containers can write that.
pub(crate) fn hostname(config: &cri::PodSandboxConfig, host_net: bool) -> String {
    if config.hostname.is_empty() || host_net {
        return nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    }
    config.hostname.clone()
}
