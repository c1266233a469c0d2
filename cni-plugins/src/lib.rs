//! The CNI plugins and their parts: the protocol, netlink, nftables, and one module per plugin. The options of a plugin are in
//! the `config.rs` of its module, its executable in `bin/`.

// CNI itself: environment, stdin, results, errors.
pub mod protocol;
// Netlink on the wire: sockets, messages, attributes.
pub mod netlink;
// Links, addresses and routes.
pub mod route;
// Network namespaces.
pub mod netns;
// nftables over netlink.
pub mod nft;
// conntrack entries.
pub mod conntrack;
// The host-local IPAM plugin.
pub mod hostlocal;
// IPAM in-process or by exec.
pub mod ipam;
// The bridge plugin.
pub mod bridge;
// The loopback plugin.
pub mod loopback;
// The portmap plugin.
pub mod portmap;
// The bandwidth plugin.
pub mod bandwidth;
