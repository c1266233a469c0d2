//! Compiles device rules to instructions of eBPF.
//!
//! The kernel asks for a device and a set of accesses, and refuses it if the program returns 0. Each access is decided by
//! the last rule that matches it, and refused without one.

/// Kind of a device, as the kernel numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A block device.
    Block = 1,
    /// A character device.
    Character = 2,
}

/// A set of accesses, as the kernel numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// Making a device.
    pub const MKNOD: Self = Self(1);
    /// Making, reading and writing.
    pub const ALL: Self = Self(7);

    /// From letters of `rwm`.
    pub fn read(letters: &str) -> Option<Self> {
        let bit = |letter| match letter {
            'm' => Some(1),
            'r' => Some(2),
            'w' => Some(4),
            _ => None,
        };
        letters.chars().try_fold(0, |set, letter| Some(set | bit(letter)?)).map(Self)
    }
}

/// A rule about devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Allowed or refused.
    pub allow: bool,
    /// None for both.
    pub kind: Option<Kind>,
    /// None for any.
    pub major: Option<u32>,
    /// None for any.
    pub minor: Option<u32>,
    /// Which accesses it is about.
    pub access: Access,
}

const LOAD: u8 = 0x61;
const COPY: u8 = 0xbf;
const SET: u8 = 0xb7;
const AND: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const GOTO: u8 = 0x05;
const IF_SET: u8 = 0x45;
/// Compares 32 bits: a number above 2^31 would be extended to a negative one.
const IF_NOT_EQUAL: u8 = 0x56;
const EXIT: u8 = 0x95;

const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const ACCESS: u8 = 2;
const KIND: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// One instruction. Offsets are counted from the next one.
#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u8,
    to: u8,
    from: u8,
    offset: i16,
    value: u32,
}

impl Instruction {
    const fn new(code: u8, to: u8, from: u8, offset: i16, value: u32) -> Self {
        Self { code, to, from, offset, value }
    }

    fn bytes(self) -> [u8; 8] {
        let ([o0, o1], [v0, v1, v2, v3]) = (self.offset.to_ne_bytes(), self.value.to_ne_bytes());
        let registers =
            if cfg!(target_endian = "little") { self.to | self.from << 4 } else { self.to << 4 | self.from };
        [self.code, registers, o0, o1, v0, v1, v2, v3]
    }
}

/// The instructions, eight bytes each.
pub fn compile(rules: &[Rule]) -> Vec<u8> {
    let mut program = vec![
        // struct bpf_cgroup_dev_ctx: access and kind in one word, major, minor.
        Instruction::new(LOAD, ACCESS, CONTEXT, 0, 0),
        Instruction::new(LOAD, MAJOR, CONTEXT, 4, 0),
        Instruction::new(LOAD, MINOR, CONTEXT, 8, 0),
        Instruction::new(COPY, KIND, ACCESS, 0, 0),
        Instruction::new(AND, KIND, 0, 0, 0xFFFF),
        Instruction::new(SHIFT_RIGHT, ACCESS, 0, 0, 16),
    ];
    for bit in [1, 2, 4] {
        let block = block(rules, bit);
        program.push(Instruction::new(IF_SET, ACCESS, 0, 1, u32::from(bit)));
        program.push(Instruction::new(GOTO, 0, 0, block.len() as i16, 0));
        program.extend(block);
    }
    program.push(Instruction::new(SET, RESULT, 0, 0, 1));
    program.push(Instruction::new(EXIT, 0, 0, 0, 0));
    program.into_iter().flat_map(Instruction::bytes).collect()
}

/// Decides one access: goes on behind the block if it is allowed, ends the program if it is not.
fn block(rules: &[Rule], bit: u8) -> Vec<Instruction> {
    let mut reversed = vec![refuse()];
    // Built from its end: a jump behind the block is as long as what stands there already.
    for rule in rules.iter().filter(|rule| rule.access.0 & bit != 0) {
        let behind = reversed.iter().map(|part: &Vec<Instruction>| part.len()).sum::<usize>();
        let verdict =
            if rule.allow { vec![Instruction::new(GOTO, 0, 0, behind as i16, 0)] } else { refuse() };
        let conditions =
            [(KIND, rule.kind.map(|kind| kind as u32)), (MAJOR, rule.major), (MINOR, rule.minor)];
        let conditions: Vec<(u8, u32)> =
            conditions.into_iter().filter_map(|(register, value)| Some((register, value?))).collect();
        // The rules before it decide nothing, and the kernel refuses instructions that are never reached.
        if conditions.is_empty() {
            reversed = if rule.allow { vec![] } else { vec![refuse()] };
            continue;
        }
        let mut part = Vec::new();
        for (at, (register, value)) in conditions.iter().enumerate() {
            let rest = conditions.len() - at - 1 + verdict.len();
            part.push(Instruction::new(IF_NOT_EQUAL, *register, 0, rest as i16, *value));
        }
        part.extend(verdict);
        reversed.push(part);
    }
    reversed.into_iter().rev().flatten().collect()
}

fn refuse() -> Vec<Instruction> {
    vec![Instruction::new(SET, RESULT, 0, 0, 0), Instruction::new(EXIT, 0, 0, 0, 0)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What the kernel would do.
    fn allowed(program: &[u8], kind: Kind, major: u32, minor: u32, access: &str) -> bool {
        let context = [u32::from(Access::read(access).unwrap().0) << 16 | kind as u32, major, minor];
        let (mut registers, mut at) = ([0u64; 11], 0usize);
        loop {
            let step = &program[at * 8..][..8];
            let (to, from) = (usize::from(step[1] & 15), usize::from(step[1] >> 4));
            let offset = i16::from_ne_bytes([step[2], step[3]]);
            let value = u64::from(u32::from_ne_bytes(step[4..].try_into().unwrap()));
            at += 1;
            let jumps = match step[0] {
                LOAD => {
                    registers[to] = u64::from(context[offset as usize / 4]);
                    false
                }
                COPY => {
                    registers[to] = registers[from];
                    false
                }
                SET => {
                    registers[to] = value;
                    false
                }
                AND => {
                    registers[to] &= value;
                    false
                }
                SHIFT_RIGHT => {
                    registers[to] >>= value;
                    false
                }
                GOTO => true,
                IF_SET => registers[to] & value != 0,
                IF_NOT_EQUAL => registers[to] != value,
                EXIT => return registers[0] != 0,
                other => panic!("{other:#x}"),
            };
            if jumps {
                at = at.checked_add_signed(isize::from(offset)).unwrap();
            }
        }
    }

    fn rule(allow: bool, kind: Option<Kind>, major: Option<u32>, minor: Option<u32>, access: &str) -> Rule {
        Rule { allow, kind, major, minor, access: Access::read(access).unwrap() }
    }

    #[test]
    fn the_last_rule_that_matches_decides() {
        let none = rule(false, None, None, None, "rwm");
        let program = compile(&[
            none,
            rule(true, Some(Kind::Character), Some(1), Some(3), "rwm"),
            rule(true, Some(Kind::Block), Some(8), None, "r"),
            rule(true, Some(Kind::Block), Some(8), None, "w"),
            rule(false, Some(Kind::Block), Some(8), Some(1), "w"),
            rule(true, Some(Kind::Character), None, Some(u32::MAX), "m"),
        ]);
        for (kind, major, minor, access, wanted) in [
            (Kind::Character, 1, 3, "rwm", true),
            (Kind::Block, 1, 3, "r", false),
            (Kind::Character, 1, 4, "r", false),
            (Kind::Block, 8, 0, "rw", true),
            (Kind::Block, 8, 0, "m", false),
            (Kind::Block, 8, 0, "rm", false),
            (Kind::Block, 8, 1, "r", true),
            (Kind::Block, 8, 1, "rw", false),
            (Kind::Character, 77, u32::MAX, "m", true),
        ] {
            assert_eq!(
                allowed(&program, kind, major, minor, access),
                wanted,
                "{kind:?} {major}:{minor} {access}"
            );
        }
        assert!(!allowed(&compile(&[]), Kind::Character, 1, 3, "r"), "nothing without a rule");
        let all = compile(&[rule(true, None, None, None, "rwm")]);
        assert!(allowed(&all, Kind::Block, 8, 0, "rwm"), "a privileged container");
        let taken = compile(&[rule(true, None, None, None, "rwm"), none]);
        assert!(!allowed(&taken, Kind::Block, 8, 0, "r"), "a rule replaces those before it");
    }
}
