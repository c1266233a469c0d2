//! What others change in a table of ours.

use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;

use super::Table;
use crate::netlink::{Attributes, Protocol, Result, Socket};

/// The group of nf_tables notifications, as a bit of a mask.
const GROUP: u32 = 1 << (libc::NFNLGRP_NFTABLES - 1);

/// What a look at the notifications showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing by others.
    Nothing,
    /// Somebody else changed the table.
    Change,
    /// Notifications were lost: look for yourself.
    Lost,
}

/// Hears changes of one table.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    table: Table,
}

impl Monitor {
    /// Listens in the network namespace of this thread.
    pub fn open(table: Table) -> Result<Self> {
        Ok(Monitor { socket: Socket::listen(Protocol::Netfilter, GROUP)?, table })
    }

    /// Reads what there is, without waiting; changes by `own` ports do not count.
    pub fn look(&mut self, own: &[u32]) -> Result<Seen> {
        let table = self.table;
        let mut seen = Seen::Nothing;
        let read = self.socket.notifications(|kind, port, payload| {
            if kind >> 8 != libc::NFNL_SUBSYS_NFTABLES as u16 || own.contains(&port) {
                return;
            }
            // In messages of every type but that of generations attribute 1 is the table's name.
            let generation = i32::from(kind & 0xff) == libc::NFT_MSG_NEWGEN;
            let name = Attributes::new(payload.get(4..).unwrap_or_default()).find_kind(1).unwrap_or_default();
            let same = name.strip_suffix(&[0]) == Some(table.name.as_bytes());
            if !generation && payload.first() == Some(&table.family) && same {
                seen = Seen::Change;
            }
        });
        match read {
            Err(error) if error.errno() == Some(Errno::ENOBUFS) => Ok(Seen::Lost),
            other => other.map(|()| seen),
        }
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
