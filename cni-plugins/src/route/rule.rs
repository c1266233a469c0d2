//! Rules that choose a routing table.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    rule::{RuleAction, RuleAttribute, RuleMessage},
};
use nix::errno::Errno;

use super::Route;
use crate::netlink::{Message, Result, Tolerate};

/// An IPv4 rule: packets received on a link are looked up in a routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule<'a> {
    /// Priority; lower values are evaluated first.
    pub priority: u32,
    /// The link's name.
    pub input: &'a str,
    /// The table's number.
    pub table: u32,
}

impl Route {
    /// Adds a rule; one that is there already is `EEXIST`.
    pub fn add_rule(&mut self, rule: &Rule<'_>) -> Result<()> {
        let mut body = message(rule.priority);
        body.header.action = RuleAction::ToTable;
        body.attributes
            .extend([RuleAttribute::Iifname(rule.input.to_owned()), RuleAttribute::Table(rule.table)]);
        let action = format!("adding rule {}", rule.priority);
        self.socket.run(Message::route(RouteNetlinkMessage::NewRule(body), NLM_F_CREATE | NLM_F_EXCL, action))
    }

    /// Removes the rule of a priority; one that is not there is fine.
    pub fn remove_rule(&mut self, priority: u32) -> Result<()> {
        let body = RouteNetlinkMessage::DelRule(message(priority));
        self.socket
            .run(Message::route(body, 0, format!("removing rule {priority}")))
            .tolerate(&[Errno::ENOENT])
    }
}

fn message(priority: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet;
    message.attributes = vec![RuleAttribute::Priority(priority)];
    message
}
