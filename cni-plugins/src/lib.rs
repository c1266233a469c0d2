//! What the CNI plugins are made of: the protocol, netlink, nftables, and one module per plugin.

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
// Connections the kernel tracks.
pub mod conntrack;
// Address allocation on files.
pub mod hostlocal;
// IPAM in-process or by exec.
pub mod ipam;
// The bridge plugin.
pub mod bridge;
// The loopback plugin.
pub mod loopback;
// The portmap plugin.
pub mod portmap;
