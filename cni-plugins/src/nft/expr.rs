//! Expressions: what a rule does, step by step, over 16 registers of 4 bytes.

use crate::{
    netlink::Message,
    route::{Cidr, octets},
};

const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
const LIST_ELEM: u16 = 1;

/// The number of the n-th 4-byte register. Longer values take several in a row.
pub const fn reg(n: u32) -> u32 {
    8 + n
}

/// Which header a payload is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// IPv4, IPv6.
    Network = 1,
    /// TCP, UDP, SCTP.
    Transport = 2,
}

/// Packet metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// The firewall mark.
    Mark = 3,
    /// Name of the input interface.
    InputName = 6,
    /// Name of the output interface.
    OutputName = 7,
    /// 2 for IPv4, 10 for IPv6; one byte.
    NfProto = 15,
    /// TCP, UDP, …; one byte.
    L4Proto = 16,
}

/// Conntrack metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ct {
    /// New, established, …: a bit mask in host order.
    State = 0,
    /// NATed and the like: a bit mask in host order.
    Status = 2,
    /// Where it was sent to before translation: a port, network order.
    OriginalPort = 12,
    /// Where it was sent to before translation, IPv4.
    OriginalIpv4 = 20,
    /// Where it was sent to before translation, IPv6.
    OriginalIpv6 = 22,
}

/// Which address is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatKind {
    /// The source.
    Source = 0,
    /// The destination.
    Destination = 1,
}

/// Verdict on a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Accepts the packet.
    Accept,
    /// Drops the packet.
    Drop,
    /// Back to the calling chain.
    Return,
    /// Jumps to a chain; evaluation returns afterwards.
    Jump(String),
    /// Continues in a chain without returning.
    Goto(String),
}

impl Verdict {
    pub(super) fn write(&self, message: Message) -> Message {
        let (code, chain) = match self {
            Verdict::Drop => (0, None),
            Verdict::Accept => (1, None),
            Verdict::Jump(chain) => (-3, Some(chain)),
            Verdict::Goto(chain) => (-4, Some(chain)),
            Verdict::Return => (-5_i32, None),
        };
        message.nest(DATA_VERDICT, |m| {
            let m = m.be32(VERDICT_CODE, code as u32);
            match chain {
                Some(chain) => m.text(VERDICT_CHAIN, chain),
                None => m,
            }
        })
    }
}

/// One expression of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// Reads bytes of a header.
    Payload {
        /// Which header.
        base: Base,
        /// From which byte.
        offset: u32,
        /// How many.
        len: u32,
        /// Into which register.
        to: u32,
    },
    /// Reads packet metadata.
    Meta {
        /// The property.
        key: Meta,
        /// Into which register.
        to: u32,
    },
    /// Reads conntrack metadata.
    Ct {
        /// The property.
        key: Ct,
        /// Into which register.
        to: u32,
    },
    /// Reads the type (`RTN_LOCAL`, …) of the destination address, 4 bytes in host order.
    FibDestinationType {
        /// Into which register.
        to: u32,
    },
    /// Goes on only if a register is (or is not) a value.
    Compare {
        /// The register.
        from: u32,
        /// Equal, or different.
        equal: bool,
        /// The value.
        value: Vec<u8>,
    },
    /// Goes on only if a register is between two values, both included.
    Range {
        /// The register.
        register: u32,
        /// The least.
        from: Vec<u8>,
        /// The greatest.
        to: Vec<u8>,
    },
    /// Keeps the bits of a mask.
    Mask {
        /// The register, changed in place.
        at: u32,
        /// The mask.
        mask: Vec<u8>,
    },
    /// Keeps the bits of a mask, then flips others: `(value & mask) ^ xor`.
    Bits {
        /// The register, changed in place.
        at: u32,
        /// Bits that are kept.
        mask: Vec<u8>,
        /// Bits that are flipped afterwards.
        xor: Vec<u8>,
    },
    /// Writes packet metadata.
    SetMeta {
        /// The property.
        key: Meta,
        /// From which register.
        from: u32,
    },
    /// Adds an element to a set or map, or renews its time.
    Update {
        /// The set, which must be a dynamic one.
        set: String,
        /// The first register of the key.
        key: u32,
        /// The first register of the value, for maps.
        value: Option<u32>,
        /// How long the element stays.
        milliseconds: u64,
    },
    /// Goes on only if a register's value is in a set, or is not.
    InSet {
        /// The set.
        set: String,
        /// The first register of the key.
        from: u32,
        /// Whether absence is what is looked for.
        inverted: bool,
    },
    /// Goes on only if a map has the key, with its value in registers.
    Map {
        /// The map.
        map: String,
        /// The first register of the key.
        from: u32,
        /// The first register of the value.
        to: u32,
    },
    /// Follows the verdict of a map, or goes on.
    VerdictMap {
        /// The map.
        map: String,
        /// The first register of the key.
        from: u32,
    },
    /// Puts a value into registers.
    Load {
        /// The first register.
        to: u32,
        /// The value.
        value: Vec<u8>,
    },
    /// A number below `modulus`, another one each time.
    NumberRandom {
        /// Into which register, host order.
        to: u32,
        /// One more than the greatest.
        modulus: u32,
    },
    /// Translates an address and optionally a port.
    Nat {
        /// Which address.
        kind: NatKind,
        /// `AF_INET` or `AF_INET6`.
        family: i32,
        /// Register of the address.
        address: u32,
        /// Register of the port, network order.
        port: Option<u32>,
    },
    /// Translates the source to the address of the output interface.
    Masquerade,
    /// Counts packets and bytes.
    Counter,
    /// Refuses with an ICMP message of a code (3 is "port unreachable"), both families.
    Reject {
        /// `NFT_REJECT_ICMPX_*`.
        icmpx: u8,
    },
    /// Ends the rule.
    Verdict(Verdict),
}

/// Shorthands for common expressions.
impl Expr {
    /// Only IPv4 or only IPv6.
    pub fn family_is(v4: bool) -> [Expr; 2] {
        let proto = if v4 { libc::NFPROTO_IPV4 } else { libc::NFPROTO_IPV6 } as u8;
        let value = vec![proto];
        [Expr::Meta { key: Meta::NfProto, to: reg(0) }, Expr::Compare { from: reg(0), equal: true, value }]
    }

    /// The source address into registers from `to`.
    pub fn source(v4: bool, to: u32) -> Expr {
        let (offset, len) = if v4 { (12, 4) } else { (8, 16) };
        Expr::Payload { base: Base::Network, offset, len, to }
    }

    /// The destination address into registers from `to`.
    pub fn destination(v4: bool, to: u32) -> Expr {
        let (offset, len) = if v4 { (16, 4) } else { (24, 16) };
        Expr::Payload { base: Base::Network, offset, len, to }
    }

    /// `then` for packets of a family whose address, read into the first registers, is in a prefix.
    pub fn when(v4: bool, address: Expr, prefix: Cidr, then: Expr) -> Vec<Expr> {
        let mut rule = Expr::family_is(v4).to_vec();
        rule.push(address);
        rule.push(Expr::Mask { at: reg(0), mask: prefix.mask() });
        rule.push(Expr::Compare { from: reg(0), equal: true, value: octets(prefix.network().ip) });
        rule.push(then);
        rule
    }

    /// Sets the bits `set` of the packet's mark and clears `clear`, over a register of no other use.
    pub fn mark(set: u32, clear: u32, register: u32) -> [Expr; 3] {
        let (mask, xor) = ((!(set | clear)).to_ne_bytes().to_vec(), set.to_ne_bytes().to_vec());
        [
            Expr::Meta { key: Meta::Mark, to: register },
            Expr::Bits { at: register, mask, xor },
            Expr::SetMeta { key: Meta::Mark, from: register },
        ]
    }

    /// Goes on only if the packet's mark has one of these bits.
    pub fn marked(bits: u32) -> [Expr; 3] {
        [
            Expr::Meta { key: Meta::Mark, to: reg(0) },
            Expr::Mask { at: reg(0), mask: bits.to_ne_bytes().to_vec() },
            Expr::Compare { from: reg(0), equal: false, value: vec![0; 4] },
        ]
    }

    /// The destination port.
    pub fn destination_port(to: u32) -> Expr {
        Expr::Payload { base: Base::Transport, offset: 2, len: 2, to }
    }

    fn name(&self) -> &'static str {
        match self {
            Expr::Payload { .. } => "payload",
            Expr::Meta { .. } => "meta",
            Expr::Ct { .. } => "ct",
            Expr::FibDestinationType { .. } => "fib",
            Expr::Compare { .. } => "cmp",
            Expr::Range { .. } => "range",
            Expr::Mask { .. } | Expr::Bits { .. } => "bitwise",
            Expr::SetMeta { .. } => "meta",
            Expr::Update { .. } => "dynset",
            Expr::InSet { .. } | Expr::Map { .. } | Expr::VerdictMap { .. } => "lookup",
            Expr::Load { .. } | Expr::Verdict(_) => "immediate",
            Expr::NumberRandom { .. } => "numgen",
            Expr::Nat { .. } => "nat",
            Expr::Masquerade => "masq",
            Expr::Counter => "counter",
            Expr::Reject { .. } => "reject",
        }
    }

    pub(super) fn write(&self, message: Message) -> Message {
        message.nest(LIST_ELEM, |m| m.text(EXPR_NAME, self.name()).nest(EXPR_DATA, |m| self.write_data(m)))
    }

    fn write_data(&self, m: Message) -> Message {
        let value = |bytes: &[u8]| {
            let bytes = bytes.to_vec();
            move |m: Message| m.attr(DATA_VALUE, &bytes)
        };
        match self {
            Expr::Payload { base, offset, len, to } => {
                m.be32(1, *to).be32(2, *base as u32).be32(3, *offset).be32(4, *len)
            }
            Expr::Meta { key, to } => m.be32(1, *to).be32(2, *key as u32),
            Expr::Ct { key: key @ (Ct::State | Ct::Status), to } => m.be32(1, *to).be32(2, *key as u32),
            // Attribute 3 is the direction, 0 the original one.
            Expr::Ct { key, to } => m.be32(1, *to).be32(2, *key as u32).attr(3, &[0]),
            Expr::FibDestinationType { to } => m.be32(1, *to).be32(2, 3).be32(3, 2),
            Expr::Compare { from, equal, value: bytes } => {
                m.be32(1, *from).be32(2, u32::from(!equal)).nest(3, value(bytes))
            }
            Expr::Range { register, from, to } => {
                m.be32(1, *register).be32(2, 0).nest(3, value(from)).nest(4, value(to))
            }
            Expr::Mask { at, mask } => {
                let zeros = vec![0; mask.len()];
                m.be32(1, *at)
                    .be32(2, *at)
                    .be32(3, mask.len() as u32)
                    .nest(4, value(mask))
                    .nest(5, value(&zeros))
            }
            Expr::Bits { at, mask, xor } => m
                .be32(1, *at)
                .be32(2, *at)
                .be32(3, mask.len() as u32)
                .nest(4, value(mask))
                .nest(5, value(xor)),
            Expr::SetMeta { key, from } => m.be32(2, *key as u32).be32(3, *from),
            Expr::Update { set, key, value, milliseconds } => {
                // Attributes: set name, operation (1 is update), key, value, timeout.
                let m = m.text(1, set).be32(3, 1).be32(4, *key);
                let m = match value {
                    Some(register) => m.be32(5, *register),
                    None => m,
                };
                m.attr(6, &milliseconds.to_be_bytes())
            }
            Expr::InSet { set, from, inverted } => {
                m.text(1, set).be32(2, *from).be32(5, u32::from(*inverted))
            }
            Expr::Map { map, from, to } => m.text(1, map).be32(2, *from).be32(3, *to),
            Expr::VerdictMap { map, from } => m.text(1, map).be32(2, *from).be32(3, 0),
            Expr::Load { to, value: bytes } => m.be32(1, *to).nest(2, value(bytes)),
            Expr::NumberRandom { to, modulus } => m.be32(1, *to).be32(2, *modulus).be32(3, 1),
            Expr::Nat { kind, family, address, port } => {
                let m = m.be32(1, *kind as u32).be32(2, *family as u32).be32(3, *address).be32(4, *address);
                match port {
                    Some(port) => m.be32(5, *port).be32(6, *port),
                    None => m,
                }
            }
            Expr::Masquerade | Expr::Counter => m,
            Expr::Reject { icmpx } => m.be32(1, 2).attr(2, &[*icmpx]),
            Expr::Verdict(verdict) => m.be32(1, 0).nest(2, |m| verdict.write(m)),
        }
    }
}
