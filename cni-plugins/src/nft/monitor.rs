//! Notifications about changes of a table by other programs.

use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;

use super::table::Table;
use crate::netlink::{Attributes, Protocol, Result, Socket};

/// The group of nf_tables notifications, as a bit of a mask.
const GROUP: u32 = 1 << (libc::NFNLGRP_NFTABLES - 1);

/// What the pending notifications say about the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableChange {
    /// No change by another program.
    Nothing,
    /// Another program changed the table.
    Changed,
    /// The kernel dropped notifications: the caller must check the table.
    Lost,
}

/// Subscription to changes of one table.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    table: Table,
}

impl Monitor {
    /// Subscribes in the network namespace of this thread.
    pub fn open(table: Table) -> Result<Self> {
        Ok(Monitor { socket: Socket::listen(Protocol::Netfilter, GROUP)?, table })
    }

    /// Reads the pending notifications without waiting; changes by `own` ports are ignored.
    pub fn poll(&mut self, own: &[u32]) -> Result<TableChange> {
        let table = self.table;
        let mut seen = TableChange::Nothing;
        let read = self.socket.notifications(|kind, port, payload| {
            if kind >> 8 != libc::NFNL_SUBSYS_NFTABLES as u16 || own.contains(&port) {
                return;
            }
            // In messages of every type but that of generations attribute 1 is the table's name.
            let generation = i32::from(kind & 0xff) == libc::NFT_MSG_NEWGEN;
            let name = Attributes::new(payload.get(4..).unwrap_or_default()).find_kind(1).unwrap_or_default();
            let same = name.strip_suffix(&[0]) == Some(table.name.as_bytes());
            if !generation && payload.first() == Some(&table.family) && same {
                seen = TableChange::Changed;
            }
        });
        match read {
            Err(error) if error.errno() == Some(Errno::ENOBUFS) => Ok(TableChange::Lost),
            other => other.map(|()| seen),
        }
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
