//! Changes, collected and applied together.

use super::{
    expr::Expr,
    set::{self, Element, SetSpec},
    table::{Table, message},
};
use crate::netlink::Message;

pub(super) const RULE_TABLE: u16 = 1;
pub(super) const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const RULE_USERDATA: u16 = 7;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
/// Elements per message: a nested attribute cannot be longer than 64 KiB.
const ELEMENTS: usize = 400;

/// Where a base chain hooks in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// `nat` or `filter`.
    pub kind: &'static str,
    /// `NF_INET_*`.
    pub number: u32,
    /// -100 for destination, 100 for source NAT, 0 for filters.
    pub priority: i32,
}

/// A batch under construction; requests are applied in the order they were added.
#[derive(Debug, Default)]
pub struct Batch {
    messages: Vec<Message>,
    sets: u32,
}

const CREATE: u16 = libc::NLM_F_CREATE as u16;
const APPEND: u16 = (libc::NLM_F_CREATE | libc::NLM_F_APPEND) as u16;

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn into_messages(self) -> Vec<Message> {
        self.messages
    }

    /// Adds a table if it is not there.
    pub fn table(&mut self, table: Table) {
        let action = format!("adding table {}", table.name);
        self.messages.push(message(libc::NFT_MSG_NEWTABLE, CREATE, table.family, action).text(1, table.name));
    }

    /// Deletes a table with all that is in it.
    pub fn delete_table(&mut self, table: Table) {
        let action = format!("deleting table {}", table.name);
        self.messages.push(message(libc::NFT_MSG_DELTABLE, 0, table.family, action).text(1, table.name));
    }

    /// Adds a chain if it is not there; with a hook, a base chain.
    pub fn chain(&mut self, table: Table, name: &str, hook: Option<Hook>) {
        let mut m = message(libc::NFT_MSG_NEWCHAIN, CREATE, table.family, format!("adding chain {name}"))
            .text(CHAIN_TABLE, table.name)
            .text(CHAIN_NAME, name);
        if let Some(hook) = hook {
            m = m
                .nest(CHAIN_HOOK, |m| m.be32(1, hook.number).be32(2, hook.priority as u32))
                .text(CHAIN_TYPE, hook.kind);
        }
        self.messages.push(m);
    }

    /// Deletes an empty chain that nothing refers to.
    pub fn delete_chain(&mut self, table: Table, name: &str) {
        let m = message(libc::NFT_MSG_DELCHAIN, 0, table.family, format!("deleting chain {name}"));
        self.messages.push(m.text(CHAIN_TABLE, table.name).text(CHAIN_NAME, name));
    }

    /// Removes all rules of a chain.
    pub fn flush_chain(&mut self, table: Table, chain: &str) {
        let m = message(libc::NFT_MSG_DELRULE, 0, table.family, format!("flushing chain {chain}"));
        self.messages.push(m.text(RULE_TABLE, table.name).text(RULE_CHAIN, chain));
    }

    /// Appends a rule.
    pub fn rule(&mut self, table: Table, chain: &str, expressions: &[Expr], comment: &str) {
        let m =
            message(libc::NFT_MSG_NEWRULE, APPEND, table.family, format!("adding a rule to chain {chain}"))
                .text(RULE_TABLE, table.name)
                .text(RULE_CHAIN, chain)
                .nest(RULE_EXPRESSIONS, |m| expressions.iter().fold(m, |m, e| e.write(m)));
        self.messages.push(match comment {
            "" => m,
            text => m.attr(RULE_USERDATA, &set::comment(text)),
        });
    }

    /// Adds a set or map if it is not there.
    pub fn set(&mut self, table: Table, spec: &SetSpec<'_>) {
        self.sets += 1;
        let m = message(libc::NFT_MSG_NEWSET, CREATE, table.family, format!("adding set {}", spec.name));
        self.messages.push(spec.write(m.text(1, table.name), self.sets));
    }

    /// Adds a set or map, if it is not there, whose elements come from packets and go after a time.
    pub fn dynamic_set(&mut self, table: Table, spec: &SetSpec<'_>) {
        self.sets += 1;
        let m = message(libc::NFT_MSG_NEWSET, CREATE, table.family, format!("adding set {}", spec.name));
        self.messages.push(spec.write_with(m.text(1, table.name), self.sets, set::TIMEOUT | set::EVAL));
    }

    /// Deletes a set that nothing refers to.
    pub fn delete_set(&mut self, table: Table, name: &str) {
        let m = message(libc::NFT_MSG_DELSET, 0, table.family, format!("deleting set {name}"));
        self.messages.push(m.text(1, table.name).text(2, name));
    }

    /// Adds elements. The same ones already there are fine; a key with another value is `EEXIST`.
    pub fn add_elements(&mut self, table: Table, set: &str, elements: &[Element]) {
        self.elements(libc::NFT_MSG_NEWSETELEM, CREATE, table, set, elements);
    }

    /// Adds elements that must not be there yet: `EEXIST` otherwise.
    pub fn create_elements(&mut self, table: Table, set: &str, elements: &[Element]) {
        self.elements(libc::NFT_MSG_NEWSETELEM, CREATE | libc::NLM_F_EXCL as u16, table, set, elements);
    }

    /// Deletes elements; one that is not there is `ENOENT`.
    pub fn delete_elements(&mut self, table: Table, set: &str, elements: &[Element]) {
        self.elements(libc::NFT_MSG_DELSETELEM, 0, table, set, elements);
    }

    /// Removes all elements of a set.
    pub fn flush_set(&mut self, table: Table, set: &str) {
        let m = message(libc::NFT_MSG_DELSETELEM, 0, table.family, format!("flushing set {set}"));
        self.messages.push(m.text(set::LIST_TABLE, table.name).text(set::LIST_SET, set));
    }

    fn elements(&mut self, kind: i32, flags: u16, table: Table, set: &str, elements: &[Element]) {
        for chunk in elements.chunks(ELEMENTS) {
            let m = message(kind, flags, table.family, format!("changing elements of set {set}"))
                .text(set::LIST_TABLE, table.name)
                .text(set::LIST_SET, set)
                .nest(set::LIST_ELEMENTS, |m| chunk.iter().fold(m, |m, e| e.write(m)));
            self.messages.push(m);
        }
    }
}
