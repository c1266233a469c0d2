//! Instructions of the kernel's packet filter.

pub(super) const LOAD: u16 = 0x20;
pub(super) const AND: u16 = 0x54;
pub(super) const GOTO: u16 = 0x05;
pub(super) const IF_EQUAL: u16 = 0x15;
pub(super) const IF_GREATER: u16 = 0x25;
pub(super) const IF_AT_LEAST: u16 = 0x35;
pub(super) const RETURN: u16 = 0x06;

/// Arguments of the call in `struct seccomp_data`, little-endian.
pub(super) const ARGUMENTS: u32 = 16;

/// One instruction of the kernel's packet filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) code: u16,
    pub(super) yes: u8,
    pub(super) no: u8,
    pub(super) value: u32,
}

pub(super) const fn step(code: u16, value: u32) -> Step {
    Step { code, yes: 0, no: 0, value }
}

/// A jump over so many steps, either way.
pub(super) const fn jump(code: u16, value: u32, yes: u8, no: u8) -> Step {
    Step { code, yes, no, value }
}
