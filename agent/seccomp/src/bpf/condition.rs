//! Conditions on the arguments of a system call.

use oci_spec::runtime::{LinuxSeccompArg, LinuxSeccompOperator};

use super::instruction::{AND, ARGUMENTS, IF_AT_LEAST, IF_EQUAL, IF_GREATER, LOAD, RETURN, Step, jump, step};

/// How an argument is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    Equal,
    NotEqual,
    Less,
    AtMost,
    AtLeast,
    Greater,
    /// Equal in the bits of this mask.
    Masked(u64),
}

/// A condition on one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) argument: u32,
    test: Test,
    value: u64,
}

/// Words of an argument that are compared: programs of 32 bits have arguments of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Half,
    Whole,
}

impl Condition {
    /// From an entry of `args`.
    pub(super) fn read(of: &LinuxSeccompArg) -> Option<Self> {
        let argument = u32::try_from(of.index()).ok().filter(|n| *n < 6)?;
        let value = of.value();
        let (test, value) = match of.op() {
            LinuxSeccompOperator::ScmpCmpEq => (Test::Equal, value),
            LinuxSeccompOperator::ScmpCmpNe => (Test::NotEqual, value),
            LinuxSeccompOperator::ScmpCmpLt => (Test::Less, value),
            LinuxSeccompOperator::ScmpCmpLe => (Test::AtMost, value),
            LinuxSeccompOperator::ScmpCmpGe => (Test::AtLeast, value),
            LinuxSeccompOperator::ScmpCmpGt => (Test::Greater, value),
            LinuxSeccompOperator::ScmpCmpMaskedEq => {
                (Test::Masked(value), of.value_two().unwrap_or(0) & value)
            }
        };
        Some(Self { argument, test, value })
    }

    /// As libseccomp reads it for programs of this width: the upper half of a value does not count.
    pub(super) fn of_width(self, width: Width) -> Self {
        const LOW: u64 = u32::MAX as u64;
        let low = |value: u64| if width == Width::Half { value & LOW } else { value };
        let test = match self.test {
            Test::Masked(mask) => Test::Masked(low(mask)),
            other => other,
        };
        Self { test, value: low(self.value), ..self }
    }

    /// Whether it compares for equality, not for order.
    pub(super) fn is_equality(self) -> bool {
        matches!(self.test, Test::Equal | Test::NotEqual | Test::Masked(_))
    }

    fn holds(self, argument: u64) -> bool {
        match self.test {
            Test::Equal => argument == self.value,
            Test::NotEqual => argument != self.value,
            Test::Less => argument < self.value,
            Test::AtMost => argument <= self.value,
            Test::AtLeast => argument >= self.value,
            Test::Greater => argument > self.value,
            Test::Masked(mask) => argument & mask == self.value,
        }
    }

    /// Least and greatest value, for comparisons of order; none when no value will do.
    fn range(self) -> Option<Option<(u64, u64)>> {
        Some(match self.test {
            Test::Less => self.value.checked_sub(1).map(|last| (0, last)),
            Test::AtMost => Some((0, self.value)),
            Test::AtLeast => Some((self.value, u64::MAX)),
            Test::Greater => self.value.checked_add(1).map(|first| (first, u64::MAX)),
            Test::Equal | Test::NotEqual | Test::Masked(_) => return None,
        })
    }

    /// True when no argument can satisfy both; false when that is not known.
    fn excludes(self, other: Self) -> bool {
        if self.argument != other.argument {
            return false;
        }
        match (self.test, other.test) {
            (Test::Equal, _) => !other.holds(self.value),
            (_, Test::Equal) => !self.holds(other.value),
            (Test::Masked(one), Test::Masked(two)) => one & two & (self.value ^ other.value) != 0,
            _ => match (self.range(), other.range()) {
                (Some(Some((low, high))), Some(Some((from, to)))) => low > to || from > high,
                (Some(None), _) | (_, Some(None)) => true,
                _ => false,
            },
        }
    }

    /// Steps that go on after themselves when it holds, and jump by `OUT` when not.
    fn steps(self, width: Width) -> Vec<Step> {
        let low = step(LOAD, ARGUMENTS + 8 * self.argument);
        let high = step(LOAD, ARGUMENTS + 8 * self.argument + 4);
        let (top, bottom) = ((self.value >> 32) as u32, self.value as u32);
        let mut last = match self.test {
            Test::Equal => vec![low, jump(IF_EQUAL, bottom, 0, OUT)],
            Test::NotEqual => vec![low, jump(IF_EQUAL, bottom, OUT, 0)],
            Test::Less => vec![low, jump(IF_AT_LEAST, bottom, OUT, 0)],
            Test::AtMost => vec![low, jump(IF_GREATER, bottom, OUT, 0)],
            Test::AtLeast => vec![low, jump(IF_AT_LEAST, bottom, 0, OUT)],
            Test::Greater => vec![low, jump(IF_GREATER, bottom, 0, OUT)],
            Test::Masked(mask) => {
                vec![low, step(AND, mask as u32), jump(IF_EQUAL, bottom, 0, OUT)]
            }
        };
        if width == Width::Half {
            return last;
        }
        // The upper half decides unless it is equal; then the lower one does, in the two or three steps of `last`.
        let mut steps = vec![high];
        match self.test {
            Test::Equal => steps.push(jump(IF_EQUAL, top, 0, OUT)),
            Test::NotEqual => steps.push(jump(IF_EQUAL, top, 0, 2)),
            Test::Less | Test::AtMost => {
                steps.extend([jump(IF_AT_LEAST, top, 0, 3), jump(IF_EQUAL, top, 0, OUT)]);
            }
            Test::AtLeast | Test::Greater => {
                steps.extend([jump(IF_GREATER, top, 3, 0), jump(IF_EQUAL, top, 0, OUT)]);
            }
            Test::Masked(mask) => {
                steps.extend([step(AND, (mask >> 32) as u32), jump(IF_EQUAL, top, 0, OUT)]);
            }
        }
        steps.append(&mut last);
        steps
    }
}

/// True when no call satisfies both lists; false when that is not known.
pub(super) fn exclusive(one: &[Condition], other: &[Condition]) -> bool {
    one.iter().any(|a| other.iter().any(|b| a.excludes(*b)))
}

/// Stands for the way past the action.
const OUT: u8 = u8::MAX;

/// Returns the action when all conditions hold, goes on after itself when one does not.
pub(super) fn guarded(conditions: &[Condition], action: u32, width: Width) -> Option<Vec<Step>> {
    let mut steps: Vec<Step> = conditions.iter().flat_map(|condition| condition.steps(width)).collect();
    steps.push(step(RETURN, action));
    let end = steps.len();
    for (at, step) in steps.iter_mut().enumerate() {
        let out = u8::try_from(end - at - 1).ok().filter(|way| *way != OUT)?;
        for way in [&mut step.yes, &mut step.no] {
            if *way == OUT {
                *way = out;
            }
        }
    }
    Some(steps)
}
