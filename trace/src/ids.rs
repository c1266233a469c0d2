use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use crate::stage::Stage;

/// A trace, as in W3C Trace Context: 32 lowercase hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TraceId(pub u128);

/// A span, as in W3C Trace Context: 16 lowercase hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SpanId(pub u64);

/// The uid of an object as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uid(pub u128);

impl TraceId {
    /// No trace, or that of the parent.
    pub const NONE: Self = Self(0);

    /// A random id.
    pub fn fresh() -> Self {
        Self((u128::from(random()) << 64 | u128::from(random())).max(1))
    }

    /// Parses 32 lowercase hexadecimal digits that are not all 0.
    pub fn parse(hex: &str) -> Option<Self> {
        (hex.len() == 32).then(|| number(hex)).flatten().filter(|number| *number != 0).map(Self)
    }

    /// Whether this is [`TraceId::NONE`].
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl SpanId {
    /// No span: of a parent, that the span is a root.
    pub const NONE: Self = Self(0);

    /// A random id.
    pub fn fresh() -> Self {
        Self(random().max(1))
    }

    /// Parses 16 lowercase hexadecimal digits that are not all 0.
    pub fn parse(hex: &str) -> Option<Self> {
        let number = (hex.len() == 16).then(|| number(hex)).flatten()?;
        u64::try_from(number).ok().filter(|number| *number != 0).map(Self)
    }

    /// Whether this is [`SpanId::NONE`].
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The span of the write that gave the object this revision.
    ///
    /// ```
    /// use coracle_trace::{SpanId, Uid};
    ///
    /// let uid = Uid::of("11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11");
    /// assert_eq!(SpanId::of_write(uid, 7), SpanId::of_write(uid, 7));
    /// assert_ne!(SpanId::of_write(uid, 7), SpanId::of_write(uid, 8));
    /// ```
    pub fn of_write(uid: Uid, revision: u64) -> Self {
        derived(0x77_72_69_74_65, [high(uid.0), low(uid.0), revision])
    }

    /// The one span of this stage in the life of an object, such as the start of a pod.
    pub fn of_stage(uid: Uid, stage: Stage) -> Self {
        derived(0x73_74_61_67_65, [high(uid.0), low(uid.0), u64::from(stage.code())])
    }

    /// The n-th mark of a record, as a span.
    pub fn of_mark(self, mark: u8) -> Self {
        derived(0x6d_61_72_6b, [self.0, u64::from(mark), 0])
    }
}

impl Uid {
    /// No object.
    pub const NONE: Self = Self(0);

    /// The 36 characters of a UUID or 32 hexadecimal digits (static pods) as they are, a hash of any other text. The empty text is
    /// [`Uid::NONE`].
    pub fn of(text: &str) -> Self {
        if text.is_empty() {
            return Self::NONE;
        }
        Self(exact(text).unwrap_or_else(|| fnv(text)).max(1))
    }

    /// Whether this is [`Uid::NONE`].
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// In the form of a UUID.
impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (high, low) = (high(self.0), low(self.0));
        write!(f, "{:08x}-{:04x}-{:04x}-", high >> 32, high >> 16 & 0xffff, high & 0xffff)?;
        write!(f, "{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
    }
}

pub(crate) fn high(number: u128) -> u64 {
    (number >> 64) as u64
}

pub(crate) fn low(number: u128) -> u64 {
    number as u64
}

pub(crate) fn joined(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// Lowercase hexadecimal digits, at most 32 of them.
pub(crate) fn number(hex: &str) -> Option<u128> {
    hex.bytes().try_fold(0, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

fn exact(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    let mut digits = [0; 32];
    if let Ok(bytes) = <&[u8; 36]>::try_from(bytes) {
        if [8, 13, 18, 23].iter().any(|&at| bytes[at] != b'-') {
            return None;
        }
        digits[..8].copy_from_slice(&bytes[..8]);
        digits[8..12].copy_from_slice(&bytes[9..13]);
        digits[12..16].copy_from_slice(&bytes[14..18]);
        digits[16..20].copy_from_slice(&bytes[19..23]);
        digits[20..].copy_from_slice(&bytes[24..]);
    } else {
        digits = *<&[u8; 32]>::try_from(bytes).ok()?;
    }
    let mut invalid = 0;
    let mut half = |digits: &[u8]| {
        digits.iter().fold(0, |number, byte| {
            let digit = DIGITS[usize::from(*byte)];
            invalid |= digit;
            number << 4 | u64::from(digit)
        })
    };
    let (high, low) = (half(&digits[..16]), half(&digits[16..]));
    (invalid < 16).then_some(joined(high, low))
}

/// The value of a hexadecimal digit; 16 for other bytes.
const DIGITS: [u8; 256] = {
    let mut digits = [16; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

/// FNV-1a of 128 bits.
fn fnv(text: &str) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64.
fn mixed(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

fn derived(function: u64, parts: [u64; 3]) -> SpanId {
    let id = parts.iter().fold(mixed(function), |id, part| mixed((id ^ part).wrapping_add(GOLDEN)));
    SpanId(id.max(1))
}

/// SplitMix64, seeded per thread.
pub(crate) fn random() -> u64 {
    thread_local!(static STATE: Cell<Option<u64>> = const { Cell::new(None) });
    STATE.with(|state| {
        let before = state.get().unwrap_or_else(|| RandomState::new().hash_one(std::thread::current().id()));
        let after = before.wrapping_add(GOLDEN);
        state.set(Some(after));
        mixed(after)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_hexadecimal_both_ways() {
        let trace = TraceId(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(TraceId::parse("4bf92f3577b34da6a3ce929d0e0e4736"), Some(trace));
        assert_eq!(SpanId(0x00f0_67aa_0ba9_02b7).to_string(), "00f067aa0ba902b7");
        assert_eq!(SpanId::parse("00f067aa0ba902b7"), Some(SpanId(0x00f0_67aa_0ba9_02b7)));
        for bad in [
            "",
            "0",
            "0000000000000000",
            "00F067AA0BA902B7",
            "00f067aa0ba902b",
            "00f067aa0ba902b77",
            "00f067aa0ba902bé",
        ] {
            assert_eq!(SpanId::parse(bad), None, "{bad}");
        }
        assert_eq!(TraceId::parse(&"0".repeat(32)), None);
    }

    #[test]
    fn uids_are_exact_where_they_are_uuids() {
        let uid = Uid::of("11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11");
        assert_eq!(uid.to_string(), "11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11");
        assert_eq!(Uid::of("11d6d9f27d9f4a5b8a540d7b6a1d0c11"), uid);
        assert_eq!(Uid::of(""), Uid::NONE);
        assert_eq!(Uid::of("a"), Uid(0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964));
        assert_ne!(Uid::of("11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c1"), uid);
        assert_ne!(Uid::of("00000000-0000-0000-0000-000000000000"), Uid::NONE);
        assert_ne!(Uid::of("11d6d9f2+7d9f+4a5b+8a54+0d7b6a1d0c11"), uid);
    }

    #[test]
    fn derived_ids_differ_by_everything_they_are_made_of() {
        let mut ids = HashSet::new();
        for uid in 0..50 {
            for n in 0..50u8 {
                assert!(ids.insert(SpanId::of_write(Uid(uid), u64::from(n))));
                assert!(ids.insert(SpanId::of_write(Uid(uid << 64), u64::from(n))) || uid == 0);
                assert!(ids.insert(SpanId(uid as u64).of_mark(n)));
            }
            assert!(ids.insert(SpanId::of_stage(Uid(uid), Stage::PodStart)));
            assert!(ids.insert(SpanId::of_stage(Uid(uid), Stage::Terminate)));
        }
        assert!(!ids.contains(&SpanId::NONE));
    }

    #[test]
    fn fresh_ids_of_threads_differ() {
        let threads: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| (0..1000).map(|_| SpanId::fresh()).collect::<Vec<_>>()))
            .collect();
        let ids: HashSet<_> =
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        assert_eq!(ids.len(), 8000);
    }
}
