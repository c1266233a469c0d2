//! nftables by netlink: tables, chains, rules, sets and maps, changed in atomic batches.
//!
//! A batch is applied as a whole or not at all. Tables, chains and sets may be added again at no cost; rules cannot,
//! so a chain is flushed and refilled inside one batch.

// Tables, and netlink messages about what is in them.
mod table;
// Expressions of rules.
mod expr;
// Sets, maps and their elements.
mod set;
// Batches of changes.
mod batch;
// Notifications about changes by other programs.
mod monitor;

pub use batch::{Batch, Hook};
pub use expr::{Base, Ct, Expr, Meta, NatKind, Verdict, reg};
pub use monitor::{Monitor, TableChange};
pub use set::{Data, Element, KeyType, SetSpec};
pub use table::{INET, Table};

use nix::errno::Errno;
use table::message;

use crate::netlink::{Attributes, Message, Protocol, Result, Socket};

/// nftables of the network namespace it was opened in.
#[derive(Debug)]
pub struct Nft {
    socket: Socket,
}

impl Nft {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<Self> {
        Ok(Nft { socket: Socket::open(Protocol::Netfilter)? })
    }

    /// Netlink port id, which notifications about changes by this socket carry.
    pub fn port(&self) -> Result<u32> {
        self.socket.port()
    }

    /// Applies a batch; on failure nothing changed, and the error names the first request refused.
    pub fn apply(&mut self, batch: Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let edge = |kind: i32| {
            Message::new(kind as u16, 0, "batch").raw(&[0, 0, 0, libc::NFNL_SUBSYS_NFTABLES as u8])
        };
        let (begin, end) = (edge(libc::NFNL_MSG_BATCH_BEGIN), edge(libc::NFNL_MSG_BATCH_END));
        self.socket.transact(begin, batch.into_messages(), end)
    }

    /// The elements of a set or map; a set or table that is not there is `ENOENT`.
    pub fn elements(&mut self, table: Table, set: &str) -> Result<Vec<Element>> {
        let flags = libc::NLM_F_DUMP as u16;
        let request = message(libc::NFT_MSG_GETSETELEM, flags, table.family, format!("listing set {set}"))
            .text(set::LIST_TABLE, table.name)
            .text(set::LIST_SET, set);
        let mut found = Vec::new();
        self.socket.query(request, |payload| {
            let attributes = Attributes::new(payload.get(4..).unwrap_or_default());
            let list = attributes.find_kind(set::LIST_ELEMENTS).unwrap_or_default();
            found.extend(Attributes::new(list).filter_map(|(_, element)| Element::parse(element)));
        })?;
        Ok(found)
    }

    /// Removes the elements for which `doomed` is true from several sets in one batch; missing sets count as empty.
    ///
    /// A commit waits for an RCU grace period, so there is one for all sets. If another program removes one of the elements
    /// meanwhile, the batch is rebuilt.
    pub fn remove_elements(
        &mut self,
        table: Table,
        sets: &[&str],
        doomed: impl Fn(&Element) -> bool,
    ) -> Result<()> {
        const ATTEMPTS: usize = 5;
        for attempt in 1.. {
            let mut batch = Batch::new();
            for set in sets {
                let found = match self.elements(table, set) {
                    Err(e) if e.errno() == Some(Errno::ENOENT) => continue,
                    other => other?,
                };
                let gone: Vec<Element> =
                    found.into_iter().filter(&doomed).map(|e| Element::key(e.key)).collect();
                batch.delete_elements(table, set, &gone);
            }
            match self.apply(batch) {
                Err(e) if e.errno() == Some(Errno::ENOENT) && attempt < ATTEMPTS => {}
                other => return other,
            }
        }
        Ok(())
    }

    /// How many rules a chain has; a chain that is not there has none.
    pub fn rule_count(&mut self, table: Table, chain: &str) -> Result<usize> {
        let request = message(
            libc::NFT_MSG_GETRULE,
            libc::NLM_F_DUMP as u16,
            table.family,
            format!("listing chain {chain}"),
        )
        .text(batch::RULE_TABLE, table.name)
        .text(batch::RULE_CHAIN, chain);
        let mut count = 0;
        self.socket.query(request, |_| count += 1)?;
        Ok(count)
    }
}
