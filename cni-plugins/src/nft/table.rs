//! Tables, and netlink messages about what is in them.

use crate::netlink::Message;

/// `inet`: IPv4 and IPv6.
pub const INET: u8 = 1;

/// A table of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// `INET`, `AF_INET`, `AF_INET6`, …
    pub family: u8,
    /// Its name.
    pub name: &'static str,
}

/// A message of the nf_tables subsystem with its `struct nfgenmsg`.
pub(super) fn message(kind: i32, flags: u16, family: u8, action: impl Into<String>) -> Message {
    let kind = (libc::NFNL_SUBSYS_NFTABLES << 8 | kind) as u16;
    Message::new(kind, flags, action).raw(&[family, 0, 0, 0])
}
